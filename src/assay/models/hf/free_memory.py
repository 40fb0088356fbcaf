"""How much memory of the machine is free."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["find_free_bytes"]


def find_free_bytes(memory_info: Path = Path("/proc/meminfo")) -> int | None:
    """Return the memory that programs can still use, or None if unknown.

    On Linux it includes cached files, which the system gives up on demand. After a large checkpoint was read, most of the
    memory is in that cache.
    """
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", memory_info.read_text(encoding="utf-8"), re.MULTILINE)
        if found is not None:
            return int(found[1]) << 10
    except OSError:  # not Linux
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not available on every system
        return None
