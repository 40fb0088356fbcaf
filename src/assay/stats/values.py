"""What a metric made of the documents of a task, in order: eight bytes each as long as they are plain floats."""

from __future__ import annotations

from array import array
from typing import Any

__all__ = ["Values"]


class Values:
    """Values of any kind.

    >>> values = Values()
    >>> values.append(0.5), values.items
    (None, array('d', [0.5]))
    >>> values.append((1, 2)), values.items
    (None, [0.5, (1, 2)])
    """

    __slots__ = ("append", "items")

    def __init__(self) -> None:
        self.items: Any = array("d")
        """All of them: an array of floats, or a list."""

        self.append: Any = self._append_float
        """Add one value."""

    def _append_float(self, value: Any) -> None:
        if type(value) is float:
            self.items.append(value)
        else:
            self.items = [*self.items, value]
            self.append = self.items.append

    def as_list(self) -> list[Any]:
        """A list of its own, for code that is not ours."""
        return list(self.items)

    def __len__(self) -> int:
        return len(self.items)
