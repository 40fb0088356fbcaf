"""Extract the naming keys of task files without parsing the YAML.

Listing thirteen thousand tasks must not parse thirteen thousand files, so only the top-level keys that define names are
cut out of the text. `index_cache` stores the result.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.tasks.files.index_cache import FileStamp

__all__ = ["NamingKeys", "extract_naming_keys", "list_yaml_files", "read_headline"]

_KEYS = ("task", "group", "tag", "class", "include")
_TOP_KEY = re.compile(r"^([A-Za-z_][\w-]*|\"[^\"\n]+\"|'[^'\n]+')[ \t]*:(?=[ \t\r\n]|$)", re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z_][\w.+/@-]*")
_QUOTED = re.compile(r"\"([^\"\\\n]+)\"|'([^'\n]+)'")
_WORDS = re.compile(r"-[ ]+[A-Za-z_][\w.+/@-]*[ \t]*(?:\r?\n[ \t]*-[ ]+[A-Za-z_][\w.+/@-]*[ \t]*)*")
_NOT_TEXT = frozenset("true false yes no on off null none".split())


@dataclass(frozen=True, slots=True)
class NamingKeys:
    """The naming keys of one file, without its includes."""

    config: Mapping[str, Any]
    """`task`, `group`, `tag`, `class` and `include`, if the file has them. Functions are text."""


def extract_naming_keys(text: str) -> NamingKeys | None:
    """Return the naming keys of a task file's text, or None if only a YAML parser can find them.

    >>> extract_naming_keys("task: arc_easy\\ntag:\\n  - ai2_arc\\ndoc_to_text: '{{question}}'\\n").config
    {'task': 'arc_easy', 'tag': ['ai2_arc']}
    """
    found: dict[str, Any] = {}
    starts = [(match.start(), match.end(), match[1].strip("\"'")) for match in _TOP_KEY.finditer(text)]
    if not starts or text.lstrip().startswith(("{", "%", "---")):
        return None
    for index, (start, end, key) in enumerate(starts):
        if key not in _KEYS:
            continue
        stop = starts[index + 1][0] if index + 1 < len(starts) else len(text)
        value = text[end:stop].strip()
        simple = _parse_simple_value(value)
        if simple is not None:
            found[key] = simple
            continue
        try:
            found[key] = _parse_yaml_value(text[start:stop])[key]
        except (ValueError, TypeError, KeyError):
            return None
    return NamingKeys(found)


def _parse_simple_value(value: str) -> str | list[str] | None:
    """Parse a plain word or a list of plain words, one per line, which covers most files."""
    if _PLAIN.fullmatch(value):
        return value if value.lower() not in _NOT_TEXT else None
    quoted = _QUOTED.fullmatch(value)
    if quoted:
        return quoted[1] or quoted[2]
    if _WORDS.fullmatch(value):
        words = [line.strip()[1:].strip() for line in value.splitlines()]
        return words if _NOT_TEXT.isdisjoint(word.lower() for word in words) else None
    return None


def _parse_yaml_value(text: str) -> Any:
    """Parse a piece of YAML. Imports the parser, which most files do not need."""
    import yaml

    from assay.tasks.files.yaml_aliases import load_yaml

    if not hasattr(_parse_yaml_value, "loader"):
        parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

        class NamesLoader(parser):  # type: ignore[misc]
            """Reads `!function x.y` as the text `x.y`."""

        NamesLoader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))
        _parse_yaml_value.loader = NamesLoader  # type: ignore[attr-defined]
    try:
        return load_yaml(text, _parse_yaml_value.loader)  # type: ignore[attr-defined]
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def list_yaml_files(root: Path) -> list[FileStamp]:
    """Return (path, size, modification time) of every `*.yaml` file below a folder, sorted by path."""
    found: list[FileStamp] = []
    waiting = [str(root)]
    inside, followed = os.path.realpath(root), set[str]()
    while waiting:
        folder = waiting.pop()
        start = folder if folder.endswith(os.sep) else folder + os.sep
        with _scan_folder(folder) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(".yaml") and entry.is_file():  # false for a broken link
                    status = entry.stat()
                    found.append((start + name, status.st_size, status.st_mtime_ns))
                elif entry.is_dir():
                    path = start + name
                    if not entry.is_symlink() or _is_unvisited_link(path, inside, followed):
                        waiting.append(path)
    found.sort(key=(lambda row: row[0].replace(os.sep, "/")) if os.sep != "/" else None)
    return found


@contextmanager
def _scan_folder(folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Scan a folder, by descriptor if possible, because `stat` is then faster."""
    if os.scandir not in os.supports_fd:
        with os.scandir(folder) as entries:
            yield entries
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)


def read_headline(path: str) -> str:
    """Return the description of a task file: its first line, if that is a comment."""
    try:
        with open(path, encoding="utf-8") as file:
            first = file.readline()
    except (OSError, UnicodeDecodeError):
        return ""
    return first.lstrip("#").strip() if first.startswith("#") else ""


def _is_unvisited_link(link: str, inside: str, followed: set[str]) -> bool:
    """Return whether a linked folder is outside the scanned tree, does not contain it, and was not visited before."""
    target = os.path.realpath(link)
    nested = os.path.commonpath((target, inside)) in (target, inside)
    if nested or target in followed:
        return False
    followed.add(target)
    return True
