"""The groups and tags an lmms-eval corpus lists: structure only, no scores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.tasks.functions import HelperFunction
from assay.tasks.index import TaskIndex
from assay.tasks.yaml_reader import read_task_file
from assay.testing.oracle.checks import Checks
from assay.testing.oracle.compare import difference

__all__ = ["compare_groups"]

_KEYS = ("group_alias", "task", "aggregate_metric_list", "metadata")


def compare_groups(corpus: Path, root: Path, number: int) -> Iterator[Checks]:
    """Whether every recorded group and tag is there, with its members and metrics."""
    path = corpus / "groups.json"
    if not path.is_file():
        return
    recorded = json.loads(path.read_text("utf-8"))
    index = TaskIndex.build([root])
    for name, group in recorded.get("groups", {}).items():
        number += 1
        yield Checks(
            task=f"group:{name}", number=number, structure=True, requests=_group(name, group, index, root)
        )
    for name, members in recorded.get("tags", {}).items():
        number += 1
        yield Checks(task=f"tag:{name}", number=number, structure=True, requests=_tag(name, members, index))


def _group(name: str, recorded: Mapping[str, Any], index: TaskIndex, root: Path) -> str | None:
    entry = index.entries.get(name)
    if entry is None or entry.kind != "group":
        return "there is no such group"
    try:
        config = read_task_file(root / str(recorded["yaml_relpath"]).removeprefix("tasks/")).config
    except AssayError as error:
        return str(error)
    ours = {key: _plain(config[key]) for key in _KEYS if config.get(key) is not None}
    theirs = {key: _plain(recorded[key]) for key in _KEYS if recorded.get(key) is not None}
    return difference(ours, theirs)


def _tag(name: str, members: list[str], index: TaskIndex) -> str | None:
    """A tag may have more members here: those that have it from a file they include."""
    entry = index.entries.get(name)
    if entry is None:
        return "there is no such tag"
    missing = sorted(set(members) - set(entry.members)) if entry.kind == "tag" else []
    return f"lacks {missing}" if missing else None


def _plain(value: Any) -> Any:
    if isinstance(value, HelperFunction):
        return value.reference
    if isinstance(value, str) and value.startswith("!function "):
        return value.removeprefix("!function ").rpartition(":")[2]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
