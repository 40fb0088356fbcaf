"""Files that are there whole, or not at all."""

from __future__ import annotations

from pathlib import Path

from assay.core.errors import BadOutput

__all__ = ["write_whole"]


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file beside its place and move it there: a half-written one must not look like a whole one.

    Raises:
        BadOutput: It cannot be written.
    """
    if path.is_dir():
        raise BadOutput(f"`{path}` is a folder", where="--output", hint="name a file in it")
    waiting = path.with_name(f"{path.name}.new")
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        waiting.write_bytes(data)
        waiting.replace(path)
    except OSError as error:
        raise BadOutput(f"cannot write `{path}`: {error.strerror}", where="--output") from None
    finally:
        waiting.unlink(missing_ok=True)
