from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.intervals import (
    Interval,
    clopper_pearson,
    cluster_codes,
    cluster_error,
    clustered_interval,
    design_effect,
    jeffreys,
    mean_interval,
    t_interval,
    wilson,
)

CASES = [(0, 5), (1, 5), (5, 5), (7, 40), (150, 300), (9_990, 10_000)]


@pytest.mark.parametrize(("successes", "total"), CASES)
def test_wilson_and_the_exact_interval_are_scipys(successes: int, total: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    for ours, method in ((wilson, "wilson"), (clopper_pearson, "exact")):
        wanted = stats.binomtest(successes, total).proportion_ci(0.95, method=method)
        found = ours(successes, total)
        assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=1e-9)


@pytest.mark.parametrize(("successes", "total"), CASES)
def test_the_beta_interval_is_that_of_statsmodels(successes: int, total: int) -> None:
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    low, high = proportion.proportion_confint(successes, total, method="jeffreys")
    found = jeffreys(successes, total)
    wanted = (0.0 if successes == 0 else low, 1.0 if successes == total else high)
    assert (found.low, found.high) == pytest.approx(wanted, abs=1e-9)


def test_the_t_interval_is_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(1).normal(size=12)
    wanted = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    found = t_interval(values, level=0.9)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))


def test_the_clustered_interval_is_that_of_a_regression_with_clustered_errors() -> None:
    api = pytest.importorskip("statsmodels.api")
    draw = np.random.default_rng(2)
    clusters = draw.integers(0, 9, size=80)
    values = draw.normal(size=9)[clusters] + draw.normal(size=80)
    fitted = api.OLS(values, np.ones(80)).fit(cov_type="cluster", cov_kwds={"groups": clusters}, use_t=True)
    codes, count = cluster_codes(list(clusters))
    assert cluster_error(values, codes, count) == pytest.approx(fitted.bse[0])
    found = clustered_interval(values, list(clusters))
    assert (found.low, found.high) == pytest.approx(tuple(fitted.conf_int()[0]))


def test_clusters_of_one_document_change_nothing() -> None:
    values = np.random.default_rng(3).random(20)
    codes, count = cluster_codes(list(range(20)))
    assert cluster_error(values, codes, count) == pytest.approx(values.std(ddof=1) / np.sqrt(20))
    assert mean_interval(values, list(range(20))).method == "t"


@pytest.mark.parametrize(
    ("values", "clusters", "method"),
    [
        ([0.0, 1.0, 1.0], None, "wilson"),
        ([0.0, 0.5, 1.0], None, "t"),
        ([0.0, 1.0, 1.0], ["a", "a", "b"], "clustered"),
    ],
)
def test_the_method_fits_the_scores(values: list[float], clusters: list[str] | None, method: str) -> None:
    assert mean_interval(values, clusters).method == method


def test_nobody_can_tell_from_one_cluster() -> None:
    with pytest.raises(AssayError, match="two clusters"):
        mean_interval([0.0, 1.0, 1.0], ["a", "a", "a"])


def test_a_share_stays_between_nothing_and_all() -> None:
    clustered = mean_interval([1.0] * 9 + [0.0], ["a", "a", "b", "b", "c", "c", "d", "d", "e", "e"])
    assert clustered.method == "clustered"
    assert clustered.high == 1.0
    assert mean_interval([1.0, 0.9, 1.0], limits=(0.0, 1.0)).high == 1.0


def test_clusters_that_are_all_right_are_not_certain() -> None:
    found = mean_interval([1.0] * 20, ["a"] * 10 + ["b"] * 10)
    assert found.low == pytest.approx(wilson(2, 2).low)


def test_documents_that_say_the_same_ten_times_are_worth_a_tenth() -> None:
    draw = np.random.default_rng(4)
    values = np.repeat(draw.integers(0, 2, size=200).astype(float), 10)
    assert design_effect(values, np.repeat(np.arange(200), 10)) == pytest.approx(10, rel=0.02)


@pytest.mark.parametrize("wrong", [lambda: wilson(0, 0), lambda: t_interval([1.0]), lambda: clustered_interval([1.0, 0.0], ["a", "a"])])  # fmt: skip
def test_no_interval_is_made_up(wrong: object) -> None:
    with pytest.raises(AssayError):
        wrong()  # type: ignore[operator]


def coverage(intervals: list[Interval], truth: float) -> float:
    return sum(one.low <= truth <= one.high for one in intervals) / len(intervals)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.98])
def test_for_few_documents_wilson_covers_and_the_normal_interval_does_not(share: float) -> None:
    draw = np.random.default_rng(5)
    hits = draw.binomial(20, share, size=2000)
    by_count = {count: wilson(int(count), 20) for count in np.unique(hits)}
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
    assert coverage(clustered, 0.0) == pytest.approx(0.95, abs=0.02)
    assert coverage(plain, 0.0) < 0.75


@pytest.mark.parametrize(
    ("interval", "least", "middle"),
    [
        pytest.param(clopper_pearson, 0.95, (0.955, 0.995), id="exact: never below"),
        pytest.param(jeffreys, 0.87, (0.94, 0.965), id="beta: right on average"),
        pytest.param(wilson, 0.83, (0.94, 0.965), id="wilson: right on average"),
    ],
)
def test_proportions_are_covered_for_every_share(
    interval: Callable[[int, int], Interval], least: float, middle: tuple[float, float]
) -> None:
    """Not drawn but summed up: the coverage of twenty documents is a sum of twenty-one chances."""
    found = [interval(right, 20) for right in range(21)]
    coverage = []
    for share in np.linspace(0.01, 0.99, 197):
        chances = [math.comb(20, right) * share**right * (1 - share) ** (20 - right) for right in range(21)]
        hits = (chance for chance, one in zip(chances, found, strict=True) if one.low <= share <= one.high)
        coverage.append(sum(hits))
    assert min(coverage) >= least
    assert middle[0] <= np.mean(coverage) <= middle[1]
