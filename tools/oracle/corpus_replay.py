"""Replay a whole corpus, or one worker's share of it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

from assay.sandboxes.program_runner import allow_programs
from assay.tasks.files.index import TaskIndex
from tools.oracle.checks import RecordChecks
from tools.oracle.corpus import detect_harness, read_records
from tools.oracle.lm_eval_groups import leaf_record_name, replay_group
from tools.oracle.lm_eval_tasks import Splits, build_datasets, find_tasks_folder, replay_record
from tools.oracle.lm_eval_versions import apply_version
from tools.oracle.lmms_eval_groups import compare_groups
from tools.oracle.lmms_eval_tasks import LmmsReplay

__all__ = ["RecordSelection", "replay", "replay_in_processes"]

_FIRST_GROUP_NUMBER = 10_000_000
"""Groups are listed after all tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSelection:
    """The records of a corpus to replay, and one worker's share of them."""

    corpus: Path
    task_root: Path
    family: str = ""
    task: str = ""
    every: int = 1
    per_family: int = 0
    """Number of tasks of each family to replay, without groups; 0: all."""

    as_version: str = ""
    """Version of lm_eval whose semantics apply; empty: those of Assay."""

    share: int = 0
    shares: int = 1

    def includes(self, record: Mapping[str, Any], name: str, number: int) -> bool:
        """Return whether a record is selected, in whichever share it is."""
        if self.task and not fnmatchcase(name, self.task):
            return False
        if self.family and not _read_task_path(record).startswith(f"{self.family}/"):
            return False
        return number % self.every == 0


def _read_task_path(record: Mapping[str, Any]) -> str:
    """Return a record's task file, relative to the task folder."""
    return str(record.get("yaml_relpath", "")).removeprefix("tasks/")


def replay(selection: RecordSelection) -> Iterator[RecordChecks]:
    """Repeat and compare the records of one share: tasks in order, then groups."""
    if detect_harness(selection.corpus) == "lmms_eval":
        return _replay_lmms_eval(selection)
    return _replay_lm_eval(selection)


def _replay_lmms_eval(selection: RecordSelection) -> Iterator[RecordChecks]:
    root = find_tasks_folder(selection.task_root.resolve(), "lmms_eval")
    corpus = selection.corpus.resolve()
    lmms_replay = LmmsReplay(corpus, root)
    tasks_per_family = Counter[str]()
    try:
        for number, record in enumerate(read_records(corpus, "records-*.jsonl*")):
            family = _read_task_path(record).partition("/")[0]
            tasks_per_family[family] += 1
            if selection.per_family and tasks_per_family[family] > selection.per_family:
                continue
            if number % selection.shares == selection.share and selection.includes(
                record, record["task"], number
            ):
                yield lmms_replay.replay_record(record, number)
    finally:
        lmms_replay.close()
    if selection.share == 0 and not selection.per_family and not selection.family:
        for checks in compare_groups(corpus, root, _FIRST_GROUP_NUMBER):
            if selection.includes({}, checks.task, checks.number):
                yield checks


def _replay_lm_eval(selection: RecordSelection) -> Iterator[RecordChecks]:
    root = find_tasks_folder(selection.task_root)
    groups = _select_groups(selection)
    needed = {leaf_record_name(task) for _, group in groups for task in group["tasks"]}
    leaves: dict[str, Mapping[str, Any]] = {}
    default: Mapping[str, Any] | None = None
    cached: list[Splits] = []

    def load_splits() -> Splits:
        if not cached:
            cached.append(build_datasets(default["splits"] if default is not None else {}))
        return cached[0]

    family = ""
    task_number, tasks_per_family = -1, Counter[str]()
    for number, record in enumerate(read_records(selection.corpus, "tasks-*.jsonl*")):
        if record.get("splits") is not None:
            default, task_number = record, task_number + 1
            family = str(record.get("yaml_relpath", "")).partition("/")[0]
            tasks_per_family[family] += 1
            cached.clear()
            if record["task"] in needed:
                leaves[record["task"]] = record
        if selection.per_family and tasks_per_family[family] > selection.per_family:
            continue
        if task_number % selection.shares == selection.share and selection.includes(
            record, record["task"], number
        ):
            yield replay_record(record, root, load_splits, number)
    if groups:
        index = TaskIndex.build([root])
        load_leaf_splits = lru_cache(maxsize=512)(lambda name: build_datasets(leaves[name]["splits"]))
        for number, group in groups:
            yield replay_group(group, index, leaves, load_leaf_splits, _FIRST_GROUP_NUMBER + number)


