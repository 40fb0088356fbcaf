"""Run the garbage collector less often while a run streams.

Documents, requests and responses come by the million and hold no cycles: reference counting frees them. Searching them for
cycles takes a quarter of the harness's time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["reduce_collections"]

ALLOCATIONS_PER_COLLECTION = 50_000
"""New containers between two collections. User code may create cycles, so collection does not stop."""


@contextmanager
def reduce_collections() -> Iterator[None]:
    """Collect less often and ignore existing objects while the block runs."""
    before = gc.get_threshold()
    if not gc.isenabled() or before[0] == 0 or before[0] >= ALLOCATIONS_PER_COLLECTION:
        yield
        return
    gc.freeze()
    gc.set_threshold(ALLOCATIONS_PER_COLLECTION, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
