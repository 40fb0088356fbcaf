"""Encode contexts and continuations as token pairs, by the rules of lm-evaluation-harness, and fit them to a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = [
    "EncodeTexts",
    "Pair",
    "TextEncoder",
    "Unanswerable",
    "encode_pair",
    "encode_pairs",
    "fit_pair",
    "fit_prompt",
    "split_rolling_windows",
]

EncodeTexts = Callable[[Sequence[str], bool], list[list[int]]]
"""`encode(texts, special)` returns the tokens of each text, with or without the tokenizer's special tokens."""


class Unanswerable(ValueError):
    """A request that the model cannot answer: nothing to score, too many tokens, or unsupported content."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The tokens of a context and the tokens of its continuation, which are scored."""

    context: list[int]
    continuation: list[int]
    truncated: int = 0
    """Tokens removed from the context so that the pair fits the model."""

    @property
    def inputs(self) -> list[int]:
        """The input of a causal model: all tokens but the last, which is only scored."""
        return self.context + self.continuation[:-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEncoder:
    """Tokenizes texts with the rules of lm-eval for special tokens.

    A text that starts with the text of the prefix token (because a chat template added it) gets no special tokens.
    Otherwise `add_bos` decides, and if it is None, the tokenizer.
    """

    encode: EncodeTexts
    prefix_token: int
    """The token that replaces an empty context: the start token, else the end token."""

    prefix_text: str = ""
    add_bos: bool | None = None

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text, with at most two calls of the tokenizer."""
        plain = [self.add_bos is False or self._has_prefix(text) for text in texts]
        found: dict[bool, list[list[int]]] = {}
        for bare in set(plain):
            some = [text for text, is_bare in zip(texts, plain, strict=True) if is_bare is bare]
            found[bare] = self.encode(some, not bare)
        each = {bare: iter(encoded) for bare, encoded in found.items()}
        return [next(each[bare]) for bare in plain]

    def encode_bare(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text without special tokens."""
        return self.encode(texts, False) if texts else []

    def _has_prefix(self, text: str) -> bool:
        return bool(self.prefix_text) and text.startswith(self.prefix_text)


def encode_pair(context: str, continuation: str, encoder: TextEncoder, *, separate: bool = False) -> Pair:
    """Encode one pair; see `encode_pairs`.

    Raises:
        Unanswerable: The continuation has no tokens of its own.
    """
    found = encode_pairs([(context, continuation)], encoder, separate=separate)[0]
    if isinstance(found, Unanswerable):
        raise found
    return found


def encode_pairs(
    pairs: Sequence[tuple[str, str]], encoder: TextEncoder, *, separate: bool = False
) -> list[Pair | Unanswerable]:
    """Encode contexts and continuations, all texts in one call of the tokenizer, each context once.

    Whitespace at the end of the context is moved to the continuation. The two are encoded together, and the tokens after
    those of the context alone are the continuation. `separate`: encode them separately, for encoder-decoder models.
    An empty context is replaced by the prefix token.
    """
    split_texts = [_move_whitespace(context, continuation) for context, continuation in pairs]
    given = [index for index, (context, _) in enumerate(pairs) if context]
    contexts = list(dict.fromkeys(split_texts[index][0] for index in given))
    wholes = [] if separate else ["".join(split_texts[index]) for index in given]
    encoded = encoder([*contexts, *wholes])
    context_tokens = dict(zip(contexts, encoded, strict=False))
    bare = [index for index in range(len(pairs)) if separate or not pairs[index][0]]
    bare_tokens = dict(zip(bare, encoder.encode_bare([split_texts[index][1] for index in bare]), strict=True))
    whole_tokens = dict(zip(given, encoded[len(contexts) :], strict=False))
    found: list[Pair | Unanswerable] = []
    for index, (context, _) in enumerate(split_texts):
        own = context_tokens[context] if pairs[index][0] else []
        if separate:
            continuation = bare_tokens[index]
        elif pairs[index][0]:
            continuation = whole_tokens[index][len(own) :]
        else:
            continuation = bare_tokens[index]
        found.append(_make_pair(own, continuation, encoder.prefix_token))
    return found


def _move_whitespace(context: str, continuation: str) -> tuple[str, str]:
    """Move whitespace at the end of the context to the continuation, where the tokenizer expects it."""
    stripped = context.rstrip()
    return stripped, context[len(stripped) :] + continuation


def _make_pair(context: list[int], continuation: list[int], prefix_token: int) -> Pair | Unanswerable:
    if not context and continuation and continuation[0] == prefix_token:
        context, continuation = continuation[:1], continuation[1:]
    if not continuation:
        return Unanswerable("the continuation has no tokens of its own, so there is nothing to score")
    return Pair(context or [prefix_token], continuation)


def fit_pair(pair: Pair, max_length: int) -> Pair:
    """Truncate the context on the left so that the pair fits a causal model.

    The model reads all tokens but the last, so `max_length` + 1 tokens fit.

    Raises:
        Unanswerable: The continuation alone is too long.
    """
    if len(pair.continuation) > max_length:
        raise Unanswerable(
            f"the continuation has {len(pair.continuation)} tokens, the context length is {max_length}"
        )
    room = max_length + 1 - len(pair.continuation)
    excess = len(pair.context) - room
    return pair if excess <= 0 else Pair(pair.context[excess:], pair.continuation, pair.truncated + excess)


def fit_prompt(tokens: list[int], max_length: int, max_new_tokens: int) -> list[int]:
    """Truncate a prompt on the left so that `max_new_tokens` fit after it.

    Raises:
        Unanswerable: `max_new_tokens` leaves no room for a prompt.
    """
    room = max_length - max_new_tokens
    if room <= 0:
        raise Unanswerable(
            f"no room for the prompt: {max_new_tokens} new tokens requested, the context length is {max_length}"
        )
    return tokens[-room:]


def split_rolling_windows(tokens: list[int], *, prefix_token: int, max_length: int) -> list[Pair]:
    """Split a long text into windows that fit the model. Their continuations, concatenated, are the text.

    The first window starts with the prefix token. Every later window has the full length; the context of the last one
    contains tokens that are already scored.

    >>> [(pair.context, pair.continuation) for pair in split_rolling_windows([1, 2, 3, 4, 5, 6, 7], prefix_token=0, max_length=3)]
    [([0], [1, 2, 3]), ([3], [4, 5, 6]), ([4, 5, 6], [7])]
    """
    if max_length < 1:
        raise ValueError(f"max_length must be at least 1, got {max_length}")
    if not tokens:
        return []
    first = tokens[:max_length]
    windows = [Pair([prefix_token], first)]
    done = len(first)
    while done < len(tokens):
        end = min(done + max_length, len(tokens))
        windows.append(Pair(tokens[end - max_length - 1 : done], tokens[done:end]))
        done = end
    return windows
