"""The edit distance of two texts."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["edit_distance"]


def edit_distance(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the minimum number of insertions, deletions and replacements of characters (or list items).

    >>> edit_distance("kitten", "sitting")
    3
    """
    if first == second:
        return 0
    above = list(range(len(second) + 1))
    for row, letter in enumerate(first, start=1):
        line = [row]
        for column, other in enumerate(second):
            if letter == other:
                line.append(above[column])
            else:
                line.append(1 + min(above[column], above[column + 1], line[column]))
        above = line
    return above[-1]
