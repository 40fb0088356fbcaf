"""Compare the groups and tags of an lmms_eval corpus: structure only, no scores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.tasks.files.helper_functions import HelperFunction
from assay.tasks.files.index import TaskIndex
from assay.tasks.files.yaml_reader import read_task_file
from tools.oracle.checks import RecordChecks
from tools.oracle.comparison import find_difference

__all__ = ["compare_groups"]

_KEYS = ("group_alias", "task", "aggregate_metric_list", "metadata")


def compare_groups(corpus: Path, root: Path, number: int) -> Iterator[RecordChecks]:
    """Check that every recorded group and tag exists, with its members and metrics."""
    path = corpus / "groups.json"
    if not path.is_file():
        return
    recorded = json.loads(path.read_text("utf-8"))
    index = TaskIndex.build([root])
    for name, group in recorded.get("groups", {}).items():
        number += 1
        yield RecordChecks(
            task=f"group:{name}",
            number=number,
            structure=True,
            requests=_compare_group(name, group, index, root),
        )
    for name, members in recorded.get("tags", {}).items():
        number += 1
        yield RecordChecks(
            task=f"tag:{name}", number=number, structure=True, requests=_compare_tag(name, members, index)
        )


def _compare_group(name: str, recorded: Mapping[str, Any], index: TaskIndex, root: Path) -> str | None:
    entry = index.entries.get(name)
    if entry is None or entry.kind != "group":
        return "group not found"
    try:
        config = read_task_file(root / str(recorded["yaml_relpath"]).removeprefix("tasks/")).config
    except AssayError as error:
        return str(error)
    ours = {key: _simplify(config[key]) for key in _KEYS if config.get(key) is not None}
    theirs = {key: _simplify(recorded[key]) for key in _KEYS if recorded.get(key) is not None}
    return find_difference(ours, theirs)


def _compare_tag(name: str, members: list[str], index: TaskIndex) -> str | None:
    """Compare a tag. More members than recorded are allowed: tasks that inherit the tag from an included file."""
    entry = index.entries.get(name)
    if entry is None:
        return "tag not found"
    missing = sorted(set(members) - set(entry.members)) if entry.kind == "tag" else []
    return f"missing {missing}" if missing else None


def _simplify(value: Any) -> Any:
    if isinstance(value, HelperFunction):
        return value.reference
    if isinstance(value, str) and value.startswith("!function "):
        return value.removeprefix("!function ").rpartition(":")[2]
    if isinstance(value, Mapping):
        return {str(key): _simplify(item) for key, item in value.items()}
    return [_simplify(item) for item in value] if isinstance(value, list) else value
