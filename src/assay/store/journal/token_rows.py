"""The tokens of answers as rows and back. They have a table of their own: most runs keep none, and nothing reads them
but the page of a document and an export."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from assay.core.codec import decode, encode
from assay.core.responses import Response, Tokens
from assay.store.integrity.row_checksums import compute_checksum

__all__ = ["INSERT_TOKENS", "SELECT_CACHED_TOKENS", "SELECT_TOKENS", "attach_tokens", "build_tokens_row"]

INSERT_TOKENS = "INSERT OR REPLACE INTO tokens VALUES (?,?,?)"
SELECT_TOKENS = "SELECT fingerprint, text, logprob, greedy, tokens.content, tokens.crc FROM answered JOIN tokens USING (id)"
SELECT_CACHED_TOKENS = (
    "SELECT fingerprint, text, logprob, greedy, tokens.content, tokens.crc FROM responses"
    " JOIN tokens USING (fingerprint)"
)
_LOGPROB_DECIMALS = 6
"""Behind the point: more than a model in single precision knows, and half as many bytes as all of them."""


def build_tokens_row(key: int | str, answer: tuple[Any, ...], tokens: Tokens) -> tuple[Any, ...]:
    """The tokens of an answer (fingerprint, text, logprob, greedy) as a row under its key."""
    fingerprint, text, logprob, greedy = answer
    content = _encode_tokens(tokens)
    if logprob != logprob:
        logprob = None  # as SQLite keeps NaN
    return key, content, compute_checksum(fingerprint, text, logprob, greedy, content)


def _encode_tokens(tokens: Tokens) -> str:
    numbers = [round(float(number), _LOGPROB_DECIMALS) for number in tokens.logprobs]
    pieces = [piece.encode("utf-8", "replace").decode() for piece in tokens.pieces]
    return encode({"pieces": pieces, "logprobs": numbers})


def attach_tokens(found: Mapping[str, Response], rows: Iterable[tuple[Any, ...]]) -> dict[str, Response]:
    """Those of some responses whose tokens are among the rows, with them. Tokens that are damaged, or of another answer
    than this one, are none."""
    known: dict[str, Response] = {}
    for *answer, content, crc in rows:
        if answer[0] in found and crc == compute_checksum(*answer, content):
            kept = decode(content)
            tokens = Tokens(tuple(kept["pieces"]), tuple(map(float, kept["logprobs"])))
            known[answer[0]] = replace(found[answer[0]], tokens=tokens)
    return known
