from __future__ import annotations

import math
import random

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.aggregations import aggregate
from assay.stats.intervals.bootstrap import compute_replicates
from assay.stats.intervals.confidence_intervals import compute_corrected_cluster_error, encode_clusters
from assay.stats.intervals.resampling import (
    bootstrap_interval,
    bootstrap_means,
    compare_corpora,
    compute_fast_replicates,
    expanded_percentile_interval,
    percentile_interval,
)


@pytest.mark.parametrize("kind", ["binary", "continuous", "skewed"])
def test_means_of_resamples_are_spread_as_those_drawn_one_by_one(kind: str) -> None:
    draw = np.random.default_rng(1)
    values = {
        "binary": (draw.random(300) < 0.1).astype(float),
        "continuous": draw.random(700),
        "skewed": draw.lognormal(sigma=2.0, size=700),
    }[kind]
    quick = bootstrap_means(values, 40_000, seed=2)
    slow = values[draw.integers(0, len(values), size=(20_000, len(values)))].mean(axis=1)
    for share in (2.5, 16, 50, 84, 97.5):
        scale = np.std(slow)
        assert abs(np.percentile(quick, share) - np.percentile(slow, share)) < 0.06 * scale
    assert np.std(quick) == pytest.approx(values.std() / math.sqrt(len(values)), rel=0.02)


@pytest.mark.parametrize("size", [2, 7, 400, 401])
@pytest.mark.parametrize("name", ["median", "perplexity", "nanmean"])
def test_own_draws_are_spread_as_lm_evals(name: str, size: int) -> None:
    values = np.random.default_rng(size).normal(size=size).tolist()
    own, theirs = (
        compute_fast_replicates(name, values, 40_000),
        np.asarray(compute_replicates(name, values, 20_000)),
    )
    assert own is not None and own.shape == (40_000,)
    assert own.std() == pytest.approx(theirs.std(), rel=0.03)
    for at in np.percentile(theirs, [2.5, 16, 50, 84, 97.5]):  # medians jump, so shares are compared
        assert (own <= at + 1e-12).mean() == pytest.approx((theirs <= at + 1e-12).mean(), abs=0.025)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [1.0, -math.inf]])
def test_what_has_no_mean_is_refused(values: list[float]) -> None:
    with pytest.raises(AssayError):
        bootstrap_means(values)


@pytest.mark.parametrize("size", [9, 100, 5000])
def test_the_shape_of_sums_is_right_too(size: int) -> None:
    """The skewness of a mean is the values' own by the root of their number, however heavy their tails are."""
    values = np.random.default_rng(3).lognormal(sigma=1.5, size=size) - 1e6
    means = bootstrap_means(values, 400_000)
    away, own = means - means.mean(), values - values.mean()
    assert means.mean() == pytest.approx(values.mean(), abs=0.01 * means.std())
    assert means.std() == pytest.approx(values.std() / math.sqrt(size), rel=0.01)
    skewness = (own**3).mean() / values.std() ** 3 / math.sqrt(size)
    assert (away**3).mean() / means.std() ** 3 == pytest.approx(skewness, abs=0.03)


def test_values_that_hardly_differ_have_one_mean() -> None:
    means = bootstrap_means([at * 1e-200 for at in range(20)], 10)
    assert means.shape == (10,) and means.tolist() == pytest.approx([9.5e-200] * 10, rel=1e-6, abs=0)


def test_each_document_is_the_median_as_often_as_it_must_be() -> None:
    """Of three draws the second smallest is the smallest document with chance 7/27, the middle one with 13/27."""
    found = compute_fast_replicates("median", [30.0, 10.0, 20.0], 200_000)
    assert found is not None
    shares = [(found == one).mean() for one in (10.0, 20.0, 30.0)]
    assert shares == pytest.approx([7 / 27, 13 / 27, 7 / 27], abs=0.005)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("f1", [(0, 1), (1, 1)]),
        ("median", [1.0, math.nan]),
        ("median", ["a", "b"]),
        ("perplexity", []),
        ("perplexity", [-math.inf, 1.0]),
    ],
)
def test_where_every_document_counts_there_are_no_own_draws(name: str, values: list[object]) -> None:
    assert compute_fast_replicates(name, values, 10) is None


def test_the_percentile_interval_is_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(3).exponential(size=400)
    wanted = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=5000, rng=4
    ).confidence_interval
    found = percentile_interval(bootstrap_means(values, 50_000))
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=0.01)


def pairs(count: int, share: float, seed: int) -> list[tuple[int, int]]:
    draw = random.Random(seed)
    golds = [random.Random(99 + at).randrange(2) for at in range(count)]
    return [(gold, gold if draw.random() < share else 1 - gold) for gold in golds]


def test_a_corpus_metric_has_an_interval_around_it() -> None:
    values = pairs(400, 0.8, 1)
    found = bootstrap_interval("f1", values)
    assert found is not None
    assert found.low < aggregate("f1", values) < found.high
    assert 0.04 < found.half_width < 0.06


