"""Comparison of two runs with the same prompt variants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.making import make_model, write_task

import assay
from assay.core.errors import UnknownName
from assay.core.records.requests import Request
from assay.stats.comparisons.crossed_pairs import compare_crossed_pairs
from assay.store.runs.run import Run
from assay.viewer.comparison.comparison_table import collect_remarks

COUNT = 40
ROWS = [{"question": f"Say {n}.", "answer": str(n)} for n in range(COUNT)]
VARIANTS = [
    {"name": "please", "doc_to_text": "Please: {{question}}"},
    {"name": "now", "doc_to_text": "Now: {{question}}"},
]


def answer(right: dict[str, int]) -> Any:
    """Answer the first documents correctly, a different number of them with each prompt."""

    def say(request: Request) -> str:
        start = request.prompt.text.partition(" ")[0].rstrip(":")
        return str(request.document) if request.document < right.get(start, right["Say"]) else "no"

    return say


@pytest.fixture(scope="module")
def execute(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("runs")
    path = write_task(
        folder,
        "say",
        ROWS,
        doc_to_text="{{question}}",
        doc_to_target="answer",
        metric_list=[{"metric": "exact_match"}],
        variants=VARIANTS,
    )

    def execute_run(name: str, right: dict[str, int], **options: Any) -> Run:
        return assay.run(
            model=make_model(answer(right), name=name),
            tasks=[str(path)],
            no_cache=True,
            output_path=str(folder / "runs"),
            **options,
        )

    return execute_run


@pytest.fixture(scope="module")
def first(execute: Any) -> Run:
    run: Run = execute("plain", {"Say": 20, "Please": 30, "Now": 20})
    return run


def read_scores(run: Run) -> np.ndarray:
    tasks = run.facts["groups"]["say"]["members"]
    return np.array([[value for *_, value in run.journal.read_verdicts(task)] for task in tasks]).T


def test_the_difference_includes_the_spread_between_prompts(execute: Any, first: Run) -> None:
    second = execute("tuned", {"Say": 28, "Please": 25, "Now": 28})
    found = assay.compare(first, second)
    (row,) = found.rows
    wanted = compare_crossed_pairs(read_scores(first), read_scores(second)).interval
    assert (row.task, row.metric, row.documents) == ("say", "exact_match", COUNT)
    assert row.difference == pytest.approx((8 - 5 + 8) / 3 / COUNT)
    assert (row.low, row.high) == pytest.approx((wanted.low, wanted.high))
    assert row.low < 0 < row.high and not row.differs
    assert row.wins is not None and row.wins + (row.ties or 0) + (row.losses or 0) == COUNT


def test_a_note_says_that_the_winner_changes(execute: Any, first: Run) -> None:
    found = assay.compare(first, execute("tuned", {"Say": 28, "Please": 25, "Now": 28}))
    said = "say: the winner changes with the wording: tuned is ahead with base and now, plain with please"
    assert ("note", said) in collect_remarks(found)
    (row,) = found.rows
    assert [(one.name, one.winner) for one in row.variants] == [
        ("base", "second"),
        ("please", "first"),
        ("now", "second"),
    ]
    (plain,) = found.as_json()["rows"]
    assert plain["variants"][1] == {
        "name": "please", "first": 0.75, "second": 0.625, "difference": -0.125, "winner": "first",
    }  # fmt: skip


def test_a_note_says_that_one_run_is_always_ahead(execute: Any, first: Run) -> None:
    found = assay.compare(first, execute("better", {"Say": 38, "Please": 40, "Now": 38}))
    assert "say: better is ahead with all 3 prompts" in found.notes
    assert found.rows[0].differs and found.rows[0].better


def test_a_run_that_is_nowhere_worse_is_not_called_better_because_of_one_document(
    execute: Any, first: Run
) -> None:
    (row,) = assay.compare(first, execute("barely", {"Say": 21, "Please": 31, "Now": 21})).rows
    assert (row.wins, row.losses) == (2, 0)
    assert row.p_value >= 0.5 and not row.differs
    assert row.low < 0 < row.high


def test_one_prompt_can_be_compared_alone(execute: Any, first: Run) -> None:
    second = execute("tuned", {"Say": 28, "Please": 25, "Now": 28})
    (row,) = assay.compare(first, second, tasks=["say@please"]).rows
    assert (row.task, row.test) == ("say@please", "exact McNemar")
    assert "variants" not in assay.compare(first, second, tasks=["say@please"]).as_json()["rows"][0]


def test_a_task_can_be_selected_by_the_name_that_tables_show(execute: Any, first: Run) -> None:
    second = execute("tuned", {"Say": 28, "Please": 25, "Now": 28})
    (row,) = assay.compare(first, second, tasks=["say"]).rows
    assert row == assay.compare(first, second).rows[0]
    with pytest.raises(UnknownName, match="`sya` is not in both runs"):
        assay.compare(first, second, tasks=["sya"])


def test_only_variants_of_both_runs_count(execute: Any, first: Run) -> None:
    second = execute("few", {"Say": 28, "Please": 25, "Now": 28}, variants=2)
    (row,) = assay.compare(first, second).rows
    assert [one.name for one in row.variants] == ["base", "please"]


def test_variants_with_other_prompts_are_not_comparable(execute: Any, first: Run, tmp_path: Path) -> None:
    path = write_task(
        tmp_path,
        "say",
        ROWS,
        doc_to_text="{{question}}",
        doc_to_target="answer",
        metric_list=[{"metric": "exact_match"}],
        variants=[{**VARIANTS[0], "doc_to_text": "Bitte: {{question}}"}, VARIANTS[1]],
    )
    model = make_model(answer({"Say": 30}), name="other")
    other = assay.run(model=model, tasks=[str(path)], no_cache=True, output_path=str(tmp_path))
    (row,) = assay.compare(first, other).rows
    assert row.blocked == ("prompts",)
