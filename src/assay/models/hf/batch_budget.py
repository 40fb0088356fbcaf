"""How much to compute at once: halved when memory runs out, grown again after a number of successes."""

from __future__ import annotations

from typing import Any

__all__ = ["BatchBudget", "is_out_of_memory", "release_memory"]

_SUCCESSES_BEFORE_GROWTH = 16
"""Successful computations in a row before the budget grows."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that a device ran out of memory."""
    if type(error).__name__ in ("OutOfMemoryError", "MemoryError"):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(
        words in text
        for words in ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")
    )


class BatchBudget:
    """The number of tokens or rows to compute together.

    >>> budget = BatchBudget(8)
    >>> budget.halve(), budget.size, budget.halve(), budget.halve(), budget.halve()
    (True, 4, True, True, False)
    """

    def __init__(self, size: int, *, minimum: int = 1) -> None:
        self.size = size
        self._minimum = minimum
        self._maximum = size
        self._successes = 0

    def halve(self) -> bool:
        """Halve the size; return False if it is at its minimum."""
        if self.size <= self._minimum:
            return False
        self._maximum = max(self._minimum, self.size - 1)  # this size does not fit
        self.size = max(self._minimum, self.size // 2)
        self._successes = 0
        return True

    def record_success(self) -> None:
        """Count a success. After several, grow by half, but stay below the size that did not fit."""
        self._successes += 1
        if self._successes >= _SUCCESSES_BEFORE_GROWTH and self.size < self._maximum:
            self.size = min(self._maximum, self.size + max(1, self.size // 2))
            self._successes = 0


def release_memory(device: Any) -> None:
    """Release the memory of a failed computation."""
    import gc

    import torch

    if device.type != "cpu":  # on a CPU, freed pages are returned without this
        gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