@pytest.mark.parametrize("name", ["f1", "matthews_corrcoef"])
def test_corpora_are_compared_pair_by_pair(name: str) -> None:
    weak, strong = pairs(300, 0.6, 1), pairs(300, 0.9, 2)
    found = compare_corpora(name, weak, strong)
    assert found is not None
    assert (found.first, found.second) == pytest.approx((aggregate(name, weak), aggregate(name, strong)))
    assert found.interval.low < found.value < found.interval.high
    assert found.p_value < 0.001
    same = compare_corpora(name, weak, weak)
    assert same is not None and same.p_value == 1.0 and same.value == 0.0


@pytest.mark.parametrize("name", ["ratio", "weighted_perplexity", "bits_per_byte", "perplexity", "median"])
def test_the_numbers_compared_are_those_the_aggregation_gives(name: str) -> None:
    draw = random.Random(5)
    if name in ("perplexity", "median"):
        columns = [[-draw.random() for _ in range(50)] for _ in range(2)]
    else:
        columns = [[(-draw.random() * 9, draw.randint(1, 9)) for _ in range(50)] for _ in range(2)]  # type: ignore[misc]
    found = compare_corpora(name, columns[0], columns[1], resamples=200)
    assert found is not None
    assert (found.first, found.second) == pytest.approx(
        (aggregate(name, columns[0]), aggregate(name, columns[1]))
    )


def test_what_cannot_be_resampled_has_no_comparison() -> None:
    assert compare_corpora("acc_all", [1, 2], [1, 2]) is None


def test_false_alarms_of_corpus_comparisons_are_rare() -> None:
    alarms = 0
    for seed in range(200):
        found = compare_corpora("f1", pairs(80, 0.7, 2 * seed), pairs(80, 0.7, 2 * seed + 1), resamples=200)
        alarms += found is not None and found.p_value <= 0.05
    assert alarms <= 22


def test_clusters_make_corpus_comparisons_as_unsure_as_they_are() -> None:
    """Documents that come in eights, all alike: one by one they look like eight times as many."""
    draw = np.random.default_rng(6)
    clusters = np.repeat(np.arange(24), 8)
    alarms = {"documents": 0, "clusters": 0}
    for seed in range(80):
        gold = np.repeat(draw.integers(0, 2, size=24), 8)
        answers = [np.where(np.repeat(draw.random(24) < 0.7, 8), gold, 1 - gold) for _ in range(2)]
        both = [list(zip(gold.tolist(), one.tolist(), strict=True)) for one in answers]
        for name, belonging in (("documents", None), ("clusters", clusters)):
            found = compare_corpora("f1", both[0], both[1], belonging, resamples=200, seed=seed)
            assert found is not None
            alarms[name] += found.p_value < 0.05
    assert alarms["clusters"] / 80 <= 0.11
    assert alarms["documents"] / 80 > 0.25


def test_whole_clusters_give_the_interval_of_a_cluster_bootstrap() -> None:
    draw = np.random.default_rng(7)
    clusters = np.repeat(np.arange(40), 5)
    values = np.repeat(draw.normal(size=40), 5)
    first = [(float(one), 1) for one in values]
    second = [(float(one) + 1.0, 1) for one in values + np.repeat(draw.normal(size=40), 5)]
    found = compare_corpora("ratio", first, second, clusters)
    assert found is not None
    steps = np.array([two[0] - one[0] for one, two in zip(first, second, strict=True)])
    codes, count = encode_clusters(clusters)
    assert found.stderr == pytest.approx(compute_corrected_cluster_error(steps, codes, count), rel=0.08)
    assert found.clusters == 40


def test_bootstrap_intervals_cover() -> None:
    """F1 of 150 documents whose true value is known from the chances that make them."""
    truth = 2 * 0.4 * 0.8 / (0.4 + 0.4 * 0.8 + 0.6 * 0.1)
    covered = 0
    for seed in range(300):
        draw = np.random.default_rng(seed)
        gold = draw.random(150) < 0.4
        said = draw.random(150) < np.where(gold, 0.8, 0.1)
        values = list(zip(gold.astype(int).tolist(), said.astype(int).tolist(), strict=True))
        found = bootstrap_interval("f1", values, resamples=300, seed=seed)
        assert found is not None
        covered += found.low <= truth <= found.high
    assert 0.9 <= covered / 300 <= 0.98


def test_an_interval_of_few_units_is_at_least_students_t() -> None:
    """The resamples of four documents end before the percentiles of Student's t."""
    replicates = np.repeat([0.4, 0.5, 0.6], [1, 8, 1])
    plain = expanded_percentile_interval(replicates, 4)
    assert (plain.low, plain.high) == pytest.approx((0.4, 0.6), abs=0.01)
    half = 3.182446 * math.sqrt(4 / 3) * float(replicates.std(ddof=1))
    found = expanded_percentile_interval(replicates, 4, value=0.5)
    assert (found.low, found.high) == pytest.approx((0.5 - half, 0.5 + half), rel=1e-6)
    assert expanded_percentile_interval(replicates, 4, value=0.55).high > found.high
