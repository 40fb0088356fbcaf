"""The tokens of answers as rows and back. They have a table of their own: most runs keep none, and nothing reads them
but the page of a document and an export."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from assay.core.codec import decode, encode
from assay.core.responses import Response, Tokens
from assay.store.sums import checksum

__all__ = ["INSERT_TOKENS", "SELECT_CACHED_TOKENS", "SELECT_TOKENS", "tokens_row", "with_tokens"]

INSERT_TOKENS = "INSERT OR REPLACE INTO tokens VALUES (?,?,?)"
SELECT_TOKENS = "SELECT fingerprint, text, logprob, greedy, tokens.content, tokens.crc FROM answered JOIN tokens USING (id)"
SELECT_CACHED_TOKENS = (
    "SELECT fingerprint, text, logprob, greedy, tokens.content, tokens.crc FROM responses"
    " JOIN tokens USING (fingerprint)"
)
_DIGITS = 6
"""Behind the point: more than a model in single precision knows, and half as many bytes as all of them."""


def tokens_row(key: int | str, answer: tuple[Any, ...], tokens: Tokens) -> tuple[Any, ...]:
    """The tokens of an answer (fingerprint, text, logprob, greedy) as a row under its key."""
    fingerprint, text, logprob, greedy = answer
    content = _content(tokens)
    if logprob != logprob:
        logprob = None  # as SQLite keeps NaN
    return key, content, checksum(fingerprint, text, logprob, greedy, content)


def _content(tokens: Tokens) -> str:
    numbers = [round(float(number), _DIGITS) for number in tokens.logprobs]
    pieces = [piece.encode("utf-8", "replace").decode() for piece in tokens.pieces]
    return encode({"pieces": pieces, "logprobs": numbers})


def with_tokens(found: Mapping[str, Response], rows: Iterable[tuple[Any, ...]]) -> dict[str, Response]:
    """Those of some responses whose tokens are among the rows, with them. Tokens that are damaged, or of another answer
    than this one, are none."""
    known: dict[str, Response] = {}
    for *answer, content, crc in rows:
        if answer[0] in found and crc == checksum(*answer, content):
            kept = decode(content)
            tokens = Tokens(tuple(kept["pieces"]), tuple(map(float, kept["logprobs"])))
            known[answer[0]] = replace(found[answer[0]], tokens=tokens)
    return known
