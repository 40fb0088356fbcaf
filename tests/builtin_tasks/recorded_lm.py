"""What lm-evaluation-harness recorded of the tasks that ship with Assay, and whether ours do the same."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from tools.oracle.checks import RecordChecks
from tools.oracle.corpus import read_records
from tools.oracle.lm_eval_groups import leaf_record_name, replay_group
from tools.oracle.lm_eval_tasks import build_datasets, replay_record

from assay.tasks.files.index import TaskIndex, builtin_root

PROJECT = Path(__file__).parents[2]
_NAME = re.compile(r'\{"task": "([^"]+)"')


def shared_folder(*inside: str) -> Path:
    """A folder of the shared material: ASSAY_SHARED, else `shared` beside the project."""
    folder = Path(os.environ.get("ASSAY_SHARED") or PROJECT.parent / "shared").joinpath(*inside)
    if not folder.is_dir():
        pytest.skip(f"no {'/'.join(inside)}: set ASSAY_SHARED to the folder that holds it")
    return folder


@lru_cache(maxsize=1)
def builtin_index() -> TaskIndex:
    return TaskIndex.build([builtin_root()])


@lru_cache(maxsize=1)
def recorded_lines() -> dict[str, list[str]]:
    """The records of our names, all variants of each; lines of other tasks are not parsed."""
    folder = shared_folder("oracle", "lm_eval")
    zstandard = pytest.importorskip("zstandard", reason="the corpus is compressed with zstandard")
    names = set(builtin_index().names("task"))
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob("tasks-*.jsonl.zst")):
        with path.open("rb") as file:
            reader = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(file)
            for line in io.TextIOWrapper(reader, encoding="utf-8"):
                name = _NAME.match(line)
                if name is not None and name[1] in names:
                    found.setdefault(name[1], []).append(line)
    return found


def recorded_splits(task: str) -> Any:
    """The recorded documents of a task as the `datasets` library would give them."""
    return build_datasets(json.loads(recorded_lines()[task][0])["splits"])


def replayed(task: str, variants: int | None = None) -> Iterator[RecordChecks]:
    """Our task of this name on the recorded documents, once per recorded variant or the first of them."""
    entry = builtin_index().entries[task]
    splits = recorded_splits(task)
    for line in recorded_lines()[task][:variants]:
        record = json.loads(line)
        record["yaml_relpath"] = str(Path(entry.file).relative_to(builtin_root()))
        yield replay_record(record, builtin_root(), lambda: splits)


def replayed_group(group: str) -> RecordChecks:
    """Our group of this name on the recorded documents of its tasks."""
    records = read_records(shared_folder("oracle", "lm_eval"), "groups.jsonl*")
    record = next(one for one in records if one["group"] == group)
    leaves = {name: json.loads(recorded_lines()[name][0]) for name in map(leaf_record_name, record["tasks"])}
    return replay_group(record, builtin_index(), leaves, lambda name: recorded_splits(name))
