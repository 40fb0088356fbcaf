"""Batching and reordering of requests for model classes of lm-eval that do not have its package: `Collator`, `Reorderer`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from assay.core.errors import MissingPackage

__all__ = [
    "Collator",
    "Reorderer",
    "chunks",
    "get_rolling_token_windows",
    "handle_stop_sequences",
    "make_disjoint_window",
    "postprocess_generated_text",
]

ChunkSize = Callable[[int, Sequence[Any]], int]


def chunks(items: Iterable[Any], n: int = 0, fn: ChunkSize | None = None) -> Iterator[list[Any]]:
    """Divide items into lists of `n`, or of the length that `fn(index, items)` returns; 0 divides nothing."""
    given = tuple(items)
    chunk: list[Any] = []
    for index, item in enumerate(given):
        chunk.append(item)
        if len(chunk) == (fn(index, given) if fn is not None else n):
            yield chunk
            chunk = []
    if chunk:
        yield chunk


class Reorderer:
    """Sorts items by a key. `get_original` returns results for them in the order of the items."""

    def __init__(self, arr: Sequence[Any], fn: Callable[[Any], Any]) -> None:
        self._items = arr
        self._order = sorted(range(len(arr)), key=lambda index: fn(arr[index]))

    def get_reordered(self) -> list[Any]:
        """Return the sorted items."""
        return [self._items[index] for index in self._order]

    def get_original(self, newarr: Sequence[Any]) -> list[Any]:
        """Return results of the sorted items in the order of the items."""
        return _restore(self._order, newarr)


class Collator:
    """Divides requests into batches: sorted by a key, and with `group_by="gen_kwargs"` of the same settings.

    `get_original` returns the results of all batches in the order of the requests.
    """

    def __init__(
        self,
        arr: Sequence[Any],
        sort_fn: Callable[[Any], Any] = lambda item: item,
        group_fn: Callable[[Any], Any] = lambda item: item[1],
        group_by: str | None = None,
    ) -> None:
        if group_by == "contexts":
            raise MissingPackage.of(
                "lm_eval", '`Collator(group_by="contexts")`', where="lm_eval.models.utils"
            )
        self._items = arr
        self._sort_key = sort_fn
        self._groups: dict[Any, list[int]] = {}
        for index, item in enumerate(arr):
            key = _make_group_key(group_fn(item)) if group_by == "gen_kwargs" else None
            self._groups.setdefault(key, []).append(index)
        self._order: list[int] = []

    def __len__(self) -> int:
        return len(self._items)

    def get_batched(self, n: int = 1, batch_fn: ChunkSize | None = None) -> Iterator[list[Any]]:
        """Return batches of `n` requests, or of the size that `batch_fn(index, requests)` returns."""
        for indices in self._groups.values():
            order = sorted(indices, key=lambda index: self._sort_key(self._items[index]))
            self._order += order
            yield from chunks((self._items[index] for index in order), n=n, fn=batch_fn)

    def get_original(self, newarr: Sequence[Any]) -> list[Any]:
        """Return the results of all batches in the order of the requests."""
        return _restore(self._order, newarr)


def _make_group_key(settings: Any) -> str:
    return repr(sorted(settings.items()) if isinstance(settings, Mapping) else settings)


def _restore(order: Sequence[int], results: Sequence[Any]) -> list[Any]:
    restored: list[Any] = [None] * len(order)
    for index, result in zip(order, results, strict=True):
        restored[index] = result
    return restored


def handle_stop_sequences(until: str | list[str] | None, eos: str | None) -> list[str]:
    """Return stop strings as a list that ends with the end token, if there is one."""
    if until is not None and not isinstance(until, (str, list)):
        raise ValueError(f"`until` is a text or a list of texts, not {until!r}")
    stops = [until] if isinstance(until, str) else list(until or ())
    return stops if eos is None or eos in stops else [*stops, eos]


def postprocess_generated_text(
    generation: str, stop: Sequence[str] | str | None, think_end_token: str | None
) -> str:
    """Return the text after the thinking and before the first stop string."""
    if think_end_token:
        generation = generation.rpartition(think_end_token)[2].lstrip()
    for text in [stop] if isinstance(stop, str) else stop or ():
        if text:
            generation = generation.partition(text)[0]
    return generation


def get_rolling_token_windows(
    token_list: Sequence[int], prefix_token: int, max_seq_len: int, context_len: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Return windows over a text: the tokens to read, and those to score. `context_len` tokens are read again."""
    if not 1 <= context_len <= max_seq_len:
        raise ValueError(f"context_len is between 1 and max_seq_len ({max_seq_len}), not {context_len}")
    tokens = [prefix_token, *token_list]
    step = max_seq_len - context_len + 1
    end = 0
    while end < len(token_list):
        scored = min(step if end else max_seq_len, len(token_list) - end)
        end += scored
        yield tokens[max(0, end - max_seq_len) : end], tokens[end - scored + 1 : end + 1]


def make_disjoint_window(pair: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
    """Return a window whose context ends where its scored tokens begin."""
    context, scored = pair
    return context[: len(context) - len(scored) + 1], scored
