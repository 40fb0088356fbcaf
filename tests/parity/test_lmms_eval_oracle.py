"""Replay some tasks of the large recorded lmms_eval corpus. `test_shipped_corpus.py` replays every family.

`python -m tools.oracle.replay` replays the whole corpus; `docs/coming-from/lmms-eval.md` has its numbers.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.parity.differences import find_unexplained
from tools.oracle.corpus_replay import RecordSelection, replay_in_processes

pytestmark = [pytest.mark.parity, pytest.mark.slow]

KNOWN: dict[str, str] = {}
"""Intended differences; docs/coming-from/lmms-eval.md explains them."""

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


def test_some_tasks_are_identical(lmms_eval_corpus: Path, lmms_eval_tasks: Path) -> None:
    records = replay_in_processes(
        RecordSelection(corpus=lmms_eval_corpus, task_root=lmms_eval_tasks, per_family=1, every=6), 1
    )
    assert len(records) > 32
    assert find_unexplained(records, KNOWN, *NOT_INSTALLED) == {}
    identical = sum(checks.first is None for checks in records)
    assert identical >= 0.6 * len(records), "too many tasks need packages that are not installed"


def test_groups_and_tags_are_identical(lmms_eval_corpus: Path, lmms_eval_tasks: Path) -> None:
    selection = RecordSelection(corpus=lmms_eval_corpus, task_root=lmms_eval_tasks, task="[gt]*:*")
    records = [checks for checks in replay_in_processes(selection, 1) if checks.structure]
    assert len(records) >= 200
    assert find_unexplained(records, KNOWN, *NOT_INSTALLED) == {}
