"""Where Assay keeps what outlives a run: the response cache, the task index."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["assay_home"]


def assay_home() -> Path:
    """`ASSAY_HOME`, else the user's data folder."""
    if given := os.environ.get("ASSAY_HOME"):
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "assay"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "assay"
    return Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share")) / "assay"
