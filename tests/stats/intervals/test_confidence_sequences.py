from __future__ import annotations

import itertools

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.stats.intervals.confidence_intervals import wilson_interval
from assay.stats.intervals.confidence_sequences import BettingMartingale, ConfidenceSequence


def shuffle_scores(scores: np.ndarray, games: int, draw: np.random.Generator) -> np.ndarray:
    """The same scores in another order for each game."""
    return draw.permuted(np.tile(scores, (games, 1)), axis=1)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.92])
def test_looking_after_every_document_misses_the_truth_no_more_often_than_promised(share: float) -> None:
    """2,000 runs of 400 documents, looked at after each: how often is the true mean ever outside?"""
    draw = np.random.default_rng(round(share * 100))
    scores = (np.arange(400) < 400 * share).astype(float)
    truth, games = scores.mean(), 2000
    orders = shuffle_scores(scores, games, draw)
    below = BettingMartingale(np.full(games, truth), 400, 0.025, target=0.05)
    above = BettingMartingale(np.full(games, 1 - truth), 400, 0.025, target=0.05)
    missed, naive = np.zeros(games, dtype=bool), np.zeros(games, dtype=bool)
    sums = np.zeros(games)
    for step in range(400):
        below.add(orders[:, step])
        above.add(1 - orders[:, step])
        sums += orders[:, step]
        if step < 399:  # with the last document the mean is known
            missed |= below.ruled_out | above.ruled_out
        mean = sums / (step + 1)
        if 10 <= step < 200:
            naive |= np.abs(mean - truth) > 1.96 * np.sqrt(mean * (1 - mean) / (step + 1))
    assert missed.mean() <= 0.055
    assert naive.mean() > 0.15


def test_scores_between_0_and_1_are_covered_too() -> None:
    draw = np.random.default_rng(3)
    scores = draw.beta(0.5, 1.5, size=300)
    games = 2000
    orders = shuffle_scores(scores, games, draw)
    below, above = (
        BettingMartingale(np.full(games, mean), 300, 0.025) for mean in (scores.mean(), 1 - scores.mean())
    )
    missed = np.zeros(games, dtype=bool)
    for step in range(299):
        below.add(orders[:, step])
        above.add(1 - orders[:, step])
        missed |= below.ruled_out | above.ruled_out
    assert missed.mean() <= 0.055


def test_the_interval_is_what_the_betters_have_not_ruled_out() -> None:
    draw = np.random.default_rng(4)
    scores = (draw.random(500) < 0.7).astype(float)
    sequence = ConfidenceSequence(500)
    grid = np.arange(1001) / 1000
    capital = BettingMartingale(grid, 500, 0.025)
    ruled = 0.0
    for score in scores[:200]:
        sequence.add([score])
        capital.add(score)
        ruled = max(ruled, grid[capital.ruled_out].max(initial=0.0))
    assert sequence.interval.low == pytest.approx(ruled, abs=1e-9)
    assert sequence.interval.low < scores.mean() < sequence.interval.high


def test_the_interval_narrows_and_closes_with_the_last_document() -> None:
    scores = (np.random.default_rng(5).random(300) < 0.8).astype(float)
    sequence, widths = ConfidenceSequence(300), []
    for score in scores:
        sequence.add([float(score)])
        widths.append(sequence.interval.half_width)
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(widths))
    assert widths[-1] == pytest.approx(0.0)
    assert sequence.interval.low == pytest.approx(scores.mean())
    assert widths[149] < 2.2 * wilson_interval(int(scores[:150].sum()), 150).half_width


def test_what_is_not_known_counts_as_wrong_below_and_as_right_above() -> None:
    sequence = ConfidenceSequence(10)
    sequence.add([1.0] * 8 + [None, None])
    assert (sequence.interval.low, sequence.interval.high) == (0.8, 1.0)


