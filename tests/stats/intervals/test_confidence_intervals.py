from __future__ import annotations

import math

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.intervals.confidence_intervals import (
    Interval,
    clustered_interval,
    compute_corrected_cluster_error,
    compute_design_effect,
    encode_clusters,
    estimate_ratio,
    mean_interval,
    t_interval,
    wilson_interval,
)

CASES = [(0, 5), (1, 5), (5, 5), (7, 40), (150, 300), (9_990, 10_000)]


@pytest.mark.parametrize(("successes", "total"), CASES)
def test_the_wilson_interval_equals_that_of_scipy(successes: int, total: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(successes, total).proportion_ci(0.95, method="wilson")
    found = wilson_interval(successes, total)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_the_t_interval_is_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(1).normal(size=12)
    mirrored = values - values.mean()
    found = t_interval(np.concatenate([mirrored, -mirrored]), level=0.9)  # not skewed, so nothing is adjusted
    wanted = stats.ttest_1samp(np.concatenate([mirrored, -mirrored]), 0).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))


def test_the_clustered_interval_is_that_of_a_regression_with_clustered_errors() -> None:
    api = pytest.importorskip("statsmodels.api")
    draw = np.random.default_rng(2)
    clusters = np.repeat(np.arange(8), 10)
    values = draw.normal(size=8)[clusters] + draw.normal(size=80)
    values[40:] = -values[:40]  # not skewed, so nothing is adjusted
    fitted = api.OLS(values, np.ones(80)).fit(cov_type="cluster", cov_kwds={"groups": clusters}, use_t=True)
    codes, count = encode_clusters(list(clusters))
    assert compute_corrected_cluster_error(values, codes, count) == pytest.approx(fitted.bse[0])
    found = clustered_interval(values, list(clusters))
    assert (found.low, found.high) == pytest.approx(tuple(fitted.conf_int()[0]))


def test_clusters_of_one_document_change_nothing() -> None:
    values = np.random.default_rng(3).random(20)
    codes, count = encode_clusters(list(range(20)))
    assert compute_corrected_cluster_error(values, codes, count) == pytest.approx(
        values.std(ddof=1) / np.sqrt(20)
    )
    assert mean_interval(values, list(range(20))).method == "adjusted t"


@pytest.mark.parametrize(
    ("values", "clusters", "method"),
    [
        ([0.0, 1.0, 1.0], None, "wilson"),
        ([0.0, 0.5, 1.0], None, "adjusted t"),
        ([0.0, 1.0, 1.0], ["a", "a", "b"], "clustered"),
    ],
)
def test_the_method_fits_the_scores(values: list[float], clusters: list[str] | None, method: str) -> None:
    assert mean_interval(values, clusters).method == method


def test_one_cluster_has_no_interval() -> None:
    with pytest.raises(AssayError, match="two clusters"):
        mean_interval([0.0, 1.0, 1.0], ["a", "a", "a"])


def test_a_share_stays_between_nothing_and_all() -> None:
    clustered = mean_interval([1.0] * 9 + [0.0], ["a", "a", "b", "b", "c", "c", "d", "d", "e", "e"])
    assert clustered.method == "clustered"
    assert 0.9 < clustered.high <= 1.0
    assert mean_interval([1.0, 0.9, 1.0], limits=(0.0, 1.0)).high <= 1.0


def test_scores_between_two_limits_have_no_wider_interval_than_right_and_wrong_answers() -> None:
    """Of all scores with this mean, those at the limits vary most."""
    halves = np.array([0.0, 0.5, 0.5, 1.0, 1.0])
    found, widest = mean_interval(halves), wilson_interval(3, 5)
    assert found.low == widest.low and found.high == widest.high
    assert found.high - found.low < 0.8 * (mean_interval(halves, limits=(0.0, np.inf)).high - found.low)
    graded = mean_interval(1 + 4 * halves, limits=(1.0, 5.0))
    assert (graded.low, graded.high) == pytest.approx((1 + 4 * found.low, 1 + 4 * found.high))


def test_clusters_have_no_wider_interval_than_one_answer_each() -> None:
    values = [1.0] * 45 + [0.0] * 5
    found, widest = mean_interval(values, np.repeat(np.arange(5), 10)), wilson_interval(4.5, 5)
    assert (found.low, found.high) == pytest.approx((widest.low, widest.high))


def test_clusters_that_are_all_right_are_not_certain() -> None:
    found = mean_interval([1.0] * 20, ["a"] * 10 + ["b"] * 10)
    assert found.low == wilson_interval(2, 2).low


