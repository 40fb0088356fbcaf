"""Measure the memory that a function allocates."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

__all__ = ["measure_peak_bytes"]


def measure_peak_bytes(function: Callable[[], object]) -> int:
    """Return the most memory that was allocated at once while the function ran."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