@pytest.mark.parametrize(("scores", "said"), [([1.5], "between 0 and 1"), ([1.0] * 4, "only 3")])
def test_scores_that_cannot_be_are_refused(scores: list[float], said: str) -> None:
    with pytest.raises(AssayError, match=said):
        ConfidenceSequence(3).add(scores)


def test_a_finite_benchmark_is_known_sooner_than_an_endless_one() -> None:
    scores = np.random.default_rng(8).permuted((np.arange(400) < 240).astype(float))
    finite, endless = ConfidenceSequence(400), ConfidenceSequence(1_000_000)
    for sequence in (finite, endless):
        sequence.add(scores[:360])
    assert finite.interval.half_width < 0.5 * endless.interval.half_width


def draw_clusters(draw: np.random.Generator, equal: bool) -> tuple[np.ndarray, np.ndarray]:
    """The sums and sizes of 60 clusters whose documents are nearly all right or nearly all wrong."""
    sizes = np.full(60, 10) if equal else draw.integers(1, 30, 60)
    return draw.binomial(sizes, draw.beta(0.4, 0.3, 60)).astype(float), sizes.astype(float)


@pytest.mark.parametrize("equal", [True, False])
def test_whole_clusters_miss_the_truth_no_more_often_than_promised(equal: bool) -> None:
    """2,000 orders of 60 clusters, looked at after each. Betting on their documents one by one misses too often."""
    draw, games = np.random.default_rng(11 + equal), 2000
    sums, sizes = draw_clusters(draw, equal)
    population, truth = int(sizes.sum()), sums.sum() / sizes.sum()
    orders = draw.permuted(np.tile(np.arange(60), (games, 1)), axis=1)
    below, above = (
        BettingMartingale(np.full(games, mean), population, 0.025, target=0.05, sizes=sizes[orders])
        for mean in (truth, 1 - truth)
    )
    single = BettingMartingale(np.full(games, truth), population, 0.05, target=0.05)
    missed, naive = np.zeros(games, dtype=bool), np.zeros(games, dtype=bool)
    for step in range(59):
        chosen = orders[:, step]
        below.add(sums[chosen])
        above.add(sizes[chosen] - sums[chosen])
        missed |= below.ruled_out | above.ruled_out
    if equal:  # documents in the order of their clusters, as if they were independent
        for step in range(300):
            chosen = orders[:, step // 10]
            single.add((step % 10 < sums[chosen]).astype(float))
            naive |= single.ruled_out
        assert naive.mean() > 0.15
    assert missed.mean() <= 0.055


def test_clusters_of_one_document_are_documents() -> None:
    scores = (np.random.default_rng(12).random(200) < 0.7).astype(float).tolist()
    plain, clustered = ConfidenceSequence(200), ConfidenceSequence(200, cluster_sizes=[1] * 200)
    plain.add(scores[:150])
    clustered.add(scores[:150])
    assert clustered.interval.low == pytest.approx(plain.interval.low)
    assert clustered.interval.high == pytest.approx(plain.interval.high)
    assert clustered.interval.method == "betting, whole clusters"


def test_only_complete_clusters_change_the_interval_and_the_last_one_closes_it() -> None:
    draw = np.random.default_rng(13)
    sizes = draw.integers(1, 12, 50).tolist()
    scores = [float(draw.random() < level) for size in sizes for level in [draw.beta(3, 1)] * size]
    sequence = ConfidenceSequence(len(scores), cluster_sizes=sizes)
    sequence.add(scores[: sum(sizes[:30])])
    before = sequence.interval
    assert 0 < before.low < np.mean(scores) < before.high < 1
    start = sum(sizes[:30])
    assert sizes[30] > 1
    sequence.add(scores[start : start + 1])
    assert sequence.interval == before
    sequence.add(scores[start + 1 :])
    assert sequence.interval.low == pytest.approx(np.mean(scores))
    assert sequence.interval.half_width == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(AssayError, match="add up"):
        ConfidenceSequence(10, cluster_sizes=[3, 3])
