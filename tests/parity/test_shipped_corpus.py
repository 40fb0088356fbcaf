"""Replay the corpora of this repository: every task family of lm_eval and lmms_eval, every output type, variants and groups.

The task files come from the harness's wheel, which `scripts/check` downloads. `python -m tools.oracle.replay` replays a
corpus by hand; `tools/oracle/README.md` describes how the corpora were recorded.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.parity.differences import find_unexplained
from tools.oracle.checks import RecordChecks
from tools.oracle.corpus import read_records
from tools.oracle.corpus_replay import RecordSelection, replay_in_processes

pytestmark = [pytest.mark.parity, pytest.mark.slow, pytest.mark.timeout(900)]  # a minute of an idle core

CORPORA = Path(__file__).parent / "corpus"
MAX_BYTES = 12_000_000
VARIANTS = {"default", "fs3", "chat", "chat_mt_sys_fs3", "sys_fs2"}

KNOWN_LM_EVAL: dict[str, str] = {}
"""Intended differences; docs/coming-from/lm-eval.md explains them."""

KNOWN_LMMS_EVAL: dict[str, str] = {}
"""Intended differences; docs/coming-from/lmms-eval.md explains them."""


def replay_corpus(harness: str, tasks: Path) -> list[RecordChecks]:
    return replay_in_processes(RecordSelection(corpus=CORPORA / harness, task_root=tasks), 1)


def read_families(harness: str) -> Counter[str]:
    """Return the number of recorded tasks of each family."""
    pattern = "tasks-*.jsonl*" if harness == "lm_eval" else "records-*.jsonl*"
    records = read_records(CORPORA / harness, pattern)
    paths = {record["task"]: record["yaml_relpath"].removeprefix("tasks/") for record in records}
    return Counter(path.partition("/")[0] for path in paths.values())


def test_the_corpora_are_small() -> None:
    assert sum(path.stat().st_size for path in CORPORA.rglob("*") if path.is_file()) <= MAX_BYTES


def test_the_lm_eval_corpus_has_every_output_type_and_variant() -> None:
    records = list(read_records(CORPORA / "lm_eval", "tasks-*.jsonl*"))
    assert {record["variant"] for record in records} == VARIANTS
    output_types = {record["output_type"] for record in records}
    assert output_types == {"generate_until", "loglikelihood", "loglikelihood_rolling", "multiple_choice"}
    assert len(read_families("lm_eval")) >= 150
    assert len(list(read_records(CORPORA / "lm_eval", "groups.jsonl*"))) >= 10


def test_the_lmms_eval_corpus_has_every_output_type_and_modality() -> None:
    records = list(read_records(CORPORA / "lmms_eval", "records-*.jsonl*"))
    assert {"generate_until", "multiple_choice", "generate_visual_cot", "generate_until_agentic"} <= {
        record["output_type"] for record in records
    }
    assert {"image", "video", "audio", "text"} <= {record["modality"] for record in records}
    assert len(read_families("lmms_eval")) >= 280


def test_lm_eval_is_identical(lm_eval_tasks: Path) -> None:
    records = replay_corpus("lm_eval", lm_eval_tasks)
    assert find_unexplained(records, KNOWN_LM_EVAL, "Please install") == {}
    assert_mostly_compared(records, 0.95)


def test_lmms_eval_is_identical(lmms_eval_tasks: Path) -> None:
    records = replay_corpus("lmms_eval", lmms_eval_tasks)
    excuses = ("ImportError", "No module named", "not found in path", "LookupError")
    assert find_unexplained(records, KNOWN_LMMS_EVAL, *excuses) == {}
    assert_mostly_compared(records, 0.6)


def test_guessed_answers_are_those_of_the_harness(lm_eval_tasks: Path) -> None:
    """`mmmu_val_*` guesses with the global generators where it cannot read an answer. These records are counted apart."""
    selection = RecordSelection(
        corpus=CORPORA / "lm_eval", task_root=lm_eval_tasks, task="mmmu_val_architecture_*"
    )
    guessed = [record for record in replay_in_processes(selection, 1) if record.excluded]
    assert len(guessed) == 4
    assert {record.name: record.first for record in guessed if record.first} == {}


def assert_mostly_compared(records: list[RecordChecks], share: float) -> None:
    """Fail when too many records are excused by missing packages."""
    identical = sum(record.first is None for record in records)
    assert identical >= share * len(records), f"only {identical} of {len(records)} records are identical"
