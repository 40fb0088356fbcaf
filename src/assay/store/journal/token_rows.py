"""Encodes the tokens of responses as rows and back. They have a table of their own: most runs store none, and only the
document page and exports read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from assay.core.records.codec import decode, encode
from assay.core.records.responses import Response, Tokens
from assay.store.integrity.row_checksums import compute_checksum

__all__ = ["INSERT_TOKENS", "SELECT_CACHED_TOKENS", "SELECT_TOKENS", "attach_tokens", "build_tokens_row"]

INSERT_TOKENS = "INSERT OR REPLACE INTO tokens VALUES (?,?,?)"
SELECT_TOKENS = "SELECT fingerprint, text, logprob, greedy, tokens.content, tokens.crc FROM main.answered JOIN tokens USING (id)"
SELECT_CACHED_TOKENS = (
    "SELECT fingerprint, text, logprob, greedy, tokens.content, tokens.crc FROM responses"
    " JOIN tokens USING (fingerprint)"
)
_LOGPROB_DECIMALS = 6
"""More than single precision provides, and half the bytes of the full representation."""


def build_tokens_row(key: int | str, answer: tuple[Any, ...], tokens: Tokens) -> tuple[Any, ...]:
    """Return the row for the tokens of a response (fingerprint, text, logprob, greedy)."""
    fingerprint, text, logprob, greedy = answer
    content = _encode_tokens(tokens)
    if logprob != logprob:
        logprob = None  # SQLite stores NaN as NULL
    return key, content, compute_checksum(fingerprint, text, logprob, greedy, content)


def _encode_tokens(tokens: Tokens) -> str:
    numbers = [round(float(number), _LOGPROB_DECIMALS) for number in tokens.logprobs]
    pieces = [piece.encode("utf-8", "replace").decode() for piece in tokens.pieces]
    return encode({"pieces": pieces, "logprobs": numbers})


def attach_tokens(responses: Mapping[str, Response], rows: Iterable[tuple[Any, ...]]) -> dict[str, Response]:
    """Return the responses whose tokens are among the rows, with tokens. Tokens that are damaged or belong to another
    response are ignored."""
    result: dict[str, Response] = {}
    for *answer, content, crc in rows:
        if answer[0] in responses and crc == compute_checksum(*answer, content):
            stored = decode(content)
            tokens = Tokens(tuple(stored["pieces"]), tuple(map(float, stored["logprobs"])))
            result[answer[0]] = replace(responses[answer[0]], tokens=tokens)
    return result
