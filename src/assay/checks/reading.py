"""The task file itself: YAML, keys, types. What can be read is handed on, so that its other faults are found too."""

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
from assay.core.errors import AssayError, Problems
from assay.core.specs import TaskSpec
from assay.tasks.load import task_from_config
from assay.tasks.yaml_reader import TaskFile, read_task_file

__all__ = ["Reading", "read_spec"]

_KEY = re.compile(r"(?:^|[-{,])[ ]*([A-Za-z_]\w*)[ ]*:(?=\s|$)", re.MULTILINE)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Reading:
    """A task as far as it could be read."""

    spec: TaskSpec
    left_out: frozenset[str]
    """Top-level keys that are wrong and were left out; `dataset` and `split` where the task names none."""

    def reads(self, *keys: str) -> bool:
        """Whether all of these keys are as the file has them."""
        return self.left_out.isdisjoint(keys)


def read_spec(
    source: Path | TaskFile, overrides: Mapping[str, Any], name: str | None, findings: Findings
) -> Reading | None:
    """The task a file describes, with every fault of the file found; None when there is nothing to go on with."""
    try:
        file = source if isinstance(source, TaskFile) else read_task_file(source)
    except AssayError as error:
        findings.raised("yaml", error)
        return None
    for path in {str(file.path), *(place.rpartition(":")[0] for place in file.places.values())}:
        for key, line in _repeated_keys(path):
            findings.warning(
                "repeated-key",
                f"`{key}` is written twice; the second one counts",
                f"{path}:{line}, {key}",
                "delete one of them",
            )
    try:
        return Reading(task_from_config(file, overrides, name=name), frozenset())
    except AssayError as error:
        findings.raised("key", error)
        return _rest(file, {**file.config, **overrides}, error)


def _rest(file: TaskFile, config: dict[str, Any], error: AssayError) -> Reading | None:
    """The task without what is wrong about it."""
    left_out: set[str] = set()
    for problem in error.problems if isinstance(error, Problems) else (error,):
        key = problem.where.rpartition(", ")[2] if ", " in problem.where else ""
        top = re.split(r"[.\[]", key)[0]
        if top == "task":
            config["task"] = "unnamed"
        elif key:
            _leave_out(config, key, top)
            left_out.add(top)
        elif "dataset" in problem.what:
            config["dataset_path"] = "unnamed"
            left_out.add("dataset")
        else:
            config["test_split"] = "unnamed"
            left_out.add("split")
    try:
        return Reading(task_from_config(TaskFile(file.path, config, file.places)), frozenset(left_out))
    except AssayError:
        return None


def _leave_out(config: dict[str, Any], key: str, top: str) -> None:
    """Take out an entry of a list where only that is wrong, else the whole key."""
    entry = re.fullmatch(r"\w+\[(\d+)\].*", key)
    if entry and isinstance(config.get(top), list):
        kept = [item for at, item in enumerate(config[top]) if at != int(entry[1])]
        if kept:
            config[top] = kept
            return
    config.pop(top, None)


@lru_cache(maxsize=65_536)
def _repeated_keys(path: str) -> tuple[tuple[str, int], ...]:
    """(key, line) of keys that come twice in one mapping of a file. YAML readers keep the last without a word."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ()
    if max(Counter(_KEY.findall(text)).values(), default=0) < 2:
        return ()  # most files: nothing to parse
    try:
        node = yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError):
        return ()
    return tuple(_repeated(node, set()))


def _repeated(node: Any, seen: set[int]) -> Iterator[tuple[str, int]]:
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
            yield from _repeated(value, seen)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _repeated(value, seen)
