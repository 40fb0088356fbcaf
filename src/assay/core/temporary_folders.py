"""Deletes temporary folders that killed processes of Assay left behind."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["sweep_temporary_folders"]

_NAMES = re.compile(r"assay-((score|verify|tasks|program|pdf|read)-\w+|[0-9a-f]{32})")
_MIN_AGE_S = 24 * 3600.0
"""Folders of running processes are younger."""


def sweep_temporary_folders() -> int:
    """Delete old temporary files and folders of this user; return how many."""
    count = 0
    oldest = time.time() - _MIN_AGE_S
    user = os.getuid() if hasattr(os, "getuid") else None
    with suppress(OSError):  # on a full disk there is no temporary folder
        for entry in Path(tempfile.gettempdir()).iterdir():
            if not _NAMES.fullmatch(entry.name):
                continue
            with suppress(OSError):  # another process deletes it, too
                status = entry.lstat()
                if status.st_mtime > oldest or (user is not None and status.st_uid != user):
                    continue
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink()
                count += 1
    return count
