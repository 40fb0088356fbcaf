"""Weighted means of stratified samples and their intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.subsets.estimates import compare_weighted_pairs, estimate_weighted_mean


def test_the_mean_weights_strata_by_their_documents() -> None:
    found = estimate_weighted_mean([1, 0, 0, 0], [0, 0, 1, 1], [90, 10])
    assert found.value == pytest.approx(0.45)


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_equal_scores_have_an_interval_of_some_width(score: float) -> None:
    found = estimate_weighted_mean([score] * 40, [0] * 20 + [1] * 20, [100, 300])
    assert 0 <= found.interval.low <= score <= found.interval.high <= 1
    assert found.interval.high - found.interval.low > 0.02
    assert found.stderr > 0


def test_all_documents_leave_no_doubt() -> None:
    found = estimate_weighted_mean([1, 0, 1, 1], [0, 0, 1, 1], [2, 2])
    assert (found.value, found.stderr) == (0.75, 0.0)
    assert (found.interval.low, found.interval.high) == (0.75, 0.75)


def test_homogeneous_strata_narrow_the_interval() -> None:
    scores = [0] * 30 + [1] * 30
    together = estimate_weighted_mean(scores, [0] * 60, [600])
    apart = estimate_weighted_mean(scores, [0] * 30 + [1] * 30, [300, 300])
    assert apart.value == together.value == 0.5
    assert apart.interval.half_width < 0.6 * together.interval.half_width


def test_strata_with_fewer_than_two_scores_are_merged() -> None:
    found = estimate_weighted_mean([1, 1, 0, 1], [0, 0, 1, 2], [50, 30, 20])
    assert found.value == pytest.approx(0.5 * 1 + 0.5 * 0.5)
    last = estimate_weighted_mean([1, 1, 0], [0, 0, 1], [50, 50])
    assert last.value == pytest.approx(2 / 3)


def test_losses_without_a_limit_have_an_interval_around_the_mean() -> None:
    draw = np.random.default_rng(0)
    values = draw.exponential(2, 40)
    found = estimate_weighted_mean(values, [0] * 40, [400], limits=(0.0, math.inf))
    assert found.value == pytest.approx(values.mean())
    assert found.interval.low < found.value < found.interval.high
    assert found.value - found.interval.low == pytest.approx(found.interval.high - found.value)


def test_scores_of_a_judge_stay_in_their_range() -> None:
    found = estimate_weighted_mean([10] * 9 + [9], [0] * 10, [100], limits=(1.0, 10.0))
    assert found.value < found.interval.high <= 10.0


def test_intervals_contain_the_mean_of_all_documents() -> None:
    draw = np.random.default_rng(1)
    easy, hard = (draw.random(300) < 0.95).astype(float), (draw.random(300) < 0.3).astype(float)
    truth = (easy.mean() + hard.mean()) / 2
    hits = 0
    for _ in range(400):
        values = np.concatenate([draw.choice(easy, 15, replace=False), draw.choice(hard, 25, replace=False)])
        found = estimate_weighted_mean(values, [0] * 15 + [1] * 25, [300, 300]).interval
        hits += found.low <= truth <= found.high
    assert hits / 400 >= 0.94


@pytest.mark.parametrize("right", [239, 237, 210, 165, 30])
def test_simple_samples_of_most_documents_cover_the_score_of_all(right: int) -> None:
    """200 of 240 documents: every number of right answers in the sample has its probability."""
    hits = 0
    for successes in range(max(0, right - 40), min(200, right) + 1):
        values = [1.0] * successes + [0.0] * (200 - successes)
        found = estimate_weighted_mean(values, [0] * 200, [240]).interval
        if found.low <= right / 240 <= found.high:
            hits += math.comb(right, successes) * math.comb(240 - right, 200 - successes)
    assert hits / math.comb(240, 200) >= 0.95


def test_intervals_of_right_and_wrong_answers_end_at_whole_documents() -> None:
    found = estimate_weighted_mean([1, 1, 0, 1, 0, 0], [0, 0, 0, 1, 1, 1], [30, 17]).interval
    for end in (found.low, found.high):
        assert end * 47 == pytest.approx(round(end * 47))
    graded = estimate_weighted_mean(
        [1, 0.5, 0, 1, 0, 0], [0, 0, 0, 1, 1, 1], [30, 17], limits=(0, 1)
    ).interval
    assert graded.low * 47 != pytest.approx(round(graded.low * 47))


def test_scores_of_two_values_in_another_range_are_counted_as_well() -> None:
    scores = [0, 100, 100, 100]
    found = estimate_weighted_mean(scores, [0] * 4, [5], limits=(0, 100)).interval
    assert (found.low, found.high) == (60.0, 80.0)


def test_equal_models_do_not_differ_and_the_interval_says_how_sure_that_is() -> None:
    scores = [1, 0, 1, 0, 1, 0]
    found = compare_weighted_pairs(scores, scores, [0, 0, 0, 1, 1, 1], [40, 60])
    assert (found.value, found.p_value) == (0.0, 1.0)
    assert found.interval.low < 0 < found.interval.high


def test_a_difference_is_weighted_by_the_documents_of_its_stratum() -> None:
    first, second = [0] * 20, [1] * 10 + [0] * 10
    found = compare_weighted_pairs(first, second, [0] * 10 + [1] * 10, [300, 100])
    assert found.value == pytest.approx(0.75)
    assert found.second - found.first == pytest.approx(found.value)
    assert found.p_value < 0.01 and found.interval.low > 0.5
    assert "weighted" in found.test


def test_the_p_value_agrees_with_the_interval() -> None:
    """95 of 100 documents were asked: the five others can hardly change the sign of the difference."""
    first, second = [0] * 95, [1] * 3 + [0] * 92
    found = compare_weighted_pairs(first, second, [0] * 95, [100])
    assert found.interval.low > 0 and found.p_value < 0.05
    for level in (1 - found.p_value - 1e-9, 1 - found.p_value + 1e-9):
        interval = compare_weighted_pairs(first, second, [0] * 95, [100], level=level).interval
        assert (interval.low > 0) == (level < 1 - found.p_value)


def test_a_comparison_of_all_documents_has_the_p_value_of_a_full_run() -> None:
    found = compare_weighted_pairs([0] * 6, [1] * 5 + [0], [0, 0, 0, 1, 1, 1], [3, 3])
    assert (found.p_value, found.test) == (0.0625, "exact sign flips")


def test_one_score_is_too_few() -> None:
    with pytest.raises(AssayError, match="two documents"):
        estimate_weighted_mean([1], [0], [10])
    with pytest.raises(AssayError, match="stratum"):
        estimate_weighted_mean([1, 0], [0], [10])
