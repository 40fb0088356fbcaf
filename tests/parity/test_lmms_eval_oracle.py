"""What lmms-eval recorded, done again: a task of every family. The whole corpus is replayed by
`python -m assay.testing.oracle`; its numbers are in `docs/coming-from/lmms-eval.md`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.parity.replayed import unexplained

from assay.testing.oracle.replay import Wanted, replay_in_processes

pytestmark = [pytest.mark.parity, pytest.mark.slow]

KNOWN = {"aime24_figures": "requests"}
"""Differences we mean; docs/coming-from/lmms-eval.md says why."""

NOT_INSTALLED = (
    "ImportError",
    "No module named",
    "not found in path",  # java, for captions
    "LookupError",  # data of nltk
)


@pytest.fixture(autouse=True)
def needs_packages() -> None:
    missing = [name for name in ("datasets", "loguru", "zstandard") if find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def test_a_task_of_every_family_is_identical(lmms_eval_corpus: Path, lmms_eval_tasks: Path) -> None:
    records = replay_in_processes(Wanted(corpus=lmms_eval_corpus, task_root=lmms_eval_tasks, per_family=1), 2)
    assert len(records) > 200
    assert unexplained(records, KNOWN, *NOT_INSTALLED) == {}
    identical = sum(checks.first is None for checks in records)
    assert identical >= 0.6 * len(records), "too many tasks need packages that are not installed"


def test_groups_and_tags_are_identical(lmms_eval_corpus: Path, lmms_eval_tasks: Path) -> None:
    wanted = Wanted(corpus=lmms_eval_corpus, task_root=lmms_eval_tasks, task="[gt]*:*")
    records = [checks for checks in replay_in_processes(wanted, 1) if checks.structure]
    assert len(records) >= 200
    assert unexplained(records, KNOWN, *NOT_INSTALLED) == {}
