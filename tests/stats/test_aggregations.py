from __future__ import annotations

import json
import math
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import AssayError, UnknownName
from assay.stats.aggregations import AGGREGATIONS, aggregate, find_aggregation_name
from assay.stats.numerics.exact_summation import mean, sum_left_to_right

RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("recorded.json").read_text("utf-8"))
"""Numbers computed by lm-evaluation-harness 0.4.13 on Python 3.11."""


@pytest.mark.parametrize(
    "row", RECORDED, ids=[f"{place}-{row['aggregation']}" for place, row in enumerate(RECORDED)]
)
def test_an_aggregation_gives_the_published_number(row: dict[str, Any]) -> None:
    if row["aggregation"] in {"bleu", "chrf", "chrf++", "ter"}:
        pytest.importorskip("sacrebleu")
    assert aggregate(row["aggregation"], row["values"]) == pytest.approx(row["value"], rel=1e-15)


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("mean", [1, 0, 1, 1], 0.75),
        ("mean", [True, False], 0.5),
        ("mean", [0.1] * 10, 0.09999999999999999),
        ("sum", [1, 2.5], 3.5),
        ("min", [3, 1, 2], 1),
        ("max", [3, 1, 2], 3),
        ("std", [1.0, 3.0], 1.0),
        ("std", [4.0], 0.0),
        ("median", [4, 1, 3, 2], 3),
        ("median", [2, 1, 3], 2),
        ("nanmean", [math.nan, 1.0, 3.0], 2.0),
        ("perplexity", [-1.0, -1.0], math.e),
        ("bypass", ["anything", None], 999),
        ("f1", [(0, 0), (0, 0)], 0.0),
        ("macro_f1", [(0, 0), (1, 1), (2, 1), (2, 2)], pytest.approx(7 / 9)),
        ("macro_f1", [("a", "b"), ("b", "b"), ("c", "d")], pytest.approx(1 / 6)),
        ("weighted_f1", [("a", "b"), ("b", "b"), ("b", "b"), ("c", "d")], pytest.approx(0.4)),
        ("matthews_corrcoef", [(1, 1), (1, 1)], 0.0),
    ],
)
def test_a_named_aggregation_sums_up(name: str, values: list[Any], expected: float) -> None:
    assert aggregate(name, values) == expected


def test_nothing_but_nan_has_no_mean() -> None:
    assert math.isnan(aggregate("nanmean", [math.nan, math.nan]))


def test_a_function_of_the_task_is_called_with_all_values() -> None:
    assert aggregate(lambda values: {"count": len(values)}, [1, 2, 3]) == {"count": 3}


def test_no_values_are_not_zero() -> None:
    with pytest.raises(AssayError, match="nothing to aggregate"):
        aggregate("mean", [])


def test_an_unknown_name_is_guessed() -> None:
    with pytest.raises(UnknownName) as caught:
        aggregate("maen", [1.0], where="a.yaml:3")
    assert "did you mean `mean`" in caught.value.hint
    assert caught.value.where == "a.yaml:3"


def test_the_built_in_aggregations_are_there() -> None:
    names = "mean sum min max std nanmean median perplexity weighted_perplexity bits_per_byte f1 matthews_corrcoef"
    assert set(names.split()) | {"bleu", "chrf", "chrf++", "ter", "brier_score", "bypass"} <= set(
        AGGREGATIONS
    )


def test_a_function_of_ours_is_known_by_its_name() -> None:
    assert find_aggregation_name(mean) == "mean"
    assert find_aggregation_name(AGGREGATIONS.get("f1")) == "f1"
    assert find_aggregation_name(sum) is None


def test_a_question_counts_when_all_its_answers_are_right() -> None:
    def answer(question: int, label: int, said: bool) -> tuple[bool, dict[str, Any]]:
        return said, {"idx": {"paragraph": 0, "question": question}, "label": label}

    assert aggregate("acc_all", [answer(0, 1, True), answer(0, 0, True), answer(1, 0, False)]) == 0.5


@given(
    st.lists(
        st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.integers(-9, 9)),
        min_size=1,
    )
)
def test_a_sum_is_rounded_after_each_step(values: list[Any]) -> None:
    expected = reduce(add, values, 0)
    assert repr(float(sum_left_to_right(values))) == repr(float(expected))
