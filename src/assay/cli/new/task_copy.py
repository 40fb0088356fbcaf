"""Copies the files of an existing task under a new name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption, UnknownName

__all__ = ["copy_task_files"]


def copy_task_files(name: str, like: str) -> dict[str, str | bytes]:
    """Return the files of a task called `name` that is a copy of the task `like`: its YAML file, includes, helpers and data,
    and the files that helpers and data name, such as images.

    Raises:
        UnknownName: There is no task `like`.
        InvalidOption: `like` is a group or a tag, or a file of it cannot be copied.
    """
    from assay.tasks.files.index import TaskIndex, find_task_roots

    index = TaskIndex.build(find_task_roots())
    entry = index.entries.get(like)
    if entry is None:
        raise UnknownName.of("task", like, index.names("task"), where="--like")
    if entry.kind != "task" or entry.path is None:
        raise InvalidOption(f"`{like}` is a {entry.kind}, not a task", where="--like")
    folder = entry.path.parent
    files: dict[str, str | bytes] = {f"{name}.yaml": _rename(entry.path.read_text("utf-8"), like, name)}
    for path in dict.fromkeys([*_find_includes(entry.path), *sorted(folder.glob("*.py"))]):
        if not path.name.startswith("test_"):
            files[_get_relative_name(path, folder, like)] = path.read_text("utf-8")
    for path in _find_data(entry.path):
        files[_get_relative_name(path, folder, like)] = path.read_text("utf-8")
    for path in _find_named_files(
        folder, "\n".join(text for text in files.values() if isinstance(text, str))
    ):
        files.setdefault(path.relative_to(folder).as_posix(), path.read_bytes())
    return files


def _rename(text: str, like: str, name: str) -> str:
    """Return a task file with the new name, and without the tags and groups of the old one."""
    text = re.sub(rf"^task:\s*[\"']?{re.escape(like)}[\"']?", f"task: {name}", text, count=1, flags=re.M)
    text = re.sub(r"^(tag|group):[^\n]*\n((?:[ \t]*-[^\n]*\n)*)", "", text, flags=re.M)
    return f"# A copy of the task {like}. Change what differs.\n{text}"


def _get_relative_name(path: Path, folder: Path, like: str) -> str:
    try:
        return path.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        raise InvalidOption(
            f"`{like}` uses a file outside its folder: {path}",
            where="--like",
            hint="copy the folder of the task by hand",
        ) from None


def _find_includes(path: Path) -> Iterator[Path]:
    """Yield the files that a task file includes, and those that they include."""
    for found in re.findall(r"^include:\s*[\"']?([^\s\"'\[\]]+)", path.read_text("utf-8"), flags=re.M):
        included = path.parent / found
        if included.is_file():
            yield included
            yield from _find_includes(included)


def _find_data(path: Path) -> Iterator[Path]:
    """Yield the local data files that a task names."""
    from assay.tasks.files.yaml_reader import read_task_file

    arguments = read_task_file(path).config.get("dataset_kwargs")
    files = arguments.get("data_files") if isinstance(arguments, Mapping) else None
    for value in _iterate_texts(files):
        if (path.parent / value).is_file():
            yield path.parent / value


def _find_named_files(folder: Path, text: str) -> Iterator[Path]:
    """Yield the files below the folder of a task whose names are quoted in a text of it, alone or at the end of a path."""
    quoted = {found.rpartition("/")[2] for found in re.findall(r"[\"']([^\"'\n]+\.\w+)[\"']", text)}
    for path in sorted(folder.rglob("*")):
        if path.name in quoted and path.suffix not in (".py", ".yaml") and path.is_file():
            yield path


def _iterate_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _iterate_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _iterate_texts(item)
