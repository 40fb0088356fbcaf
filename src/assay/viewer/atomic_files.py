"""Atomic writing of output files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from assay.core.errors import OutputError

__all__ = ["write_atomically"]


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a temporary file next to `path` and rename it, so that `path` is never half-written.

    Raises:
        OutputError: The file cannot be written.
    """
    if path.is_dir():
        raise OutputError(f"`{path}` is a folder", where="--output", hint="name a file in it")
    temporary = path.with_name(f"{path.name}.new")
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write `{path}`: {error.strerror}", where="--output") from None
    finally:
        with suppress(OSError):  # renamed, or never created
            temporary.unlink()
