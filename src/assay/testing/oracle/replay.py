"""A whole corpus, or one worker's share of it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.sandboxes.program_runner import allowed
from assay.tasks.index import TaskIndex
from assay.testing.oracle.checks import Checks
from assay.testing.oracle.corpus import find_corpus, read_records
from assay.testing.oracle.groups import leaf_record, replay_group
from assay.testing.oracle.lm_eval import Splits, datasets_of, replay_record, tasks_folder
from assay.testing.oracle.lmms_eval import LmmsReplay
from assay.testing.oracle.lmms_groups import compare_groups

__all__ = ["Wanted", "replay", "replay_in_processes"]

_AFTER_TASKS = 10_000_000
"""Groups are listed after all tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which records of a corpus to replay, and which share of them is one worker's."""

    corpus: Path
    task_root: Path
    family: str = ""
    task: str = ""
    every: int = 1
    per_family: int = 0
    """Only so many tasks of each top folder, and no groups; 0: all."""

    share: int = 0
    shares: int = 1

    def has(self, record: Mapping[str, Any], name: str, number: int) -> bool:
        """Whether a record is asked for, whoever replays it."""
        if self.task and not fnmatchcase(name, self.task):
            return False
        if self.family and not _place(record).startswith(f"{self.family}/"):
            return False
        return number % self.every == 0


def _place(record: Mapping[str, Any]) -> str:
    """A record's task file, relative to the task folder."""
    return str(record.get("yaml_relpath", "")).removeprefix("tasks/")


def replay(wanted: Wanted) -> Iterator[Checks]:
    """The records of one share, done again and compared: tasks in order, then groups."""
    if find_corpus(wanted.corpus) == "lmms_eval":
        return _replay_lmms(wanted)
    return _replay_lm(wanted)


def _replay_lmms(wanted: Wanted) -> Iterator[Checks]:
    root = tasks_folder(wanted.task_root.resolve(), "lmms_eval")
    replayed = LmmsReplay(wanted.corpus.resolve(), root)
    seen = Counter[str]()
    try:
        for number, record in enumerate(read_records(wanted.corpus.resolve(), "records-*.jsonl*")):
            family = _place(record).partition("/")[0]
            seen[family] += 1
            if wanted.per_family and seen[family] > wanted.per_family:
                continue
            if number % wanted.shares == wanted.share and wanted.has(record, record["task"], number):
                yield replayed.record(record, number)
    finally:
        replayed.close()
    if wanted.share == 0 and not wanted.per_family and not wanted.family:
        for checks in compare_groups(wanted.corpus.resolve(), root, _AFTER_TASKS):
            if wanted.has({}, checks.task, checks.number):
                yield checks


def _replay_lm(wanted: Wanted) -> Iterator[Checks]:
    root = tasks_folder(wanted.task_root)
    groups = _groups(wanted)
    needed = {leaf_record(task) for _, group in groups for task in group["tasks"]}
    leaves: dict[str, Mapping[str, Any]] = {}
    default: Mapping[str, Any] | None = None
    made: list[Splits] = []

    def splits() -> Splits:
        if not made:
            made.append(datasets_of(default["splits"] if default is not None else {}))
        return made[0]

    family = ""
    tasks, seen = -1, Counter[str]()
    for number, record in enumerate(read_records(wanted.corpus, "tasks-*.jsonl*")):
        if record.get("splits") is not None:
            default, tasks = record, tasks + 1
            family = str(record.get("yaml_relpath", "")).partition("/")[0]
            seen[family] += 1
            made.clear()
            if record["task"] in needed:
                leaves[record["task"]] = record
        if wanted.per_family and seen[family] > wanted.per_family:
            continue
        if tasks % wanted.shares == wanted.share and wanted.has(record, record["task"], number):
            yield replay_record(record, root, splits, number)
    if groups:
        index = TaskIndex.build([root])
        leaf_splits = lru_cache(maxsize=512)(lambda name: datasets_of(leaves[name]["splits"]))
        for number, group in groups:
            yield replay_group(group, index, leaves, leaf_splits, _AFTER_TASKS + number)


def _groups(wanted: Wanted) -> list[tuple[int, dict[str, Any]]]:
    """This share's groups; shares get every n-th of them, as big and small ones come mixed."""
    if wanted.per_family:
        return []
    records = enumerate(read_records(wanted.corpus, "groups.jsonl*"))
    chosen = [(at, one) for at, one in records if wanted.has(one, f"group:{one['group']}", at)]
    return chosen[wanted.share :: wanted.shares]


def replay_in_processes(wanted: Wanted, jobs: int) -> list[Checks]:
    """Every record wanted, spread over processes, in the order of the corpus.

    Workers are new interpreters with a fixed hash seed, as the recording had: some tasks look at the order of sets.
    Programs among the recorded answers are run in a sandbox.
    """
    os.environ |= {"PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"}
    shares = [
        Wanted(**{**{key: getattr(wanted, key) for key in Wanted.__slots__}, "share": share, "shares": jobs})
        for share in range(jobs)
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=context) as pool:
        found = [checks for share in pool.map(_work, shares) for checks in share]
    return sorted(found, key=lambda checks: checks.number)


def _work(wanted: Wanted) -> list[Checks]:
    """One worker's share. What helper files print goes to the error stream, their warnings nowhere."""
    import warnings

    import datasets

    datasets.disable_progress_bars()
    _skip_fingerprints()
    logging.disable(logging.WARNING)
    _silence_loguru()
    warnings.simplefilter("ignore")
    with redirect_stdout(sys.stderr), allowed():
        return list(replay(wanted))


def _silence_loguru() -> None:
    """Helpers of lmms-eval log with loguru, each document on a line."""
    try:
        from loguru import logger
    except ModuleNotFoundError:
        return
    logger.remove()


def _skip_fingerprints() -> None:
    """`datasets` hashes every table and function for its cache on disk. Nothing here is cached, and the hashing takes
    half of a replay's time: a random name does, as the library itself uses where it cannot hash."""
    from datasets import arrow_dataset, fingerprint

    random_name = fingerprint.generate_random_fingerprint
    arrow_dataset.generate_fingerprint = lambda *_: random_name()
    for module in (arrow_dataset, fingerprint):
        if hasattr(module, "update_fingerprint"):
            module.update_fingerprint = lambda *_: random_name()
