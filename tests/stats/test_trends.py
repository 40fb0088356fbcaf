"""Means by bins, and the rank correlation against scipy."""

from __future__ import annotations

import numpy as np
import pytest

from assay.stats.intervals.confidence_intervals import wilson_interval
from assay.stats.trends import compute_rank_correlation, compute_trend


def test_bins_hold_equal_numbers_of_documents() -> None:
    numbers = np.arange(100)[::-1]
    found = compute_trend(numbers, numbers < 30)
    assert [one.documents for one in found] == [10] * 10
    assert [one.mean for one in found] == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert (found[0].low, found[0].middle, found[0].high) == (0, 4.5, 9)
    interval = wilson_interval(10, 10)
    assert (found[0].mean_low, found[0].mean_high) == (interval.low, interval.high)


def test_equal_numbers_stay_together() -> None:
    found = compute_trend([5, 5, 5, 5, 9], [0.5, 1, 0.5, 1, 0.25], bins=4)
    assert [(one.low, one.high, one.documents, one.mean) for one in found] == [
        (5, 5, 4, 0.75),
        (9, 9, 1, 0.25),
    ]
    # a mean of graded scores has a t interval: 0.75 ± 3.1824 · 0.288675 / 2
    assert found[0].mean_low == pytest.approx(0.75 - 3.18245 * 0.2886751 / 2, abs=1e-5)
    assert found[1].mean_low is None
    assert compute_trend([], []) == ()


def test_the_correlation_equals_that_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(0)
    first = random.integers(0, 20, 200)
    second = first + random.integers(0, 30, 200)
    found = compute_rank_correlation(first, second)
    assert found is not None
    assert found.value == pytest.approx(stats.spearmanr(first, second).statistic)
    assert -1 < found.low < found.value < found.high < 1


def test_constant_values_have_no_correlation() -> None:
    assert compute_rank_correlation([1, 1, 1, 1, 1], [1, 2, 3, 4, 5]) is None
    assert compute_rank_correlation([1, 2], [1, 2]) is None
