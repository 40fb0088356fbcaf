"""Small task folders, written by each test into its own directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from assay.core.records.specs import TaskSpec
from assay.tasks.files.task_loader import task_from_config
from assay.tasks.files.yaml_reader import TaskFile
from assay.tasks.task import RenderingOptions, Task

ROWS = [{"q": f"Q{number}", "a": f"A{number}"} for number in range(6)]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """`write("folder/name.yaml", text)`: texts lose their common indentation, bytes stay as they are."""

    def write_file(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dedent(content).encode() if isinstance(content, str) else content)
        return path

    return write_file


@pytest.fixture
def make_spec(tmp_path: Path) -> Callable[..., TaskSpec]:
    """`make_spec(doc_to_text="q", …)`: a task as if its YAML had said so, with local data files per split."""

    def make(
        rows: Sequence[Mapping[str, Any]] | None = None,
        splits: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        **config: Any,
    ) -> TaskSpec:
        given = dict(splits or {})
        given.setdefault("test", ROWS if rows is None else rows)
        files = {}
        for split, content in given.items():
            path = tmp_path / f"{split}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in content), encoding="utf-8")
            files[split] = path.name
        defaults: dict[str, Any] = {
            "task": "sums",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": files},
            "test_split": "test",
            "doc_to_text": "q",
            "doc_to_target": "a",
        }
        return task_from_config(TaskFile(tmp_path / "sums.yaml", {**defaults, **config}))

    return make


@pytest.fixture
def make_task(make_spec: Callable[..., TaskSpec]) -> Callable[..., Task]:
    """`make_task(rendering={"limit": 2}, …)`: as `make_spec`, bound to its data."""

    def make(*arguments: Any, rendering: Mapping[str, Any] | None = None, **config: Any) -> Task:
        return Task(make_spec(*arguments, **config), RenderingOptions(**(rendering or {})))

    return make
