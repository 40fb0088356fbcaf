"""Fewer sweeps of the garbage collector while a run streams.

Documents, requests and responses come by the million and hold no cycles, so counting references frees them; sweeps that
look for cycles among them find nothing and cost a quarter of the harness's time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["few_collections"]

_ALLOCATIONS = 50_000
"""New containers between two sweeps of the young ones. Helper code may make cycles, so there is an end."""


@contextmanager
def few_collections() -> Iterator[None]:
    """Sweep seldom, and pass over everything that is there already; afterwards as before."""
    before = gc.get_threshold()
    if not gc.isenabled() or before[0] == 0 or before[0] >= _ALLOCATIONS:
        yield
        return
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
