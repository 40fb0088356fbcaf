"""What installed packages offer Assay: their entry points, read once.

The standard library opens the metadata of every installed package each time it is asked, which with a few hundred packages
is most of the time Assay needs to start.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

__all__ = ["plugins"]


def plugins(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, such as `assay.models`."""
    return _by_group(tuple((folder, _changed(folder)) for folder in sys.path)).get(group, ())


@lru_cache(maxsize=1)
def _by_group(_: tuple[tuple[str, int], ...]) -> dict[str, tuple[EntryPoint, ...]]:
    """Read anew when the search path changes, or a package is installed."""
    found = entry_points()
    ours = [group for group in found.groups if group.startswith("assay.")]
    return {group: tuple(found.select(group=group)) for group in ours}


def _changed(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0
