"""How far two texts are apart. Registers nothing, so that any metric may use it while metrics are being loaded."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["edit_distance"]


def edit_distance(first: Sequence[str], second: Sequence[str]) -> int:
    """The fewest characters (or words, of lists) to insert, delete or replace to make one the other.

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
