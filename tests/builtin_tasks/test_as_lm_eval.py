"""Text benchmarks ask, read and score as the tasks of the same names in lm-evaluation-harness do."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from tests.builtin_tasks.recorded_lm import builtin_index, recorded_lines, replayed

from assay.engine.execution import allowed

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore:the target -100"),  # recorded: no choice is right
]

OWN = (
    "chartqa",
    "firststeps_",
    "mathvision",
    "mme",
    "mmmu",
    "mmsearch",
    "quickstart_",
    "seedbench",
    "videomme",
)
"""Not text benchmarks of lm-eval; `chartqa` there is another task of this name."""

UNRECORDED = ("openbookqa", "winogrande")
"""Not in the corpus: `tests/parity/test_builtin_tasks.py` compares them with lm-eval's files instead."""

TASKS = [name for name in builtin_index().names("task") if not name.startswith((*OWN, *UNRECORDED))]
NEEDS = {"truthfulqa_gen": ("sacrebleu", "rouge_score"), "ifeval": ("langdetect",)}


@pytest.mark.parametrize("task", TASKS)
def test_requests_answers_metrics_and_results_are_those_recorded(task: str) -> None:
    missing = [package for package in NEEDS.get(task, ()) if find_spec(package) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    assert task in recorded_lines(), f"{task} was not recorded under this name"
    variants = 1 if task.startswith(("humaneval", "mbpp")) else None  # a sandbox takes its time
    with allowed():
        assert {checks.name: checks.first for checks in replayed(task, variants) if checks.first} == {}
