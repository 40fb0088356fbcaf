"""Which Assay this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["assay_version"]


def assay_version() -> str:
    """The installed version."""
    try:
        return version("assay")
    except PackageNotFoundError:
        return "unknown"
