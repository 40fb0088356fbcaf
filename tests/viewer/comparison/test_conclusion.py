"""The conclusion of a comparison in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from assay.viewer.comparison.conclusion import state_conclusion
from assay.viewer.comparison.records import Comparison, ComparisonRow


def make_row(task: str, difference: float, **changed: Any) -> ComparisonRow:
    margin = changed.pop("margin", 0.04)
    values: dict[str, Any] = {
        "task": task,
        "metric": "acc",
        "pipeline": "none",
        "first": 0.5,
        "second": 0.5 + difference,
        "difference": difference,
        "stderr": margin / 2,
        "low": difference - margin,
        "high": difference + margin,
        "interval_method": "paired",
        "p_value": 0.0045,
        "adjusted_p": 0.0045,
        "test": "exact",
        "differs": False,
        "better": None,
        "detectable": 0.05,
        "documents": 100,
        **changed,
    }
    return ComparisonRow(**values)


def state(*rows: ComparisonRow, models: tuple[str, str] = ("nova-small", "nova-large")) -> str:
    return state_conclusion(
        Comparison(
            first="runs/one",
            second="runs/two",
            first_model=models[0],
            second_model=models[1],
            level=0.95,
            correction="holm",
            rows=rows,
        )
    )


GSM8K = make_row("gsm8k", 0.22, margin=0.13, differs=True, better=True)
WORSE = make_row("ifeval", -0.1, differs=True, better=False, adjusted_p=0.00001)
UNCLEAR = make_row("arc_easy", 0.01)
IDENTICAL = make_row("copy", 0.0, margin=0.0)
BLOCKED = make_row("mmlu", 0.3, blocked=("prompts",))
PERPLEXITY = make_row(
    "wikitext", -1.5, share=False, metric="word_perplexity", differs=True, better=True, margin=0.5
)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            [GSM8K, UNCLEAR],
            "nova-large is better than nova-small on gsm8k by 22.0 points (9.0 to 35.0), p = 0.0045;"
            " no difference seen on arc_easy (±5.0)",
        ),
        (
            [GSM8K, WORSE],
            "nova-large is better than nova-small on gsm8k by 22.0 points (9.0 to 35.0), p = 0.0045;"
            " worse on ifeval by 10.0 points (6.0 to 14.0), p <0.0001",
        ),
        (
            [GSM8K, make_row("gsm8k", 0.3, metric="correct", blocked=("judge",))],
            "nova-large is better than nova-small on gsm8k (acc) by 22.0 points (9.0 to 35.0), p = 0.0045;"
            " not comparable on gsm8k (correct) (different judge)",
        ),
        ([UNCLEAR], "no difference between nova-large and nova-small seen on arc_easy (±5.0)"),
        ([IDENTICAL], "identical scores of nova-large and nova-small on copy"),
        ([BLOCKED], "nova-large and nova-small are not comparable on mmlu (different prompts)"),
        (
            [PERPLEXITY],
            "nova-large is better than nova-small on wikitext by 1.5 word_perplexity (1 to 2), p = 0.0045",
        ),
    ],
    ids=[
        "better and unclear",
        "better and worse",
        "metric with another judge",
        "unclear",
        "identical",
        "not comparable",
        "other unit",
    ],
)
def test_the_sentence_names_tasks_sizes_and_certainty(rows: list[ComparisonRow], sentence: str) -> None:
    assert state(*rows) == sentence


def test_runs_of_one_model_are_named_by_run_and_many_tasks_are_counted() -> None:
    rows = [make_row(f"task{number}", 0.01) for number in range(7)]
    assert state(*rows, models=("nova", "nova")) == (
        "no difference between two and one seen on task0 (±5.0), task1 (±5.0), task2 (±5.0), task3 (±5.0) and 3 more"
    )
