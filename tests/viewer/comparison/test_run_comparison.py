"""Comparison of two runs: differences, categories, metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_choices, write_task
from tests.viewer.comparison.conftest import ROWS, Runs, right_for

import assay
from assay.core.errors import UserError
from assay.core.records.responses import LogProbability
from assay.stats.comparisons.comparison import compare_pairs
from assay.viewer.comparison.sources import open_source


def test_scores_are_paired_document_by_document(runs: Runs) -> None:
    first, second = runs(right_for(*range(10))), runs(right_for(*range(5, 30)))
    found = assay.compare(first, second, flips=True)
    (row,) = found.rows
    wanted = compare_pairs([n < 10 for n in range(40)], [5 <= n < 30 for n in range(40)])
    assert (row.first, row.second) == (0.25, 0.625)
    assert row.difference == pytest.approx(0.375)
    assert (row.wins, row.ties, row.losses) == (20, 15, 5)
    assert row.p_value == pytest.approx(wanted.p_value)
    assert row.differs and row.better
    assert [flip.document for flip in row.flips] == [*range(5), *range(10, 30)]
    assert found.mismatches == ()


def test_categories_are_compared_separately(runs: Runs) -> None:
    found = assay.compare(runs(right_for()), runs(right_for(*range(0, 40, 2))), category="kind")
    values = {row.category: (row.documents, row.difference) for row in found.categories}
    assert values == {"even": (20, 1.0), "odd": (20, 0.0)}


def test_a_lower_value_can_be_better(runs: Runs) -> None:
    keys = {"metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": False}]}
    (row,) = assay.compare(runs(right_for(*range(20)), keys=keys), runs(right_for(), keys=keys)).rows
    assert row.difference == -0.5
    assert row.better
    assert (row.wins, row.losses) == (20, 0)


def test_corpus_metrics_are_compared_as_a_whole(runs: Runs) -> None:
    keys = {"metric_list": [{"metric": "bleu", "aggregation": "bleu", "higher_is_better": True}]}
    rows = [{**row, "answer": f"the answer to this sum is {row['answer']} of course"} for row in ROWS]
    good = runs(
        lambda request: f"the answer to this sum is {request.document + 1} of course", rows=rows, keys=keys
    )
    bad = runs(lambda request: "the answer to everything is 42 of course", rows=rows, keys=keys)
    (row,) = assay.compare(bad, good).rows
    assert row.second == pytest.approx(good.estimates[0].value)
    assert row.differs and row.better and row.wins is None
    assert row.test == "swapped answers"


def test_the_given_metric_is_compared(tmp_path: Path) -> None:
    task = str(write_choices(tmp_path, rows=30, metric_list=[{"metric": "acc"}, {"metric": "acc_norm"}]))

    def likes(index: int) -> Any:
        return lambda request: LogProbability(-1.0 if request.index == index else -2.0, True)

    made = [
        assay.run(model=make_model(likes(n)), tasks=[task], no_cache=True, output_path=str(tmp_path / str(n)))
        for n in range(2)
    ]
    assert [row.metric for row in assay.compare(*made).rows] == ["acc"]
    assert [row.metric for row in assay.compare(*made, metrics=["acc_norm"]).rows] == ["acc_norm"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"correction": "bonferoni"}, "bonferoni"),
        ({"level": 95}, "95"),
        ({"tasks": ["other"]}, "other"),
        ({"metrics": ["exact_match", "nope"]}, "no task of both runs has the metric `nope`"),
    ],
)
def test_invalid_options_are_refused(runs: Runs, options: dict[str, Any], said: str) -> None:
    run = runs(right_for())
    with pytest.raises(UserError, match=said):
        assay.compare(run, run, **options)


def test_repeated_answers_are_compared(runs: Runs) -> None:
    sampled = {"until": ["\n"], "do_sample": True, "temperature": 1.0}
    keys = {"repeats": 4, "generation_kwargs": sampled}

    def sometimes(chance: int) -> Any:
        return lambda request: (
            str(request.document + 1) if (request.document + request.repeat) % 4 < chance else "no"
        )

    first, second = runs(sometimes(2), keys=keys), runs(sometimes(3), keys=keys)
    found = assay.compare(first, second)
    assert any("use `--metric exact_match.mean`" in note for note in found.notes)
    names = ["exact_match.mean", "exact_match.pass^2", "exact_match.pass@4"]
    rows = {row.metric: row for row in assay.compare(first, second, metrics=names).rows}
    assert (rows[names[0]].first, rows[names[0]].second) == (0.5, 0.75)
    assert rows[names[1]].first == pytest.approx(1 / 6)
    assert rows[names[2]].difference == 0.0
    numbers = {one.metric: one.value for one in open_source(second).read_estimates()}
    assert numbers["exact_match.mean"] == 0.75


def test_runs_without_a_common_task_are_an_error(tmp_path: Path) -> None:
    tasks = [str(write_task(tmp_path, f"sums{n}", ROWS[:4])) for n in range(4)]
    first, second = (
        assay.run(model=make_model(), tasks=chosen, no_cache=True, output_path=str(tmp_path / str(at)))
        for at, chosen in enumerate((tasks[:2], tasks[2:]))
    )
    with pytest.raises(UserError, match="no task in common: `sums0`, `sums1` and `sums2`, `sums3`"):
        assay.compare(first, second)
