from __future__ import annotations

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.comparisons.comparison import (
    compare_pairs,
    compute_mcnemar_p_value,
    find_detectable_difference,
)
from assay.stats.comparisons.sign_flip_test import run_sign_flip_test


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (6, 0), (9, 3), (700, 650), (5_100, 4_900)])
def test_mcnemar_is_the_exact_binomial_test(wins: int, losses: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    wanted = stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert compute_mcnemar_p_value(wins, losses) == pytest.approx(wanted, rel=1e-8)


@pytest.mark.parametrize("size", [8, 14])
def test_flips_are_counted_as_scipys_permutation_test_counts_them(size: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    first, second = np.random.default_rng(size).integers(0, 6, size=(2, size)) / 5
    wanted = stats.permutation_test(
        (first, second),
        lambda a, b, axis: (a - b).sum(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    p_value, how = run_sign_flip_test(second - first)
    assert p_value == pytest.approx(wanted.pvalue)
    assert how == "exact sign flips"


@pytest.mark.parametrize(
    ("size", "kinds", "method"),
    [(400, 4, "exact sign flips"), (2000, None, "sign flips"), (30_000, None, "sign flips, normal limit")],
)
def test_many_flips_agree_with_the_t_test(size: int, kinds: int | None, method: str) -> None:
    stats = pytest.importorskip("scipy.stats")
    draw = np.random.default_rng(7)
    steps = draw.normal(2 / np.sqrt(size), 1, size=size)
    if kinds:
        steps = np.round(steps * kinds / 4)
    p_value, how = run_sign_flip_test(steps)
    assert how == method
    assert p_value == pytest.approx(stats.ttest_1samp(steps, 0).pvalue, rel=0.15, abs=0.003)


def test_the_standard_error_of_a_paired_difference_is_millers() -> None:
    draw = np.random.default_rng(8)
    first = draw.random(500)
    second = 0.5 * first + 0.5 * draw.random(500)
    found = compare_pairs(first, second)
    spread = [np.std(one, ddof=1) / np.sqrt(500) for one in (first, second)]
    correlation = np.corrcoef(first, second)[0, 1]
    wanted = np.sqrt(spread[0] ** 2 + spread[1] ** 2 - 2 * correlation * spread[0] * spread[1])
    assert found.stderr == pytest.approx(wanted)
    assert found.value == pytest.approx(second.mean() - first.mean())


def test_wins_ties_and_losses_are_the_second_models() -> None:
    found = compare_pairs([0, 0, 1, 1, 1], [1, 1, 0, 1, 1])
    assert (found.wins, found.ties, found.losses) == (2, 2, 1)
    assert found.value == pytest.approx(0.2)


def test_two_equal_models_are_not_certainly_equal() -> None:
    found = compare_pairs([1.0, 0.0] * 5, [1.0, 0.0] * 5)
    assert found.p_value == 1.0
    assert found.interval.low < -0.1 < 0.1 < found.interval.high
    assert found.detectable is not None and found.detectable > 0.2


def test_nothing_in_common_is_an_error() -> None:
    with pytest.raises(AssayError, match="no document in common"):
        compare_pairs([], [])
    with pytest.raises(AssayError, match="paired"):
        compare_pairs([1.0], [1.0, 0.0])


def test_whole_clusters_are_flipped_together() -> None:
    clusters = [name for name in "abcdef" for _ in range(50)]
    first = np.zeros(300)
    second = np.repeat([1.0, 1.0, 1.0, 1.0, 0.0, 0.0], 50)
    alone, together = compare_pairs(first, second), compare_pairs(first, second, clusters)
    assert alone.p_value < 1e-50
    assert together.p_value == 0.125
    assert together.clusters == 6
    assert together.interval.high - together.interval.low > 4 * (alone.interval.high - alone.interval.low)


def test_with_no_difference_false_alarms_are_as_rare_as_promised() -> None:
    """Binary and clustered data, 1,000 comparisons of two models that are alike."""
    draw = np.random.default_rng(9)
    codes = np.repeat(np.arange(20), 5)
    alarms = dict.fromkeys(("binary", "clustered", "clusters ignored"), 0)
    for _ in range(1000):
        hard = draw.random(60)
        first, second = (draw.random((2, 60)) < hard).astype(float)
        alarms["binary"] += compare_pairs(first, second).p_value < 0.05
        shared = draw.integers(-1, 2, size=20)[codes] * (draw.random(100) < 0.8)
        alarms["clustered"] += compare_pairs(np.zeros(100), shared, codes).p_value < 0.05
        alarms["clusters ignored"] += compare_pairs(np.zeros(100), shared + 0.0).p_value < 0.05
    assert alarms["binary"] <= 60
    assert 25 <= alarms["clustered"] <= 70
    assert alarms["clusters ignored"] > 150


def test_false_alarms_of_drawn_flips_are_as_rare_as_promised() -> None:
    draw = np.random.default_rng(11)
    alarms = sum(run_sign_flip_test(draw.standard_t(4, size=25))[0] < 0.05 for _ in range(400))
    assert 8 <= alarms <= 34


@pytest.mark.parametrize(("size", "effect", "most"), [(30, 0.05, 1.0), (400, 0.0, 0.97)])
def test_the_interval_of_paired_proportions_covers(size: int, effect: float, most: float) -> None:
    draw = np.random.default_rng(10)
    covered = 0
    for _ in range(1000):
        chance = draw.random(size)
        first = chance < 0.6
        second = np.where(draw.random(size) < 0.15, draw.random(size) < 0.6 + effect / 0.15, first)
        found = compare_pairs(first.astype(float), second.astype(float)).interval
        truth = 0.15 * (min(0.6 + effect / 0.15, 1.0) - 0.6)
        covered += found.low <= truth <= found.high
    assert 0.93 <= covered / 1000 <= most


def test_clusters_that_never_differ_leave_something_open() -> None:
    found = compare_pairs([1.0] * 20, [1.0] * 20, ["a"] * 10 + ["b"] * 10)
    assert (found.value, found.p_value) == (0.0, 1.0)
    assert found.interval.low < -0.5
    assert found.interval.high > 0.5
    assert found.detectable is None  # two clusters cannot give a significant result


@pytest.mark.parametrize(
    ("scores", "clusters", "ends"),
    [
        pytest.param([0.5, 0.7, 0.2], ["a"] * 3, (-1.0, 1.0), id="one cluster"),
        pytest.param([0.5], None, (-1.0, 1.0), id="one document"),
        pytest.param([5.0], None, (-np.inf, np.inf), id="one document, without limits"),
    ],
)
def test_a_single_document_or_cluster_has_no_detectable_difference(
    scores: list[float], clusters: list[str] | None, ends: tuple[float, float]
) -> None:
    found = compare_pairs([0.0] * len(scores), scores, clusters)
    assert (found.interval.low, found.interval.high) == ends
    assert found.p_value == 1.0
    assert found.detectable is None


def test_what_is_detectable_allows_for_the_number_of_tests() -> None:
    stats = pytest.importorskip("scipy.stats")
    found = find_detectable_difference(0.02, 50, tests=20)
    assert found is not None
    quantile = stats.t.ppf(1 - 0.025 / 20, 50)
    assert stats.nct.sf(quantile, 50, found / 0.02) == pytest.approx(0.8, abs=0.002)


def test_the_interval_of_paired_proportions_is_bonetts_and_prices() -> None:
    """Six documents won, one lost, of twenty: one flip is added on each side, two documents to all."""
    found = compare_pairs([1.0] + [0.0] * 19, [0.0] + [1.0] * 6 + [0.0] * 13)
    middle, error = (7 - 2) / 22, ((9 / 22 - (5 / 22) ** 2) / 22) ** 0.5
    wanted = (middle - 1.959964 * error, middle + 1.959964 * error)
    assert (found.interval.low, found.interval.high) == pytest.approx(wanted, abs=1e-6)


def test_the_interval_of_rare_losses_is_longer_towards_them() -> None:
    first = np.full(40, 0.8)
    second = np.where(np.arange(40) < 3, 0.0, 0.8 + 0.001 * np.arange(40))
    found = compare_pairs(first, second)
    assert found.interval.method == "adjusted t"
    assert found.value - found.interval.low > 1.3 * (found.interval.high - found.value)


def test_few_clusters_allow_for_one_that_differs_as_a_whole() -> None:
    """The second model fails in one of ten clusters; a third of all samples contain no such cluster."""
    draw = np.random.default_rng(5)
    codes = np.repeat(np.arange(10), 10)
    hits = 0
    for _ in range(300):
        first, second = (draw.random(100) < 0.6).astype(float), (draw.random(100) < 0.8).astype(float)
        second *= ~(draw.random(10) < 0.1)[codes]
        found = compare_pairs(first, second, codes).interval
        hits += found.low <= 0.72 - 0.6 <= found.high
    assert hits >= 0.93 * 300


def test_many_clusters_leave_little_room_for_another_one() -> None:
    draw = np.random.default_rng(6)
    codes = np.repeat(np.arange(300), 10)
    first, second = (draw.random((2, 3000)) < 0.6).astype(float)
    found = compare_pairs(first, second, codes)
    assert found.interval.half_width == pytest.approx(1.968 * found.stderr, rel=0.05)


def test_clusters_of_different_sizes_contain_the_truth_as_often_as_promised() -> None:
    """Student's t with the degrees of freedom of equal clusters contains it in 90 %."""
    draw, hits = np.random.default_rng(6), []
    for _ in range(400):
        codes = np.repeat(np.arange(10), np.minimum(draw.geometric(0.15, 10), 30))
        first, second = (
            (draw.random(len(codes)) < draw.beta(2, 1, 10)[codes]).astype(float) for _ in range(2)
        )
        found = compare_pairs(first, second, codes).interval
        hits.append(found.low <= 0 <= found.high)
    assert np.mean(hits) >= 0.93
