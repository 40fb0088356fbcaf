"""How much is computed at once: found by trying, halved when memory runs out, grown again when it does not."""

from __future__ import annotations

from typing import Any

__all__ = ["Budget", "free_memory", "is_out_of_memory"]

_PATIENCE = 16
"""Computations that have to succeed before more is tried again."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device had no memory left, whatever the device calls it."""
    if type(error).__name__ in ("OutOfMemoryError", "MemoryError"):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(
        words in text
        for words in ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")
    )


class Budget:
    """A number of tokens or rows that may be computed together.

    >>> budget = Budget(8)
    >>> budget.halve(), budget.size, budget.halve(), budget.halve(), budget.halve()
    (True, 4, True, True, False)
    """

    def __init__(self, size: int, *, least: int = 1) -> None:
        self.size = size
        self._least = least
        self._most = size
        self._successes = 0

    def halve(self) -> bool:
        """Less from now on; False when there is no less."""
        if self.size <= self._least:
            return False
        self._most = max(self._least, self.size - 1)  # this much is known to be too much
        self.size = max(self._least, self.size // 2)
        self._successes = 0
        return True

    def succeeded(self) -> None:
        """After a while without trouble, half as much again is tried, below what is known to be too much."""
        self._successes += 1
        if self._successes >= _PATIENCE and self.size < self._most:
            self.size = min(self._most, self.size + max(1, self.size // 2))
            self._successes = 0


def free_memory(device: Any) -> None:
    """Give back what a failed computation left behind."""
    import gc

    import torch

    if device.type != "cpu":  # where nobody gives pages back by itself
        gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
