from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import AssayError
from assay.scoring.metrics import METRICS
from assay.scoring.metrics.error_rates import character_error_rate, normalise_text, word_error_rate
from assay.stats.aggregations import aggregate
from assay.stats.intervals.standard_errors import compute_standard_error


@pytest.mark.parametrize(
    ("reference", "prediction", "details", "expected"),
    [
        ("the cat sat", "the cat sat", {}, (0, 3)),
        ("the cat sat", "the cat", {}, (1, 3)),
        ("the cat sat", "", {}, (3, 3)),
        ("the cat sat", "a cat sat on mats", {}, (3, 3)),
        ("", "noise", {}, (1, 0)),
        ("The Cat.", "the cat", {}, (2, 2)),
        ("The Cat.", "the cat", {"ignore_case": True}, (1, 2)),
        ("The Cat.", "the cat", {"ignore_case": True, "ignore_punctuation": True}, (0, 2)),
        ("don\u2019t", "don't", {"ignore_punctuation": True}, (0, 1)),
        ("well-known", "well known", {"ignore_punctuation": True}, (0, 2)),
        ("  spaced   out ", "spaced out", {}, (0, 2)),
    ],
)
def test_words_that_are_wrong_are_counted(
    reference: str, prediction: str, details: dict[str, Any], expected: tuple[int, int]
) -> None:
    assert word_error_rate(references=[reference], predictions=[prediction], **details) == expected


def test_characters_that_are_wrong_are_counted() -> None:
    assert character_error_rate(references=["kitten"], predictions=["sitting"]) == (3, 6)
    assert character_error_rate(references=["AB c"], predictions=["ab c"], ignore_case=True) == (0, 4)


def test_the_nearest_of_several_references_counts() -> None:
    assert word_error_rate(references=["one two", "one two three"], predictions=["one two tree"]) == (1, 3)


@given(text=st.text())
def test_a_text_is_never_wrong_about_itself(text: str) -> None:
    errors, _ = word_error_rate(
        references=[text], predictions=[text], ignore_case=True, ignore_punctuation=True
    )
    assert errors == 0
    again = normalise_text(text, ignore_case=True, ignore_punctuation=True)
    assert normalise_text(again, ignore_case=False, ignore_punctuation=True) == again


def test_the_rate_of_a_corpus_weighs_documents_by_their_length() -> None:
    values = [(1, 1), (0, 9)]
    assert aggregate("ratio", values) == 0.1
    assert METRICS.get("word_error_rate").aggregation == "ratio"
    assert not METRICS.get("character_error_rate").higher_is_better


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(AssayError, match="references are empty"):
        aggregate("ratio", [(3, 0)])


def test_a_rate_has_a_standard_error_by_resampling() -> None:
    even, method = compute_standard_error("ratio", [(1, 10)] * 20, metric="word_error_rate", iterations=1000)
    assert even == pytest.approx(0.0, abs=1e-12)
    assert method == "bootstrap"
    mixed, _ = compute_standard_error(
        "ratio", [(0, 10), (2, 10)] * 50, metric="word_error_rate", iterations=2000
    )
    assert mixed == pytest.approx(0.01, rel=0.1), "half 0, half 0.2: a deviation of 0.1 over ten"
