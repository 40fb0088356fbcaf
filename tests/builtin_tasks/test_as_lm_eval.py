"""Text benchmarks ask, read and score as the tasks of the same names in lm-evaluation-harness do."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from tests.builtin_tasks.recorded_lm import builtin_index, recorded_lines, replayed
from tests.working_sandbox import working_sandbox

from assay.sandboxes.program_runner import allow_programs

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore:the target -100"),  # recorded: no choice is right
]

OWN = (
    "bfcl_",
    "chartqa",
    "firststeps_",
    "mathvision",
    "mme",
    "mmmu",
    "mmsearch",
    "quickstart_",
    "seedbench",
    "shopdesk",
    "tau_bench_",
    "videomme",
)
"""Not text benchmarks of lm-eval; `chartqa` there is another task of this name."""

UNRECORDED = ("hendrycks_math", "openbookqa", "winogrande")
"""Not in the corpus: `tests/parity/test_builtin_tasks.py` compares them with lm-eval's files instead."""

IN_GROUPS = tuple(f"minerva_math_{subject}" for subject in ("c", "g", "i", "n", "p"))
"""Slow, and replayed with their group in `test_math.py`."""

TASKS = [
    name for name in builtin_index().names("task") if not name.startswith((*OWN, *UNRECORDED, *IN_GROUPS))
]
NEEDS = {
    "truthfulqa_gen": ("sacrebleu", "rouge_score"),
    "ifeval": ("langdetect",),
    "minerva_": ("sympy", "antlr4", "math_verify"),
}


@pytest.mark.parametrize("task", TASKS)
def test_requests_answers_metrics_and_results_are_those_recorded(task: str) -> None:
    needed = next((packages for name, packages in NEEDS.items() if task.startswith(name)), ())
    missing = [package for package in needed if find_spec(package) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    assert task in recorded_lines(), f"{task} was not recorded under this name"
    variants = 1 if task.startswith(("humaneval", "mbpp")) else None  # a sandbox takes its time
    chosen = working_sandbox()
    with allow_programs(chosen["sandbox"], i_know=True, **chosen["sandbox_args"]):
        assert {checks.name: checks.first for checks in replayed(task, variants) if checks.first} == {}
