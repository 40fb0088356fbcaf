"""The folder for data shared between runs: the response cache and the task index."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["assay_home"]


def assay_home() -> Path:
    """Return the folder in `ASSAY_HOME`, else `assay` in the user's data folder."""
    if configured := os.environ.get("ASSAY_HOME"):
        return Path(configured).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "assay"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "assay"
    return Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share")) / "assay"
