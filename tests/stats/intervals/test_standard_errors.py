from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.stats.aggregations import AGGREGATIONS, aggregate
from assay.stats.intervals import bootstrap
from assay.stats.intervals.bootstrap import compute_replicates, draw_resamples
from assay.stats.intervals.standard_errors import compute_standard_error
from assay.stats.numerics.exact_summation import compute_sample_deviation, mean

RECORDED: list[dict[str, Any]] = json.loads(
    Path(__file__).parent.with_name("recorded.json").read_text("utf-8")
)
WITH_ERRORS = [row for row in RECORDED if row["stderr"] is not None]


@pytest.mark.parametrize(
    "row", WITH_ERRORS, ids=[f"{place}-{row['aggregation']}" for place, row in enumerate(WITH_ERRORS)]
)
def test_a_standard_error_is_the_published_number(row: dict[str, Any]) -> None:
    name = row["aggregation"]
    if name in {"bleu", "chrf", "chrf++", "ter"}:
        pytest.importorskip("sacrebleu")
    error, method = compute_standard_error(name, row["values"], metric=name, iterations=row["iterations"])
    assert error == pytest.approx(row["stderr"], rel=1e-14)
    assert method == ("mean" if name == "mean" else "bootstrap")


@pytest.mark.parametrize(
    ("aggregation", "values", "iterations"),
    [
        pytest.param("mean", [1.0], 1000, id="one document"),
        pytest.param("mean", [1.0, 0.0], 0, id="switched off"),
        pytest.param("weighted_perplexity", [(-1.0, 2), (-2.0, 3)], 1000, id="no method known"),
        pytest.param(len, [1.0, 0.0], 1000, id="a function of the task"),
        pytest.param("bypass", [None, None], 1000, id="nothing scored"),
        pytest.param("median", [1.0, 0.0], 1, id="one resample"),
    ],
)
def test_where_no_error_is_known_none_is_made_up(
    aggregation: Any, values: list[Any], iterations: int
) -> None:
    assert compute_standard_error(aggregation, values, metric="m", iterations=iterations) == (None, "")


def test_our_mean_handed_over_as_a_function_keeps_its_error() -> None:
    assert compute_standard_error(mean, [0.0, 1.0], metric="acc", iterations=10) == (0.5, "mean")


def test_questions_are_counted_by_number() -> None:
    values = [
        (said, {"idx": {"paragraph": paragraph, "question": question}, "label": 1})
        for paragraph, question, said in [(0, 0, True), (1, 0, False), (0, 1, True), (0, 2, True)]
    ]
    error, method = compute_standard_error("acc_all", values, metric="acc", iterations=10)
    assert (error, method) == (compute_sample_deviation([0, 1, 1]) / math.sqrt(3), "mean")


@pytest.mark.parametrize("size", [1, 3, 97, 70_000])
def test_the_draws_are_those_of_python(size: int) -> None:
    draw = random.Random(3)
    expected = [draw.choices(range(size), k=size) for _ in range(3)]
    drawn = np.concatenate(list(draw_resamples(size, 3, seed=3)))
    assert drawn.tolist() == expected


SLOW_AND_FAST: list[tuple[str, list[Any]]] = [
    ("median", [3.0, -1.5, 2, 8.25, 0.1]),
    ("perplexity", [-0.1, -2.3, -1, -7.75, -0.3, -0.7]),
    ("nanmean", [0.1, math.nan, 0.7, 0.25]),
    ("f1", [(1, 2), (2, 2), (1, 1), (2, 1), (1, 1)]),
    ("f1", [(0, 0), (0, 0), (0, 0)]),
    ("matthews_corrcoef", [(5, 2), (2, 2), (1, 5), (5, 5), (1, 1)]),
    ("bleu", [["a b c d e", "a b d c"], ["x y z w v", "x y z w"], ["k l m n", "l m n k"]]),
    ("ter", [[["a b", "b c d"], "a b c"], [["x", "y"], "y z"], [["k l", "l"], "k"]]),
]


@pytest.mark.parametrize(("name", "values"), SLOW_AND_FAST, ids=[name for name, _ in SLOW_AND_FAST])
def test_all_resamples_at_once_are_each_resample_alone(name: str, values: list[Any]) -> None:
    if name in {"bleu", "ter"}:
        pytest.importorskip("sacrebleu")
    function = AGGREGATIONS.get(name)
    draw = random.Random(0)
    expected = [float(function(draw.choices(values, k=len(values)))) for _ in range(60)]
    assert [repr(value) for value in compute_replicates(name, values, 60)] == [
        repr(value) for value in expected
    ]


def test_references_of_different_number_are_resampled_one_by_one() -> None:
    pytest.importorskip("sacrebleu")
    values = [[["a b c d", "b c d a"], "a b c d"], [["x y z w"], "x y w z"], [["k l m n"], "k l m"]]
    error, method = compute_standard_error("bleu", values, metric="bleu", iterations=1000)
    assert method == "bootstrap"
    assert error is not None
    assert error > 0


def test_translation_metrics_get_a_hundred_resamples_by_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def remember(name: str, values: Any, iterations: int) -> float:
        asked.append(iterations)
        return 0.1

    monkeypatch.setattr("assay.stats.intervals.standard_errors.compute_bootstrap_error", remember)
    for metric in ("bleu", "chrf", "chrf++", "ter", "my_bleu"):
        compute_standard_error("bleu", ["x", "y"], metric=metric, iterations=5000)
    compute_standard_error("bleu", ["x", "y"], metric="bleu", iterations=50)
    assert asked == [100, 100, 100, 100, 5000, 50]


def test_what_does_not_fill_a_chunk_is_not_drawn() -> None:
    assert len(compute_replicates("median", [1.0, 2.0, 3.0], 2500)) == 2000


def test_small_blocks_draw_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [-0.5, -1.25, -3.0]
    whole = compute_replicates("perplexity", values, 500)
    monkeypatch.setattr(bootstrap, "BLOCK_DRAWS", 7)
    assert compute_replicates("perplexity", values, 500) == whole


def test_labels_that_are_texts_go_to_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    values = [("yes", "yes"), ("no", "no"), ("yes", "no"), ("no", "no")]
    numbers = [(int(gold == "yes"), int(said == "yes")) for gold, said in values]
    assert aggregate("matthews_corrcoef", values) == pytest.approx(aggregate("matthews_corrcoef", numbers))


def test_own_draws_are_used_when_asked_for_and_where_there_are_some() -> None:
    values = [0.1 * at for at in range(50)]
    theirs, _ = compute_standard_error("median", values, metric="m", iterations=5000)
    own, how = compute_standard_error("median", values, metric="m", iterations=5000, draws="own")
    assert how == "bootstrap" and own != theirs and own == pytest.approx(theirs, rel=0.1)
    pairs = [(at % 2, at % 3 > 0) for at in range(50)]
    same = [
        compute_standard_error("f1", pairs, metric="f1", iterations=1000, draws=draws)
        for draws in ("lm_eval", "own")
    ]
    assert same[0] == same[1]
    assert compute_standard_error("median", values, metric="m", iterations=1, draws="own") == (None, "")
