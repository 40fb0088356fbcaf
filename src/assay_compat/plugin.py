"""What Assay asks of a compatibility layer: to make foreign imports work, to name modules of foreign trees, to open tasks
that are written as foreign classes, and to read foreign result files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.core.specs import TaskSpec
from assay.store.foreign_runs import ForeignRun
from assay.store.sheets import SheetSource
from assay.tasks.task import Rendering, Task
from assay_compat.finder import ForeignFinder
from assay_compat.gaps import GapFinder, serve_metrics

__all__ = [
    "install",
    "loading",
    "missing_judge",
    "module_name",
    "open_foreign_run",
    "open_results",
    "open_task",
]

_FOLDER = Path(__file__).parent / "foreign"
_FINDER = ForeignFinder(_FOLDER, ("lm_eval", "lmms_eval"))
_GAPS = GapFinder(_FOLDER)


def install() -> None:
    """Answer imports of foreign names from here on. Harmless when repeated."""
    for finder in (_GAPS, _FINDER):
        if finder not in sys.meta_path:
            sys.meta_path.insert(0, finder)
    if "evaluate" in sys.modules:
        serve_metrics(sys.modules["evaluate"])


def module_name(path: Path) -> str | None:
    """The name a helper file has in its own harness: `…/lm_eval/tasks/a/b.py` is `lm_eval.tasks.a.b`."""
    parts = path.parts
    for package in _FINDER.packages:
        for at in range(len(parts) - 2):
            if parts[at] == package and parts[at + 1] == "tasks":
                _FINDER.add_tasks(package, Path(*parts[: at + 2]))
                return ".".join((package, "tasks", *parts[at + 2 : -1], path.stem))
    return None


@contextmanager
def loading(path: Path) -> Iterator[None]:
    """Around the loading of a helper file."""
    with _GAPS.loading(path):
        yield


def missing_judge(path: Path) -> str | None:
    """None when a helper file asks no judge through `lmms_eval.llm_judge`; else what it lacks to ask one."""
    source = path.read_bytes()
    if b"lmms_eval.llm_judge" not in source and b"lmms_eval.verifiers" not in source:
        return None
    from assay_compat.llm_judge.endpoints import missing_endpoint

    return missing_endpoint()


def open_task(spec: TaskSpec, rendering: Rendering | None, splits: Mapping[str, Any] | None) -> Task | None:
    """A task written as a class of lm_eval's or lmms_eval's kind; None for a class of some other kind."""
    from assay_compat.class_tasks import ClassTask, is_foreign_class
    from assay_compat.lmms_tasks import is_lmms_class, open_lmms_task

    if is_lmms_class(spec.config["class"]):
        return open_lmms_task(spec, rendering, splits)
    return ClassTask(spec, rendering, splits) if is_foreign_class(spec.config["class"]) else None


def open_results(path: Path) -> SheetSource | None:
    """The result files of lm-eval or lmms-eval at a place; None when there are none."""
    from assay_compat.result_files import open_results as opened

    return opened(path)


def open_foreign_run(path: Path) -> ForeignRun | None:
    """The same as a run that can be kept; None when there is none."""
    from assay_compat.foreign_runs import open_foreign_run as opened

    return opened(path)
