"""Replay small tasks, recorded with lmms_eval 0.7.3, one for each place where it differs from lm_eval.

Recorded with `python -m tools.oracle.record --harness lmms_eval==0.7.3 --include_path tests/parity/small_tasks/lmms_eval/tasks
--data_root DATA --tasks '*'`; the documents are part of the corpus.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.parity.differences import find_unexplained
from tools.oracle.corpus_replay import RecordSelection, replay_in_processes

pytestmark = [pytest.mark.parity, pytest.mark.slow]

FOLDER = Path(__file__).parent / "small_tasks"


def test_small_tasks_give_the_requests_and_results_of_lmms_eval() -> None:
    pytest.importorskip("datasets")
    pytest.importorskip("PIL")
    pytest.importorskip("sacrebleu")
    records = replay_in_processes(
        RecordSelection(corpus=FOLDER / "corpus", task_root=FOLDER / "lmms_eval"), 1
    )
    assert len(records) == len(list((FOLDER / "lmms_eval" / "tasks").glob("*.yaml")))
    assert find_unexplained(records, {}) == {}
