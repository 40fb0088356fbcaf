"""Files that are written for somebody to go on with: never over something that is there."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from pathlib import Path

import click

from assay.core.errors import BadOption, BadOutput

__all__ = ["check_name", "write_files"]


def check_name(name: str) -> str:
    """A name that can be one of a file, a module and a task.

    Raises:
        BadOption: It cannot.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise BadOption(
            f"`{name}` cannot be a name here", hint="letters, digits and underscores, a letter first"
        )
    return name


def write_files(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write some files and say so.

    Raises:
        BadOutput: One of them is there already, or the folder cannot be written.
    """
    paths = {folder / name: text for name, text in files.items()}
    there = [path for path in paths if path.exists()]
    if there:
        raise BadOutput(f"`{there[0]}` is there already", hint="another name, or --output DIR")
    try:
        for path, text in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            click.echo(f"wrote {path}")
    except OSError as error:
        raise BadOutput(f"cannot write: {error.strerror}", where=str(folder)) from None
    return list(paths)