@pytest.mark.parametrize(
    ("values", "clusters"),
    [
        pytest.param([0.5] * 10, None, id="documents"),
        pytest.param([0.5] * 10, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], id="clusters"),
        pytest.param([0.1 + 0.2] * 3 + [0.3] * 4, None, id="equal up to rounding"),
    ],
)
def test_scores_without_variance_are_not_certain(values: list[float], clusters: list[int] | None) -> None:
    found = mean_interval(values, clusters)
    assert found.low < values[0] - 0.05 and found.high > values[0] + 0.05
    assert found.low >= 0 and found.high <= 1


def test_equal_scores_without_a_range_have_no_interval() -> None:
    with pytest.raises(AssayError, match="range"):
        mean_interval([3.0] * 10)
    assert mean_interval([3.0] * 10, limits=(1.0, 5.0)).low < 2.9


def test_the_long_side_is_where_the_scores_are_skewed() -> None:
    values = np.array([0.0, 0.1, 0.1, 0.2, 0.1, 0.9])
    found = mean_interval(values)
    assert found.high - values.mean() > 1.3 * (values.mean() - found.low)
    mirrored = mean_interval(1 - values)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((found.low, found.high))
    assert mean_interval(5 + 10 * values, limits=(5.0, 15.0)).high == pytest.approx(5 + 10 * found.high)


def test_the_degrees_of_freedom_are_those_of_bell_and_mccaffrey() -> None:
    draw = np.random.default_rng(7)
    sizes = np.array([1.0, 2.0, 3.0, 5.0, 40.0])
    found = estimate_ratio(sizes * draw.random(5), sizes)
    shares = sizes / sizes.sum()
    steps = np.diag(sizes) @ (np.eye(5) - np.outer(np.ones(5), shares))
    product = steps.T @ steps
    assert found.degrees == pytest.approx(np.trace(product) ** 2 / np.trace(product @ product))
    assert found.error > found.plain_error


def test_documents_that_say_the_same_ten_times_are_worth_a_tenth() -> None:
    draw = np.random.default_rng(4)
    values = np.repeat(draw.integers(0, 2, size=200).astype(float), 10)
    assert compute_design_effect(values, np.repeat(np.arange(200), 10)) == pytest.approx(10, rel=0.02)


@pytest.mark.parametrize("wrong", [lambda: wilson_interval(0, 0), lambda: t_interval([1.0]), lambda: clustered_interval([1.0, 0.0], ["a", "a"])])  # fmt: skip
def test_no_interval_is_made_up(wrong: object) -> None:
    with pytest.raises(AssayError):
        wrong()  # type: ignore[operator]


def coverage(intervals: list[Interval], truth: float) -> float:
    return sum(one.low <= truth <= one.high for one in intervals) / len(intervals)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.98])
def test_for_few_documents_wilson_covers_and_the_normal_interval_does_not(share: float) -> None:
    draw = np.random.default_rng(5)
    hits = draw.binomial(20, share, size=2000)
    by_count = {count: wilson_interval(int(count), 20) for count in np.unique(hits)}
    assert coverage([by_count[count] for count in hits], share) > 0.92
    error = 1.96 * np.sqrt(hits / 20 * (1 - hits / 20) / 20)
    if share > 0.8:
        assert (np.abs(hits / 20 - share) <= error).mean() < 0.9


def test_with_few_clusters_the_clustered_interval_covers_and_the_plain_one_does_not() -> None:
    draw = np.random.default_rng(6)
    codes = np.repeat(np.arange(12), 10)
    plain, clustered = [], []
    for _ in range(1000):
        values = draw.normal(size=12)[codes] + draw.normal(size=120)
        plain.append(t_interval(values))
        clustered.append(clustered_interval(values, codes))
    assert coverage(clustered, 0.0) == pytest.approx(0.955, abs=0.02)
    assert coverage(plain, 0.0) < 0.75


def test_the_wilson_interval_covers_every_proportion() -> None:
    """The coverage for twenty documents is computed exactly, as a sum of twenty-one probabilities."""
    found = [wilson_interval(right, 20) for right in range(21)]
    coverage = []
    for share in np.linspace(0.01, 0.99, 197):
        chances = [math.comb(20, right) * share**right * (1 - share) ** (20 - right) for right in range(21)]
        hits = (chance for chance, one in zip(chances, found, strict=True) if one.low <= share <= one.high)
        coverage.append(sum(hits))
    assert min(coverage) >= 0.83
    assert 0.94 <= np.mean(coverage) <= 0.965
