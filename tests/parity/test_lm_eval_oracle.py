"""What lm-evaluation-harness recorded, done again: a few tasks of every family. The whole corpus is replayed by
`python -m assay.testing.oracle`; its numbers are in `docs/coming-from/lm-eval.md`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.parity.replayed import unexplained

from assay.testing.oracle.replay import Wanted, replay_in_processes

pytestmark = [pytest.mark.parity, pytest.mark.slow]

KNOWN = {"webqs": "metrics"}
"""Differences we mean; docs/coming-from/lm-eval.md says why."""

NOT_INSTALLED = ("Please install",)


@pytest.fixture(autouse=True)
def needs_datasets() -> None:
    if find_spec("datasets") is None or find_spec("zstandard") is None:
        pytest.skip("not installed: datasets, zstandard")


def test_a_few_tasks_of_every_family_are_identical(lm_eval_corpus: Path, lm_eval_tasks: Path) -> None:
    records = replay_in_processes(Wanted(corpus=lm_eval_corpus, task_root=lm_eval_tasks, per_family=2), 2)
    assert len(records) > 400
    assert unexplained(records, KNOWN, *NOT_INSTALLED) == {}
    identical = sum(checks.first is None for checks in records)
    assert identical >= 0.9 * len(records), "too many tasks need packages that are not installed"


def test_some_groups_are_identical(lm_eval_corpus: Path, lm_eval_tasks: Path) -> None:
    records = replay_in_processes(
        Wanted(corpus=lm_eval_corpus, task_root=lm_eval_tasks, task="group:[wx]*"), 1
    )
    assert len(records) >= 3
    assert unexplained(records, KNOWN, *NOT_INSTALLED) == {}
