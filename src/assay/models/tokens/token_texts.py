"""The text of each token. Tokens are decoded in context, because some characters span several tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.core.records.responses import Tokens

__all__ = ["build_tokens", "decode_each_token", "tokens_from_bytes"]

_UNFINISHED = "\ufffd"
"""The replacement character that a tokenizer returns for an incomplete character."""


def decode_each_token(
    tokens: Sequence[int], decode: Callable[[list[int]], str], *, before: Sequence[int] = ()
) -> tuple[str, ...]:
    """Return the text of each token. If a character spans several tokens, the last of them gets all of it.

    A token is decoded after the last ones `before` it, because some tokenizers drop the leading space of a text.

    >>> decode_each_token([72, 105], lambda tokens: bytes(tokens).decode("utf-8", "replace"))
    ('H', 'i')
    >>> decode_each_token([195, 169], lambda tokens: bytes(tokens).decode("utf-8", "replace"))
    ('', 'é')
    """
    whole = [*before[-_LONGEST_CHARACTER:], *tokens]
    start, sure = 0, len(whole) - len(tokens)
    known = decode(whole[start:sure]) if sure else ""
    found = []
    for at in range(sure, len(whole)):
        text = decode(whole[start : at + 1])
        if text.endswith(_UNFINISHED) and at + 1 - sure < _LONGEST_CHARACTER and at + 1 < len(whole):
            found.append("")
            continue
        found.append(text[len(known) :])
        start, sure = sure, at + 1
        known = decode(whole[start:sure])
    return tuple(found)


_LONGEST_CHARACTER = 4
"""Maximum tokens per character: a character has at most four bytes."""


def build_tokens(
    tokens: Sequence[int],
    logprobs: Sequence[float],
    decode: Callable[[list[int]], str],
    *,
    before: Sequence[int] = (),
) -> Tokens:
    """Return tokens with their log probabilities. Tokens after the last log probability are left out."""
    numbers = tuple(float(number) for number in logprobs[: len(tokens)])
    return Tokens(decode_each_token(tokens[: len(numbers)], decode, before=before), numbers)


def tokens_from_bytes(contents: Sequence[bytes], logprobs: Sequence[float]) -> Tokens:
    """Return tokens given as bytes. A character can span several of them.

    >>> tokens_from_bytes([b"caf\\xc3", b"\\xa9"], [-1.0, -0.5]).pieces
    ('', 'caf\xe9')
    """
    pieces = decode_each_token(
        range(len(contents)),
        lambda indexes: b"".join(contents[at] for at in indexes).decode("utf-8", "replace"),
    )
    return Tokens(pieces, tuple(float(number) for number in logprobs))
