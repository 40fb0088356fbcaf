"""Hooks that Assay calls through the entry point group `assay.compat`: import names of other harnesses, module names of
their task trees, class tasks, model classes, and result files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.core.ports import Model
from assay.core.records.specs import TaskSpec
from assay.store.documents.score_tables import ScoreTableSource
from assay.store.runs.imported_runs import ImportedRun
from assay.tasks.task import RenderingOptions, Task
from assay_compat.import_finders import HarnessFinder, ThirdPartyFinder, patch_evaluate

__all__ = [
    "find_model",
    "has_results",
    "install",
    "loading",
    "missing_judge",
    "module_name",
    "open_results",
    "open_task",
    "read_imported_run",
]

_SHIMS = Path(__file__).parent / "shims"
_HARNESS_FINDER = HarnessFinder(_SHIMS, ("lm_eval", "lmms_eval"))
_THIRD_PARTY_FINDER = ThirdPartyFinder(_SHIMS)


def install() -> None:
    """Install the import finders. Repeated calls have no effect."""
    for finder in (_THIRD_PARTY_FINDER, _HARNESS_FINDER):
        if finder not in sys.meta_path:
            sys.meta_path.insert(0, finder)
    if "evaluate" in sys.modules:
        patch_evaluate(sys.modules["evaluate"])


def module_name(path: Path) -> str | None:
    """Return the module name of a helper file in its own harness: `lm_eval.tasks.a.b` for `…/lm_eval/tasks/a/b.py`."""
    parts = path.parts
    for package in _HARNESS_FINDER.packages:
        for index in range(len(parts) - 2):
            if parts[index] == package and parts[index + 1] == "tasks":
                _HARNESS_FINDER.add_tasks(package, Path(*parts[: index + 2]))
                return ".".join((package, "tasks", *parts[index + 2 : -1], path.stem))
    return None


@contextmanager
def loading(path: Path) -> Iterator[None]:
    """Activate the shims for missing packages while a helper file is loaded."""
    with _THIRD_PARTY_FINDER.loading(path):
        yield


def missing_judge(path: Path) -> str | None:
    """Return what is missing to call a judge through `lmms_eval.llm_judge`, or None if the helper file does not use it."""
    source = path.read_bytes()
    if b"lmms_eval.llm_judge" not in source and b"lmms_eval.verifiers" not in source:
        return None
    from assay_compat.llm_judge.endpoints import find_missing_setting

    return find_missing_setting()


def open_task(
    spec: TaskSpec, rendering: RenderingOptions | None, splits: Mapping[str, Any] | None
) -> Task | None:
    """Open a task that derives from a task class of lm_eval or lmms_eval; return None for other classes."""
    from assay_compat.lm_eval_class_task import ClassTask, is_lm_eval_class
    from assay_compat.lmms_eval_class_task import is_lmms_class, open_lmms_task

    if is_lmms_class(spec.config["class"]):
        return open_lmms_task(spec, rendering, splits)
    return ClassTask(spec, rendering, splits) if is_lm_eval_class(spec.config["class"]) else None


def open_results(path: Path) -> ScoreTableSource | None:
    """Open result files of lm-eval or lmms-eval; return None if there are none."""
    from assay_compat.result_files import open_results as open_result_files

    return open_result_files(path)


def has_results(path: Path) -> bool:
    """Whether a path has result files of lm-eval or lmms-eval."""
    from assay_compat.result_files import has_results as has_result_files

    return has_result_files(path)


def read_imported_run(path: Path) -> ImportedRun | None:
    """Read result files as a run that Assay can store; return None if there are none."""
    from assay_compat.imported_run import read_imported_run as read_run

    return read_run(path)


def find_model(name: str) -> Callable[..., Model] | None:
    """Return a factory for a model class of lm_eval or lmms_eval; None if the name is not one of theirs."""
    from assay_compat.models.registry import find_model as find_model_class

    return find_model_class(name)
