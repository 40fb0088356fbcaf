"""A context and its continuation as tokens, split where lm-evaluation-harness splits them, and cut to what a model can hold."""

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
    "rolling_windows",
]

EncodeTexts = Callable[[Sequence[str], bool], list[list[int]]]
"""`encode(texts, special)`: the tokens of each text, with the tokenizer's own special tokens or without."""


class Unanswerable(ValueError):
    """A request that has no answer on the level of tokens: nothing to score, or more than the model can hold."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The tokens given and the tokens scored."""

    context: list[int]
    continuation: list[int]

    @property
    def inputs(self) -> list[int]:
        """What a causal model reads: all but the last token, which is only scored."""
        return self.context + self.continuation[:-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEncoder:
    """Texts to tokens by lm-eval's rules about special tokens.

    A text that begins with the text of the prefix token (a chat template wrote it) gets no special tokens; else
    `add_bos` decides, and without it the tokenizer.
    """

    encode: EncodeTexts
    prefix_token: int
    """What an empty context is replaced by: the start token, else the end token."""

    prefix_text: str = ""
    add_bos: bool | None = None

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text; two calls of the tokenizer at most, whatever the number of texts."""
        plain = [self.add_bos is False or self._begins(text) for text in texts]
        found: dict[bool, list[list[int]]] = {}
        for bare in set(plain):
            some = [text for text, is_bare in zip(texts, plain, strict=True) if is_bare is bare]
            found[bare] = self.encode(some, not bare)
        each = {bare: iter(encoded) for bare, encoded in found.items()}
        return [next(each[bare]) for bare in plain]

    def bare(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text without any special token."""
        return self.encode(texts, False) if texts else []

    def _begins(self, text: str) -> bool:
        return bool(self.prefix_text) and text.startswith(self.prefix_text)


def encode_pair(context: str, continuation: str, encoder: TextEncoder, *, apart: bool = False) -> Pair:
    """One pair; see `encode_pairs`.

    Raises:
        Unanswerable: The continuation has no tokens of its own.
    """
    found = encode_pairs([(context, continuation)], encoder, apart=apart)[0]
    if isinstance(found, Unanswerable):
        raise found
    return found


def encode_pairs(
    pairs: Sequence[tuple[str, str]], encoder: TextEncoder, *, apart: bool = False
) -> list[Pair | Unanswerable]:
    """Tokens of contexts and continuations, all texts in one call of the tokenizer, each context once.

    White space at the end of the context belongs to the continuation. The two are encoded together, and what the
    context alone does not account for is the continuation. Models with an encoder read the two `apart`.
    An empty context is the prefix token.
    """
    moved = [_moved(context, continuation) for context, continuation in pairs]
    given = [index for index, (context, _) in enumerate(pairs) if context]
    contexts = list(dict.fromkeys(moved[index][0] for index in given))
    wholes = [] if apart else ["".join(moved[index]) for index in given]
    encoded = encoder([*contexts, *wholes])
    context_tokens = dict(zip(contexts, encoded, strict=False))
    bare = [index for index in range(len(pairs)) if apart or not pairs[index][0]]
    bare_tokens = dict(zip(bare, encoder.bare([moved[index][1] for index in bare]), strict=True))
    whole_tokens = dict(zip(given, encoded[len(contexts) :], strict=False))
    found: list[Pair | Unanswerable] = []
    for index, (context, _) in enumerate(moved):
        own = context_tokens[context] if pairs[index][0] else []
        if apart:
            continuation = bare_tokens[index]
        elif pairs[index][0]:
            continuation = whole_tokens[index][len(own) :]
        else:
            continuation = bare_tokens[index]
        found.append(_pair(own, continuation, encoder.prefix_token))
    return found


def _moved(context: str, continuation: str) -> tuple[str, str]:
    """White space at the end of the context goes over to the continuation, where the tokenizer expects it."""
    stripped = context.rstrip()
    return stripped, context[len(stripped) :] + continuation


def _pair(context: list[int], continuation: list[int], prefix_token: int) -> Pair | Unanswerable:
    if not context and continuation and continuation[0] == prefix_token:
        context, continuation = continuation[:1], continuation[1:]
    if not continuation:
        return Unanswerable("the continuation has no tokens of its own, so there is nothing to score")
    return Pair(context or [prefix_token], continuation)


def fit_pair(pair: Pair, max_length: int) -> Pair:
    """The pair as far as a causal model can hold it: the context loses tokens at its left.

    The model reads all but the last token, so one more than `max_length` fits.

    Raises:
        Unanswerable: The continuation alone is too long.
    """
    if len(pair.continuation) > max_length:
        raise Unanswerable(
            f"the continuation has {len(pair.continuation)} tokens, the model holds {max_length}"
        )
    room = max_length + 1 - len(pair.continuation)
    return pair if len(pair.context) <= room else Pair(pair.context[-room:], pair.continuation)


def fit_prompt(tokens: list[int], max_length: int, max_new_tokens: int) -> list[int]:
    """A prompt cut at its left so that `max_new_tokens` fit behind it.

    Raises:
        Unanswerable: There is no room for a prompt at all.
    """
    room = max_length - max_new_tokens
    if room <= 0:
        raise Unanswerable(
            f"{max_new_tokens} new tokens are asked for, and the model holds {max_length} in all: no room for the prompt"
        )
    return tokens[-room:]


def rolling_windows(tokens: list[int], *, prefix_token: int, max_length: int) -> list[Pair]:
    """Windows whose continuations, one after the other, are the text.

    The first window begins with the prefix token. Every later one is as long as the model can hold; the last is filled
    up with text that is already scored, as context.

    >>> [(pair.context, pair.continuation) for pair in rolling_windows([1, 2, 3, 4, 5, 6, 7], prefix_token=0, max_length=3)]
    [([0], [1, 2, 3]), ([3], [4, 5, 6]), ([4, 5, 6], [7])]
    """
    if max_length < 1:
        raise ValueError(f"a window holds at least one token, not {max_length}")
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
