from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from assay.stats.aggregations import aggregate
from assay.stats.intervals.corpus_intervals import CORPUS_AGGREGATIONS, corpus_interval

Values = list[Any]


def draw_likelihoods(draw: np.random.Generator, size: int) -> Values:
    return [*map(float, -draw.gamma(4.0, 0.5, size=size))]


def draw_bytes(draw: np.random.Generator, size: int) -> Values:
    counts = draw.lognormal(5.0, 0.5, size=size)
    return [
        (-0.7 * count * rate, count) for count, rate in zip(counts, draw.gamma(8, 1 / 8, size), strict=True)
    ]


def draw_labels(draw: np.random.Generator, size: int) -> Values:
    golds = draw.random(size) < 0.4
    given = np.where(draw.random(size) < 0.8, golds, ~golds)
    return list(zip(golds.astype(int).tolist(), given.astype(int).tolist(), strict=True))


@pytest.mark.parametrize("size", [5, 10, 30])
@pytest.mark.parametrize(
    ("name", "make", "truth"),
    [
        ("perplexity", draw_likelihoods, math.exp(2.0)),
        ("bits_per_byte", draw_bytes, 0.7 / math.log(2)),
        ("weighted_perplexity", draw_bytes, math.exp(0.7)),
        ("f1", draw_labels, 0.64 / (0.64 + 0.2)),
        ("median", lambda draw, size: draw.exponential(size=size).tolist(), math.log(2)),
    ],
)
def test_few_documents_are_covered(
    name: str, make: Callable[[np.random.Generator, int], Values], truth: float, size: int
) -> None:
    draw = np.random.default_rng(size)
    found = [corpus_interval(name, make(draw, size)) for _ in range(600)]
    known = [one for one in found if one is not None]
    assert len(known) > 550
    covered = sum(one.low <= truth <= one.high for one in known) / len(known)
    assert covered >= (0.89 if size == 5 else 0.925)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("matthews_corrcoef", draw_labels(np.random.default_rng(1), 60)),
        ("bleu", [("a b c d e f", f"a b c d e {one}") for one in "fghij" * 4]),
        ("ter", [("a b c d e f", f"a b c d {one} f") for one in "efghi" * 4]),
        ("nanmean", [1.0, math.nan, 0.5, 0.2, 0.9]),
        ("ratio", [(1, 4), (2, 5), (0, 6), (3, 7)]),
        ("brier_score", [(0, [0.9, 0.1]), (1, [0.3, 0.7]), (1, [0.8, 0.2])]),
    ],
)
def test_the_interval_contains_the_value(name: str, values: Values) -> None:
    assert name in CORPUS_AGGREGATIONS
    found = corpus_interval(name, values)
    assert found is not None
    assert found.low < aggregate(name, values) < found.high


@pytest.mark.parametrize("name", ["perplexity", "bits_per_byte", "f1", "matthews_corrcoef", "median"])
def test_repeating_every_document_in_a_cluster_adds_no_certainty(name: str) -> None:
    draw = np.random.default_rng(4)
    make: dict[str, Any] = {
        "perplexity": draw_likelihoods,
        "bits_per_byte": draw_bytes,
        "median": draw_likelihoods,
    }
    values = make.get(name, draw_labels)(draw, 30)
    once, clustered = (
        corpus_interval(name, values),
        corpus_interval(name, values * 10, [*range(30)] * 10),
    )
    plain = corpus_interval(name, values * 10)
    assert once is not None and clustered is not None and plain is not None
    assert clustered.half_width > 0.75 * once.half_width
    assert clustered.half_width > 2 * plain.half_width
    assert "clustered" in clustered.method and "clustered" not in plain.method


@pytest.mark.parametrize(
    ("name", "values", "clusters"),
    [
        pytest.param("perplexity", [-1.0], None, id="one document"),
        pytest.param("perplexity", [-1.0, -2.0], ["a", "a"], id="one cluster"),
        pytest.param("perplexity", ["a", "b"], None, id="no numbers"),
        pytest.param("bits_per_byte", [(1.0,), (2.0,)], None, id="no pairs"),
        pytest.param("median", [1.0, 2.0, 3.0], None, id="too few for order statistics"),
    ],
)
def test_no_interval_is_made_up(name: str, values: Values, clusters: list[str] | None) -> None:
    assert corpus_interval(name, values, clusters) is None
