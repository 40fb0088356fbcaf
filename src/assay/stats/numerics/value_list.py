"""A list of metric values that takes eight bytes per value while all are floats."""

from __future__ import annotations

from array import array
from typing import Any

__all__ = ["ValueList"]


class ValueList:
    """An append-only list of values of any type.

    >>> values = ValueList()
    >>> values.append(0.5), values.items
    (None, array('d', [0.5]))
    >>> values.append((1, 2)), values.items
    (None, [0.5, (1, 2)])
    """

    __slots__ = ("append", "items")

    def __init__(self) -> None:
        self.items: Any = array("d")
        """All values: an array of floats, or a list."""

        self.append: Any = self._append_float
        """Append a value."""

    def _append_float(self, value: Any) -> None:
        if type(value) is float:
            self.items.append(value)
        else:
            self.items = [*self.items, value]
            self.append = self.items.append

    def as_list(self) -> list[Any]:
        """Return a new list, for functions of tasks."""
        return list(self.items)

    def __len__(self) -> int:
        return len(self.items)
