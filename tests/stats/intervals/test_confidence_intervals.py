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
    hypergeometric_interval,
    mean_interval,
    ratio_interval,
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
    codes = np.repeat(np.arange(5), 10)
    found, widest = mean_interval([1.0] * 40 + [0.0] * 10, codes), wilson_interval(4, 5)
    assert (found.low, found.high) == pytest.approx((widest.low, widest.high))
    found, widest = mean_interval([1.0] * 45 + [0.0] * 5, codes), wilson_interval(4.5, 5)
    assert widest.low < found.low < 0.6 and found.high < widest.high


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


def test_the_side_towards_a_limit_is_shorter_and_stays_inside_it() -> None:
    """Like an interval of the logarithm: t of 4 degrees, a standard error of a tenth of the mean, and no skewness."""
    values = np.array([8.0, 9.0, 10.0, 11.0, 12.0])
    error = values.std(ddof=1) / math.sqrt(5)
    found = mean_interval(values, limits=(0.0, math.inf))
    assert found.low == pytest.approx(10 * math.exp(-2.7764451 * error / 10))
    assert found.high == pytest.approx(10 + 2.7764451 * error, rel=1e-3)  # little variation, no tail
    assert mean_interval(values - 20, limits=(-math.inf, 0.0)).low < -10 - 2.77 * error
    varied = mean_interval([0.1, 0.2, 0.3, 5.0, 30.0], limits=(0.0, math.inf))
    assert 0 <= varied.low < varied.high


def test_log_probabilities_have_shorter_tails_than_other_losses() -> None:
    draw, covered, wider = np.random.default_rng(3), 0, []
    for _ in range(2000):
        losses = draw.exponential(1, 5)
        found = mean_interval(-losses, limits=(-math.inf, 0.0))
        other = mean_interval(losses, limits=(0.0, math.inf))
        assert found.high == pytest.approx(-other.low)
        covered += found.low <= -1 <= found.high
        wider.append((other.high - other.low) / (found.high - found.low))
    assert covered / 2000 >= 0.9
    assert np.mean(wider) > 1.3 and min(wider) >= 1 - 1e-9


def test_few_scores_without_limits_are_not_extended_by_an_outlier() -> None:
    values = np.array([-1.0, 0.0, 0.0, 1.0, 10.0])
    half = 2.7764451 * values.std(ddof=1) / math.sqrt(5)
    found = mean_interval(values, limits=(-math.inf, math.inf))
    assert found.high - 2 == pytest.approx(1.05 * half)
    assert 0.5 * half <= 2 - found.low < 0.8 * half
    many = mean_interval(np.repeat(values, 2), limits=(-math.inf, math.inf))
    assert many.high - 2 > 1.2 * 2.2621572 * np.repeat(values, 2).std(ddof=1) / math.sqrt(10)


def test_two_levels_bound_the_interval_if_one_is_repeated_inside_the_limits() -> None:
    """Five scores leave two fifths of the way from the levels to the limits for other levels."""
    found = mean_interval([0.2, 0.2, 0.2, 0.2, 0.9])
    low, high = 0.2 - 0.4 * 0.2, 0.9 + 0.4 * 0.1
    share = wilson_interval(5 * (0.34 - low) / (high - low), 5)
    assert found.low == pytest.approx(low + (high - low) * share.low)
    assert found.high == pytest.approx(low + (high - low) * share.high)
    judged = mean_interval([1.8, 1.8, 1.8, 1.8, 4.6], limits=(1.0, 5.0))
    assert (judged.low, judged.high) == pytest.approx((1 + 4 * found.low, 1 + 4 * found.high))


@pytest.mark.parametrize("values", [[0.0, 0.0, 0.0, 0.0, 0.9], [0.2, 0.2, 0.2, 0.5, 0.9]], ids=["repeated at a limit", "three levels"])  # fmt: skip
def test_other_scores_keep_their_limits(values: list[float]) -> None:
    found = mean_interval(values)
    assert found == ratio_interval(np.array(values), np.ones(5), limits=(0.0, 1.0), method="adjusted t")


def test_losses_that_vary_as_much_as_their_mean_have_a_long_upper_side() -> None:
    """Five losses without visible skewness can have an unseen tail, if their variation leaves room for one."""
    steps = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    ratios = []
    for middle in (20.0, 2.5):
        found = mean_interval(middle + steps, limits=(0.0, math.inf))
        ratios.append((found.high - middle) / (middle - found.low))
    assert ratios[0] < 1.2 and ratios[1] > 2


def test_units_of_different_sizes_do_not_hide_how_much_they_vary() -> None:
    """The largest of five units decides the ratio, so its own residual is small and says little about the variance."""
    sizes = np.array([1.0, 2.0, 3.0, 5.0, 40.0])
    draw = np.random.default_rng(7)
    drawn = 1 + 0.2 * draw.normal(size=(4000, 5))
    errors = np.array([estimate_ratio(sizes * one, sizes).error for one in drawn])
    true = 0.2 * math.sqrt(float((sizes**2).sum())) / sizes.sum()
    linear = [math.sqrt((((one - one @ sizes / 51) * sizes) ** 2).sum() * 5 / 4) / 51 for one in drawn]
    assert math.sqrt(np.mean(errors**2)) == pytest.approx(true, rel=0.05)
    assert math.sqrt(np.mean(np.square(linear))) < 0.6 * true
    assert estimate_ratio(sizes * drawn[0], sizes).effective_units == pytest.approx(51**2 / (sizes**2).sum())


def test_many_units_have_the_linearised_error() -> None:
    draw = np.random.default_rng(8)
    sizes = draw.lognormal(5, 0.8, 20_000)
    tops = sizes * (0.7 + draw.normal(size=20_000) / np.sqrt(sizes))  # long documents vary less
    steps = tops - tops.sum() / sizes.sum() * sizes
    assert estimate_ratio(tops, sizes).error == pytest.approx(
        math.sqrt(float((steps**2).sum())) / sizes.sum(), rel=0.001
    )


@pytest.mark.parametrize("bottoms", [[1.0, 0.0, 2.0, 1.0], [1e-12, 1.0, 1.0, 1.0]])
def test_units_without_a_size_have_an_interval(bottoms: list[float]) -> None:
    found = ratio_interval(np.array([0.5, 0.1, 1.0, 0.4]), np.array(bottoms), limits=(0.0, math.inf))
    assert 0 <= found.low < found.high < 8


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


@pytest.mark.parametrize(("sampled", "total"), [(5, 40), (20, 40), (36, 40), (1, 7), (7, 7)])
def test_exact_intervals_contain_every_share_of_all_documents_often_enough(sampled: int, total: int) -> None:
    found = [hypergeometric_interval(successes, sampled, total) for successes in range(sampled + 1)]
    for right in range(total + 1):
        ways = [
            math.comb(right, successes) * math.comb(total - right, sampled - successes)
            for successes in range(sampled + 1)
        ]
        covered = sum(
            count for count, one in zip(ways, found, strict=True) if one.low <= right / total <= one.high
        )
        assert covered / math.comb(total, sampled) >= 0.95, right


def test_exact_intervals_approach_those_of_unlimited_documents() -> None:
    found = hypergeometric_interval(30, 100, 1_000_000)  # Clopper and Pearson: 0.2124 to 0.3998
    assert (found.low, found.high) == pytest.approx((0.2124, 0.3998), abs=1e-4)


def test_an_exact_interval_needs_a_sample() -> None:
    with pytest.raises(AssayError, match="sample"):
        hypergeometric_interval(0, 0, 10)
