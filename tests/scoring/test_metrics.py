from __future__ import annotations

import re
import string
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import InvalidOption, MissingPackage
from assay.scoring.edit_distance import edit_distance
from assay.scoring.metrics import METRICS, metric
from assay.scoring.metrics.anls import anls
from assay.scoring.metrics.exact_match import exact_match
from assay.scoring.metrics.hf_evaluate import HfEvaluateMetric
from assay.stats.aggregations import AGGREGATIONS

LETTERS = st.text(alphabet="aAbB1.,$ \0İßẞσΣ", max_size=6)


@pytest.mark.parametrize(
    ("name", "aggregation", "higher_is_better"),
    [
        ("acc", "mean", True),
        ("acc_norm", "mean", True),
        ("acc_bytes", "mean", True),
        ("acc_mutual_info", "mean", True),
        ("acc_all", "mean", True),
        ("likelihood", "mean", True),
        ("exact_match", "mean", True),
        ("anls", "mean", True),
        ("brier_score", "brier_score", False),
        ("perplexity", "perplexity", False),
        ("word_perplexity", "weighted_perplexity", False),
        ("byte_perplexity", "weighted_perplexity", False),
        ("bits_per_byte", "bits_per_byte", False),
        ("mcc", "matthews_corrcoef", True),
        ("f1", "f1", True),
        ("bleu", "bleu", True),
        ("chrf", "chrf", True),
        ("chrf++", "chrf++", True),
        ("ter", "ter", False),
        ("bypass", "bypass", True),
    ],
)
def test_a_metric_knows_its_aggregation_and_direction(
    name: str, aggregation: str, higher_is_better: bool
) -> None:
    known = METRICS.get(name)
    assert (known.aggregation, known.higher_is_better) == (aggregation, higher_is_better)
    assert aggregation in AGGREGATIONS


def by_numpy(
    prediction: str, reference: str, patterns: list[str] | None, case: bool, punctuation: bool, numbers: bool
) -> float:
    """The slow way: fixed-width arrays, as the published scores were computed."""

    def reduced(text: str) -> Any:
        texts: Any = np.asarray([text]) if patterns is None else [text]
        for pattern in patterns or []:
            texts = np.array([re.sub(pattern, "", one) for one in texts])
        translate: Any = np.char.translate
        texts = np.char.lower(texts) if case else texts
        texts = translate(texts, str.maketrans("", "", string.punctuation)) if punctuation else texts
        return translate(texts, str.maketrans("", "", string.digits)) if numbers else texts

    return float(np.mean(reduced(prediction) == reduced(reference)))


@given(
    LETTERS,
    LETTERS,
    st.sampled_from([None, [","], [",", r"\$", r"\.$"]]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_one_text_is_compared_as_an_array_of_one(
    prediction: str, reference: str, patterns: list[str] | None, case: bool, punctuation: bool, numbers: bool
) -> None:
    fast = exact_match(
        references=[reference],
        predictions=[prediction],
        regexes_to_ignore=patterns,
        ignore_case=case,
        ignore_punctuation=punctuation,
        ignore_numbers=numbers,
    )
    assert fast == by_numpy(prediction, reference, patterns, case, punctuation, numbers)


@pytest.mark.parametrize(
    ("references", "predictions", "expected"),
    [
        (["a", "b"], ["a", "a"], 0.5),
        ([3], [3], 1.0),
        ([["a", "b"]], [["a", "c"]], 0.5),
        (["a"], [["a", "b"]], 0.5),
    ],
)
def test_several_texts_give_the_share_that_matches(
    references: Any, predictions: Any, expected: float
) -> None:
    assert exact_match(references=references, predictions=predictions) == expected


@pytest.mark.parametrize(
    ("references", "prediction", "expected"),
    [
        (["Bern"], " BERN ", 1.0),
        (["Zürich", "Bern"], "Bern", 1.0),
        (["abcd"], "abce", 0.75),
        (["abcd"], "axyz", 0.0),
        ([""], "", 1.0),
    ],
)
def test_a_near_answer_is_nearly_right(references: list[str], prediction: str, expected: float) -> None:
    assert anls(references=references, predictions=[prediction]) == expected


def test_the_threshold_can_be_set() -> None:
    assert anls(references=["abcd"], predictions=["abce"], thresh_hold=0.8) == 0.0


@given(LETTERS, LETTERS)
def test_edits_count_the_same_both_ways(first: str, second: str) -> None:
    assert edit_distance(first, second) == edit_distance(second, first)
    assert abs(len(first) - len(second)) <= edit_distance(first, second) <= max(len(first), len(second))


def test_two_metrics_cannot_share_a_name() -> None:
    with pytest.raises(InvalidOption, match="two metrics are called `exact_match`"):
        metric("exact_match")(lambda pair: pair)


def test_a_metric_of_the_hub_needs_its_package_only_when_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "evaluate", None)
    judge = HfEvaluateMetric("meteor")
    with pytest.raises(MissingPackage, match="`meteor` needs the package `evaluate`"):
        judge(references=["a"], predictions=["a"])
