"""Means over documents and variants: components, intervals, stability."""

from __future__ import annotations

import math

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.intervals.confidence_intervals import mean_interval
from assay.stats.intervals.crossed import (
    compute_stability,
    crossed_interval,
    estimate_crossed,
    score_consistency_rate,
)


def draw(documents: int, variants: int, spread: float, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    latent = (
        generator.normal(0, 1.5, (documents, 1))
        + generator.normal(0, spread, (1, variants))
        + generator.normal(0, 0.5, (documents, variants))
    )
    return (latent > 0).astype(float)


def test_components_are_those_of_an_analysis_of_variance() -> None:
    table = np.array([[1.0, 2.0, 4.0], [2.0, 3.0, 6.0], [0.0, 4.0, 5.0], [1.0, 1.0, 3.0]])
    rows, columns, mean = table.mean(axis=1), table.mean(axis=0), table.mean()
    rest = table - rows[:, None] - columns + mean
    by_document = 3 * rows.var(ddof=1)
    by_variant = 4 * columns.var(ddof=1)
    error = (rest**2).sum() / 6
    found = estimate_crossed(table)
    assert found.document_stderr == pytest.approx(math.sqrt(by_document / 12))
    assert found.variant_deviation == pytest.approx(math.sqrt((by_variant - error) / 4))
    assert found.stderr == pytest.approx(math.sqrt((by_document + by_variant - error) / 12))
    assert found.means == pytest.approx((1.0, 2.5, 4.5))


def test_equal_prompts_have_the_interval_of_their_documents() -> None:
    column = draw(100, 1, 0)
    table = np.repeat(column, 4, axis=1)
    found, alone = crossed_interval(table), mean_interval(table.ravel(), np.repeat(np.arange(100), 4))
    assert (found.low, found.high) == pytest.approx((alone.low, alone.high))


def test_a_spread_between_prompts_widens_the_interval() -> None:
    widths = [estimate_crossed(draw(400, 5, spread)).interval for spread in (0.0, 0.3, 1.0)]
    halves = [one.half_width for one in widths if one is not None]
    assert halves[0] < halves[1] < halves[2]


def test_more_documents_do_not_remove_the_spread_between_prompts() -> None:
    few, many = crossed_interval(draw(200, 4, 0.5)), crossed_interval(draw(5000, 4, 0.5))
    alone = mean_interval(draw(5000, 4, 0.5).ravel(), np.repeat(np.arange(5000), 4))
    assert many.half_width > 5 * alone.half_width
    assert many.half_width > 0.5 * few.half_width


def test_clusters_of_documents_widen_the_interval() -> None:
    table = np.repeat(draw(50, 3, 0), 4, axis=0)
    clusters = [number // 4 for number in range(200)]
    wide, narrow = estimate_crossed(table, clusters), estimate_crossed(table)
    assert wide.document_stderr > 1.9 * narrow.document_stderr
    assert wide.interval is not None and narrow.interval is not None
    assert wide.interval.half_width > narrow.interval.half_width
    assert wide.variant_deviation <= narrow.variant_deviation  # clusters react together


def test_intervals_stay_within_the_range_of_scores() -> None:
    found = crossed_interval([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 1, 1]])
    assert 0 <= found.low < found.high <= 1


def test_a_single_prompt_has_no_interval_over_prompts() -> None:
    with pytest.raises(AssayError, match="at least two variants"):
        crossed_interval([[1.0], [0.0]])
    with pytest.raises(AssayError, match="a row per document"):
        crossed_interval([1.0, 0.0])


def test_the_consistency_rate_counts_equal_pairs() -> None:
    answers = [["a", "a", "b", "a"], ["c", "d", "e", "f"]]
    pairs = [row[i] == row[j] for row in answers for i in range(4) for j in range(i)]
    assert score_consistency_rate(answers) == sum(pairs) / len(pairs)
    assert compute_stability(answers).tolist() == [0.75, 0.25]
