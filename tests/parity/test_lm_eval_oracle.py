"""Replay some tasks of the large recorded lm_eval corpus. `test_shipped_corpus.py` replays every family.

`python -m tools.oracle.replay` replays the whole corpus; `docs/coming-from/lm-eval.md` has its numbers.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.parity.differences import find_unexplained
from tools.oracle.corpus_replay import RecordSelection, replay_in_processes

pytestmark = [pytest.mark.parity, pytest.mark.slow]

KNOWN: dict[str, str] = {}
"""Intended differences; docs/coming-from/lm-eval.md explains them."""

NOT_INSTALLED = ("Please install",)


@pytest.fixture(autouse=True)
def needs_datasets() -> None:
    if find_spec("datasets") is None or find_spec("zstandard") is None:
        pytest.skip("not installed: datasets, zstandard")


def test_some_tasks_are_identical(lm_eval_corpus: Path, lm_eval_tasks: Path) -> None:
    records = replay_in_processes(
        RecordSelection(corpus=lm_eval_corpus, task_root=lm_eval_tasks, per_family=2, every=6), 1
    )
    assert len(records) >= 60
    assert find_unexplained(records, KNOWN, *NOT_INSTALLED) == {}
    identical = sum(checks.first is None for checks in records)
    assert identical >= 0.9 * len(records), "too many tasks need packages that are not installed"


def test_some_groups_are_identical(lm_eval_corpus: Path, lm_eval_tasks: Path) -> None:
    records = replay_in_processes(
        RecordSelection(corpus=lm_eval_corpus, task_root=lm_eval_tasks, task="group:[wx]*"), 1
    )
    assert len(records) >= 3
    assert find_unexplained(records, KNOWN, *NOT_INSTALLED) == {}


def test_the_robustness_tasks_and_their_consistency_rates_are_identical(
    lm_eval_corpus: Path, lm_eval_tasks: Path
) -> None:
    records = replay_in_processes(
        RecordSelection(corpus=lm_eval_corpus, task_root=lm_eval_tasks, task="*robustness_agieval_*"), 1
    )
    assert len(records) >= 21
    assert find_unexplained(records, KNOWN, *NOT_INSTALLED) == {}
