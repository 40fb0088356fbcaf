"""What each token of a text wrote, by a tokenizer that only decodes several together rightly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.core.responses import Tokens

__all__ = ["pieces_of", "tokens_of_bytes", "told_tokens"]

_UNFINISHED = "\ufffd"
"""What a tokenizer writes for bytes that are no character yet."""


def pieces_of(
    tokens: Sequence[int], decode: Callable[[list[int]], str], *, before: Sequence[int] = ()
) -> tuple[str, ...]:
    """The text of each token; one that only begins a character has none, the one that ends it has all of it.

    A token is decoded behind the last ones `before` it, because some tokenizers leave out the space a text begins with.

    >>> pieces_of([72, 105], lambda tokens: bytes(tokens).decode("utf-8", "replace"))
    ('H', 'i')
    >>> pieces_of([195, 169], lambda tokens: bytes(tokens).decode("utf-8", "replace"))
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
"""Tokens a character may take: it has at most four bytes."""


def told_tokens(
    tokens: Sequence[int],
    logprobs: Sequence[float],
    decode: Callable[[list[int]], str],
    *,
    before: Sequence[int] = (),
) -> Tokens:
    """Tokens with their log-probabilities; those behind the last known number are left out."""
    numbers = tuple(float(number) for number in logprobs[: len(tokens)])
    return Tokens(pieces_of(tokens[: len(numbers)], decode, before=before), numbers)


def tokens_of_bytes(contents: Sequence[bytes], logprobs: Sequence[float]) -> Tokens:
    """Tokens of which the bytes are known: these are characters only together.

    >>> tokens_of_bytes([b"caf\\xc3", b"\\xa9"], [-1.0, -0.5]).pieces
    ('', 'caf\xe9')
    """
    pieces = pieces_of(
        range(len(contents)),
        lambda places: b"".join(contents[at] for at in places).decode("utf-8", "replace"),
    )
    return Tokens(pieces, tuple(float(number) for number in logprobs))
