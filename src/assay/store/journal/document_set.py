"""A compact set of document indices: one byte per document up to the largest index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

__all__ = ["DocumentSet"]


class DocumentSet(Set[int]):
    """A set of small non-negative integers.

    >>> sorted(DocumentSet([2, 0])), 1 in DocumentSet([2, 0])
    ([0, 2], False)
    """

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._flags = bytearray()
        for number in numbers:
            if number >= len(self._flags):
                self._flags.extend(bytes(number + 1 - len(self._flags)))
            self._flags[number] = 1

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and 0 <= number < len(self._flags) and self._flags[number] == 1

    def __iter__(self) -> Iterator[int]:
        return (number for number, flag in enumerate(self._flags) if flag)

    def __len__(self) -> int:
        return self._flags.count(1)