def _select_groups(selection: RecordSelection) -> list[tuple[int, dict[str, Any]]]:
    """Return this share's groups: every n-th of them, because large and small ones are mixed."""
    if selection.per_family:
        return []
    records = enumerate(read_records(selection.corpus, "groups.jsonl*"))
    selected = [
        (number, group)
        for number, group in records
        if selection.includes(group, f"group:{group['group']}", number)
    ]
    return selected[selection.share :: selection.shares]


def replay_in_processes(selection: RecordSelection, jobs: int) -> list[RecordChecks]:
    """Replay every selected record in several processes and return the checks in the order of the corpus.

    Workers are new interpreters with the hash seed of the recording: some tasks depend on the order of sets.
    Programs among the recorded responses run in a sandbox.
    """
    shares = [replace(selection, share=share, shares=jobs) for share in range(jobs)]
    context = multiprocessing.get_context("spawn")
    with (
        _set_environment(PYTHONHASHSEED="0", TOKENIZERS_PARALLELISM="false"),
        ProcessPoolExecutor(max_workers=jobs, mp_context=context) as pool,
    ):
        checks = [record for share in pool.map(_replay_share, shares) for record in share]
    return sorted(checks, key=lambda record: record.number)


@contextmanager
def _set_environment(**variables: str) -> Iterator[None]:
    """Set environment variables for the processes that start in the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _replay_share(selection: RecordSelection) -> list[RecordChecks]:
    """Replay one worker's share. Helper files print to standard error; their warnings are dropped.

    Helper functions that start processes (`cruxeval`) fork them, as they do in the harness; the children of a spawned
    worker would be spawned too and could not import the helper file.
    """
    import warnings

    import datasets

    multiprocessing.set_start_method("fork", force=True)
    datasets.disable_progress_bars()
    _disable_fingerprints()
    logging.disable(logging.WARNING)
    _silence_loguru()
    warnings.simplefilter("ignore")
    _count_alarms_in_processor_time()
    if selection.as_version:
        apply_version(selection.as_version)
    with redirect_stdout(sys.stderr), allow_programs():
        return list(replay(selection))


def _count_alarms_in_processor_time() -> None:
    """Make `signal.alarm` of helper files count processor time.

    Helpers give up after a few seconds. On a busy machine, code that was fast in the recording would take longer than that.
    """

    def forward(_: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGALRM)
        if callable(handler):
            handler(signal.SIGALRM, frame)

    def alarm(seconds: float) -> int:
        return round(signal.setitimer(signal.ITIMER_PROF, seconds)[0])

    signal.signal(signal.SIGPROF, forward)
    signal.alarm = alarm


def _silence_loguru() -> None:
    """Drop what helper files of lmms_eval log: a line per document."""
    try:
        from loguru import logger
    except ModuleNotFoundError:
        return
    logger.remove()


def _disable_fingerprints() -> None:
    """Give datasets random fingerprints, as the library does for what it cannot hash.

    Hashing every table and function for the disk cache takes half of a replay's time, and nothing is cached here.
    """
    from datasets import arrow_dataset, fingerprint

    random_fingerprint = fingerprint.generate_random_fingerprint
    arrow_dataset.generate_fingerprint = lambda *_: random_fingerprint()
    for module in (arrow_dataset, fingerprint):
        if hasattr(module, "update_fingerprint"):
            module.update_fingerprint = lambda *_: random_fingerprint()
