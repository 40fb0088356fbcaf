"""A long text in windows a model can hold, each token scored once."""

from __future__ import annotations

from assay.models.tokens.pairs import Pair

__all__ = ["rolling_windows"]


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
