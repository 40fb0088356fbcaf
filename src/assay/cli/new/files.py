"""Write generated files without overwriting existing ones."""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import click

from assay.core.errors import InvalidOption, OutputError

__all__ = ["validate_name", "write_files"]


def validate_name(name: str) -> str:
    """Return the name if it is valid for a file, a module and a task.

    Raises:
        InvalidOption: The name is not a Python identifier.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidOption(
            f"invalid name `{name}`", hint="use letters, digits and underscores, starting with a letter"
        )
    return name


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Write files to a folder and print the paths of texts and the number of other files, such as images.

    Raises:
        OutputError: A file already exists, or the folder is not writable.
    """
    paths = {folder / name: content for name, content in files.items()}
    existing = [path for path in paths if path.exists()]
    if existing:
        raise OutputError(f"`{existing[0]}` already exists", hint="use another name, or --output DIR")
    try:
        for path, content in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                path.write_text(content, encoding="utf-8")
                click.echo(f"wrote {path}")
    except OSError as error:
        raise OutputError(f"cannot write: {error.strerror}", where=str(folder)) from None
    for parent, count in Counter(path.parent for path in paths if isinstance(paths[path], bytes)).items():
        click.echo(f"wrote {count} other file{'' if count == 1 else 's'} in {parent}")
    return list(paths)
