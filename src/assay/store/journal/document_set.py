"""A set of positions of documents, one byte each up to the last one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

__all__ = ["DocumentSet"]


class DocumentSet(Set[int]):
    """Small whole numbers.

    >>> sorted(Positions([2, 0])), 1 in Positions([2, 0])
    ([0, 2], False)
    """

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._marks = bytearray()
        for number in numbers:
            if number >= len(self._marks):
                self._marks.extend(bytes(number + 1 - len(self._marks)))
            self._marks[number] = 1

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and 0 <= number < len(self._marks) and self._marks[number] == 1

    def __iter__(self) -> Iterator[int]:
        return (number for number, mark in enumerate(self._marks) if mark)

    def __len__(self) -> int:
        return self._marks.count(1)
