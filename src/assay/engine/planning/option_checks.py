"""Check options before any task is loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, ErrorGroup, InvalidOption, OutputError, UnsupportedRequest
from assay.core.options.run_spec import RunSpec
from assay.core.options.stop_rules import parse_stop_rule
from assay.core.records.specs import TaskSpec
from assay.engine.planning.manifests.run_names import get_output_folder
from assay.models import MODELS
from assay.sandboxes.program_runner import ProgramRunner
from assay.store.runs.lookup import DEFAULT_FOLDER, find_run
from assay.tasks.files.index import TaskIndex, find_task_roots
from assay.tasks.files.selection import select_tasks

__all__ = ["check_options", "check_programs", "check_writable", "find_unknown_names"]


def find_unknown_names(settings: Mapping[str, Any]) -> list[AssayError]:
    """Return the errors of the model and the tasks by name, whether or not the other options are valid."""
    problems: list[AssayError] = []
    named = {key: settings[key] for key in ("model", "tasks", "include_path") if key in settings}
    try:
        spec = RunSpec.of(named)
    except AssayError:
        return problems  # reported already

    def look_up(call: Callable[[], object]) -> None:
        try:
            call()
        except ErrorGroup as group:
            problems.extend(group.errors)
        except AssayError as error:
            problems.append(error)

    if isinstance(spec.model, str):
        look_up(lambda: MODELS.get(spec.model, where="--model"))
    if spec.tasks:
        look_up(lambda: select_tasks(spec.tasks, TaskIndex.build(find_task_roots(spec.include_path))))
    return problems


def check_options(spec: RunSpec, folder: Path) -> list[AssayError]:
    """Return all errors in the options; `folder` is the output folder."""
    problems: list[AssayError] = []
    looks: tuple[Callable[[], None], ...] = (
        lambda: check_writable(folder),
        lambda: check_corpus(spec),
        lambda: check_data_root(spec),
        lambda: check_stop_rule(spec),
        lambda: check_workers(spec),
    )
    for look in looks:
        try:
            look()
        except AssayError as error:
            problems.append(error)
    return problems


def check_corpus(spec: RunSpec) -> None:
    """Check that the decontamination corpus exists."""
    path = spec.decontamination_ngrams_path
    if path is not None and not Path(path).exists():
        raise InvalidOption(f"no corpus at `{path}`", where="--decontamination_ngrams_path")


def check_data_root(spec: RunSpec) -> None:
    """Check that `--data_root` exists; otherwise the hub would be used silently."""
    if spec.data_root is not None and not Path(spec.data_root).is_dir():
        raise InvalidOption(
            f"the data folder `{spec.data_root}` does not exist",
            where="--data_root",
            hint="pass a folder with datasets laid out as on the hub",
        )


def check_workers(spec: RunSpec) -> None:
    """Check that Ray is installed."""
    if spec.workers:
        from assay.models.replicas import require_ray  # few runs need it

        require_ray("--workers")


def check_stop_rule(spec: RunSpec) -> None:
    """Check that the baseline run exists."""
    if spec.stop_when is not None and (rule := parse_stop_rule(spec.stop_when)).baseline:
        find_run(rule.baseline, (get_output_folder(spec), Path(DEFAULT_FOLDER)))


def check_writable(folder: Path) -> None:
    """Check that the nearest existing folder is writable, without creating anything."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise OutputError(f"`{existing}` is not a folder", where="--output_path")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OutputError(
            f"the folder `{existing}` is not writable", where="--output_path", hint="choose another folder"
        )


def check_programs(spec: RunSpec, task_spec: TaskSpec, programs: ProgramRunner) -> None:
    """Check that executing code from the model is allowed and that a sandbox works."""
    if task_spec.unsafe_code and not spec.confirm_run_unsafe_code:
        raise UnsupportedRequest(
            f"the task `{task_spec.name}` executes code written by the model",
            where=task_spec.place("unsafe_code"),
            hint="add --confirm_run_unsafe_code to allow it",
        )
    if task_spec.unsafe_code:
        programs.open()
