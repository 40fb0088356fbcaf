"""Check the task file: YAML, keys, types. Invalid keys are dropped so that the other checks can still run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from assay.checks.findings import Findings
from assay.core.errors import AssayError, ErrorGroup
from assay.core.records.specs import TaskSpec
from assay.tasks.files.task_loader import task_from_config
from assay.tasks.files.yaml_aliases import check_depth
from assay.tasks.files.yaml_reader import TaskFile, read_task_file

__all__ = ["PartialTask", "read_partial_task"]

_KEY = re.compile(r"(?:^|[-{,])[ ]*([A-Za-z_]\w*)[ ]*:(?=\s|$)", re.MULTILINE)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class PartialTask:
    """The valid part of a task file."""

    spec: TaskSpec
    invalid_keys: frozenset[str]
    """Invalid top-level keys, which were dropped; `dataset` and `split` if the task names none."""

    def has_valid(self, *keys: str) -> bool:
        """Return whether none of these keys was dropped."""
        return self.invalid_keys.isdisjoint(keys)


def read_partial_task(
    source: Path | TaskFile, overrides: Mapping[str, Any], name: str | None, findings: Findings
) -> PartialTask | None:
    """Read a task file and report its errors; return None if no part of it is usable."""
    try:
        file = source if isinstance(source, TaskFile) else read_task_file(source)
    except AssayError as error:
        findings.add_exception("yaml", error)
        return None
    for path in {str(file.path), *(place.rpartition(":")[0] for place in file.places.values())}:
        for key, line in _find_repeated_keys(path):
            findings.warning(
                "repeated-key",
                f"duplicate key `{key}`; the second value is used",
                f"{path}:{line}, {key}",
                "delete one of them",
            )
    try:
        return PartialTask(task_from_config(file, overrides, name=name), frozenset())
    except AssayError as error:
        findings.add_exception("key", error)
        return _read_without_invalid_keys(file, {**file.config, **overrides}, error)


def _read_without_invalid_keys(
    file: TaskFile, config: dict[str, Any], error: AssayError
) -> PartialTask | None:
    """Read the task without the keys that caused the error."""
    invalid: set[str] = set()
    for problem in error.errors if isinstance(error, ErrorGroup) else (error,):
        key = problem.where.rpartition(", ")[2] if ", " in problem.where else ""
        top = re.split(r"[.\[]", key)[0]
        if top == "task":
            config["task"] = "unnamed"
        elif key:
            _remove_key(config, key, top)
            invalid.add(top)
        elif "dataset" in problem.what:
            config["dataset_path"] = "unnamed"
            invalid.add("dataset")
        else:
            config["test_split"] = "unnamed"
            invalid.add("split")
    try:
        return PartialTask(task_from_config(TaskFile(file.path, config, file.places)), frozenset(invalid))
    except AssayError:
        return None


def _remove_key(config: dict[str, Any], key: str, top: str) -> None:
    """Remove the list entry that is wrong, or the whole key."""
    entry = re.fullmatch(r"\w+\[(\d+)\].*", key)
    if entry and isinstance(config.get(top), list):
        remaining = [item for index, item in enumerate(config[top]) if index != int(entry[1])]
        if remaining:
            config[top] = remaining
            return
    config.pop(top, None)


@lru_cache(maxsize=65_536)
def _find_repeated_keys(path: str) -> tuple[tuple[str, int], ...]:
    """Return (key, line) of keys that appear twice in one mapping. YAML readers silently use the last one."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ()
    if max(Counter(_KEY.findall(text)).values(), default=0) < 2:
        return ()  # fast path: no key name appears twice
    try:
        check_depth(text)
        node = yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError):
        return ()
    return tuple(_iter_repeated_keys(node, set()))


def _iter_repeated_keys(node: Any, seen: set[int]) -> Iterator[tuple[str, int]]:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        known: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in known and key.value != "<<":
                    yield str(key.value), key.start_mark.line + 1
                known.add(key.value)
            yield from _iter_repeated_keys(value, seen)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _iter_repeated_keys(value, seen)
