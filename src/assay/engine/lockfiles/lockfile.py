"""Read and write lockfiles: YAML in a stable order, one line per item that can change.

`docs/guides/lockfiles.md` describes the keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from assay.core.errors import InvalidOption, OutputError
from assay.core.fingerprints import digest_json
from assay.engine.planning.config_files import read_yaml
from assay.tasks.files.yaml_aliases import load_yaml

__all__ = [
    "FORMAT",
    "Lockfile",
    "decode_digests",
    "encode_digests",
    "parse_lock",
    "read_lock",
    "write_lock",
]

FORMAT = 1
_HEAD = """\
# What a score depends on. Written by `assay lock`; do not edit, except `mirrors`.
#   assay run --locked FILE      evaluate exactly this, or say what differs
#   assay lock --check FILE      say what differs now
#   assay lock --update FILE     accept what differs
"""
_SECTIONS = {"options": Mapping, "model": Mapping, "judges": Mapping, "packages": Mapping, "tasks": Mapping}
_DATASET_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_TASK_SECTIONS = "dataset files config settings filters metrics judged prompts content".split()
_PER_LINE = 10
_MAX_LINE_LIST = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Lockfile:
    """The content of a lockfile."""

    content: Mapping[str, Any]
    path: Path
    """The file; its folder is the start of relative paths."""

    @property
    def digest(self) -> str:
        """A hash of the content without the mirrors, which do not change what is claimed."""
        return digest_json(_without_mirrors(self.content))

    @property
    def text(self) -> str:
        """The file as it is written."""
        return format_lock(self.content)


def _without_mirrors(content: Mapping[str, Any]) -> dict[str, Any]:
    tasks = {}
    for name, task in content.get("tasks", {}).items():
        dataset = {key: value for key, value in task.get("dataset", {}).items() if key != "mirrors"}
        tasks[name] = {**task, "dataset": dataset}
    return {**content, "tasks": tasks}


class _Dumper(yaml.SafeDumper):
    """Writes texts with line breaks as blocks, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|" if _is_block_text(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    """Write a short list of names or numbers in one line."""
    scalars = all(isinstance(item, (str, int, float)) for item in items)
    lines = any(isinstance(item, str) and "\n" in item.strip() for item in items)
    is_short = scalars and not lines and len(str(items)) <= _MAX_LINE_LIST
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=is_short)


def _is_block_text(text: str) -> bool:
    """Whether YAML can write a text as a block: no trailing spaces, no control characters."""
    lines = text.split("\n")
    return all(line.isprintable() and line == line.rstrip() for line in lines) and bool(lines[0].strip())


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(list, _represent_list)


def format_lock(content: Mapping[str, Any]) -> str:
    """Return the text of a lockfile."""
    body = yaml.dump(
        dict(content),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=110,
        default_flow_style=False,
    )
    return f"{_HEAD}{body}"


def write_lock(lock: Lockfile) -> None:
    """Write a lockfile.

    Raises:
        OutputError: The file cannot be written.
    """
    try:
        lock.path.parent.mkdir(parents=True, exist_ok=True)
        waiting = lock.path.with_name(f".{lock.path.name}-new")
        waiting.write_text(lock.text, encoding="utf-8", newline="\n")
        waiting.replace(lock.path)
    except OSError as error:
        raise OutputError(f"cannot write the lockfile: {error.strerror}", where=str(lock.path)) from None


def read_lock(path: Path) -> Lockfile:
    """Read a lockfile.

    Raises:
        InvalidOption: The file cannot be read or is not a lockfile.
    """
    return Lockfile(content=_check(read_yaml(path, "lockfile"), str(path)), path=path)


def parse_lock(text: str, path: Path) -> Lockfile:
    """Parse the text of a lockfile, for example one in a manifest.

    Raises:
        InvalidOption: The text is not a lockfile.
    """
    try:
        loaded = load_yaml(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise InvalidOption(f"the lockfile is not valid YAML: {error}", where=str(path)) from None
    return Lockfile(content=_check(loaded, str(path)), path=path)


def _check(content: Any, where: str) -> Mapping[str, Any]:
    """Check the form of a lockfile, which may come from another person."""
    if not isinstance(content, dict) or not isinstance(content.get("format"), int):
        raise InvalidOption(
            "the file is not a lockfile", where=where, hint="`assay lock -t TASKS -o FILE` writes one"
        )
    if content["format"] > FORMAT:
        raise InvalidOption(
            f"the lockfile was written by a newer version of Assay (format {content['format']}, supported: {FORMAT})",
            where=where,
            hint="upgrade Assay",
        )
    for name, kind in _SECTIONS.items():
        section = content.get(name)
        if not isinstance(section, kind) or not all(isinstance(key, str) for key in section):
            raise InvalidOption(f"the lockfile has no section `{name}`", where=where)
    parts = {f"judges.{name}": judge for name, judge in content["judges"].items()}
    parts |= {f"packages.{name}": package for name, package in content["packages"].items()}
    parts |= {f"tasks.{name}": task for name, task in content["tasks"].items()}
    parts |= {"model.identity": content["model"].get("identity", {}), "groups": content.get("groups", {})}
    for name, task in content["tasks"].items():
        if isinstance(task, dict):
            parts |= {f"tasks.{name}.{key}": task[key] for key in _TASK_SECTIONS if key in task}
            judged = task.get("judged")
            if isinstance(judged, dict):
                parts |= {f"tasks.{name}.judged.{key}": one for key, one in judged.items()}
    for name, part in parts.items():
        if not isinstance(part, dict) or not all(isinstance(key, str) for key in part):
            raise InvalidOption(f"`{name}` is not a mapping", where=where)
    for name, task in content["tasks"].items():
        mirrors = task.get("dataset", {}).get("mirrors", [])
        for mirror in mirrors if isinstance(mirrors, list) else [mirrors]:
            if not isinstance(mirror, str) or not _DATASET_ID.fullmatch(mirror) or ".." in mirror:
                raise InvalidOption(
                    f"`{mirror}` is not the id of a dataset",
                    where=f"{where}, tasks.{name}.dataset.mirrors",
                    hint="a mirror in a lockfile is an id of the hub, such as org/name; `--mirror ID=FOLDER` accepts folders",
                )
    return content


def encode_digests(digests: Iterable[tuple[int, str]]) -> str:
    """Return short digests of numbered documents as lines: the first number, then consecutive documents.

    >>> encode_digests([(0, "aa"), (1, "bb"), (7, "cc")])
    '0: aa bb\\n7: cc\\n'
    """
    lines: list[list[str]] = []
    expected = -1
    for number, digest in digests:
        if number != expected or len(lines[-1]) > _PER_LINE:
            lines.append([f"{number}:"])
        lines[-1].append(digest)
        expected = number + 1
    return "".join(f"{' '.join(line)}\n" for line in lines)


def decode_digests(text: Any) -> dict[int, str]:
    """Return the digests by document; lines of another form are skipped.

    >>> decode_digests("0: aa bb\\n7: cc\\n")
    {0: 'aa', 1: 'bb', 7: 'cc'}
    """
    found: dict[int, str] = {}
    for line in str(text or "").splitlines():
        start, separator, digests = line.partition(":")
        if separator and start.strip().isdecimal():
            found |= dict(enumerate(digests.split(), int(start)))
    return found
