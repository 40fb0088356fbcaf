"""The mean difference over tasks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from assay.stats.comparisons.stratified import Stratum, combine_strata, compute_flip_error


def test_the_error_of_flips_is_that_of_their_differences() -> None:
    steps = np.array([1.0] * 5 + [-1.0] * 2 + [0.0] * 13)
    assert compute_flip_error(5, 2, 20) == pytest.approx(steps.std(ddof=1) / math.sqrt(20))
    assert compute_flip_error(1, 0, 1) == 0.0


def test_degrees_of_freedom_are_those_of_satterthwaite() -> None:
    even = [Stratum(value=0.0, stderr=0.1, degrees=3)] * 2
    assert combine_strata(even).degrees == pytest.approx(6)
    uneven = [Stratum(value=0.0, stderr=1.0, degrees=3), Stratum(value=0.0, stderr=1e-6, degrees=1000)]
    assert combine_strata(uneven).degrees == pytest.approx(3)


def test_intervals_stay_within_the_range() -> None:
    found = combine_strata([Stratum(value=0.9, stderr=0.3, degrees=2)] * 2)
    assert found.high == 1.0 and found.low > -1.0


def test_equal_scores_are_no_difference() -> None:
    found = combine_strata([Stratum(value=0.0, stderr=0.0, degrees=3)] * 2)
    assert (found.p_value, found.low, found.high) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize(("tasks", "documents"), [(2, 4), (5, 4), (2, 10)])
def test_false_positives_are_rare_with_few_documents(tasks: int, documents: int) -> None:
    """A normal distribution instead of t gives 10 % at two tasks of four documents."""
    steps = np.random.default_rng(1).normal(size=(2000, tasks, documents))
    means, errors = steps.mean(axis=2), steps.std(axis=2, ddof=1) / math.sqrt(documents)
    wrong = 0
    for values, stderrs in zip(means.tolist(), errors.tolist(), strict=True):
        strata = [
            Stratum(value=value, stderr=stderr, degrees=documents - 1)
            for value, stderr in zip(values, stderrs, strict=True)
        ]
        wrong += combine_strata(strata, limit=math.inf).p_value < 0.05
    assert wrong / len(means) < 0.06
