# ruff: noqa: B023 - every function is called before its loop goes on
"""Simulate the coverage of every interval, the error rates of every test and the promises of `assay power`.

Run `python -m benchmarks.coverage` to write `benchmarks/COVERAGE.md` (about four minutes of one core), `--fast` for a short
version that only checks that everything runs. The true value of each row is known, so coverage is the share of samples whose
interval contains it. The intervals are those of the functions that runs use. The page says with which families their constants
were chosen.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.real_losses import read_losses
from benchmarks.reference_intervals import Bounds, Samples, compute_references
from benchmarks.width_bounds import Bound, compute_bounds
from numpy.typing import NDArray

from assay.stats.calibration import estimate_calibrated_mean
from assay.stats.comparisons.comparison import compare_pairs, compute_mcnemar_p_value
from assay.stats.comparisons.power import DifferenceVariance, find_detectable_effect
from assay.stats.comparisons.sign_flip_test import run_sign_flip_test
from assay.stats.comparisons.stratified import Stratum, combine_strata
from assay.stats.groups import GroupPart, compute_stratified_interval
from assay.stats.intervals.bootstrap import build_row_scorer
from assay.stats.intervals.confidence_intervals import Interval, mean_interval, wilson_interval
from assay.stats.intervals.confidence_sequences import ConfidenceSequence
from assay.stats.intervals.corpus_intervals import corpus_interval
from assay.stats.intervals.resampling import compare_corpora, percentile_interval
from assay.stats.numerics.distributions import t_quantile

__all__ = ["HELD_OUT_FAMILIES", "TUNING_FAMILIES", "Row", "main", "simulate_rows"]

TABLES = {
    "tuning": "Families used for tuning",
    "held out": "Held-out families",
    "later": "Families added later",
}

Draw = np.random.Generator
Floats = NDArray[np.float64]
SIZES = (5, 10, 30)
MAX_EXCESS_WIDTH = 1.15
"""An interval is at most this many times as wide as the narrowest known interval that covers in the same row."""

NOMINAL_COVERAGE = 0.94
"""The nominal level of 95 %, less two standard errors of the simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one interval did in one row."""

    share: float
    width: float
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    kind: str
    name: str
    size: str
    share: float
    goal: str
    passed: bool
    width: float | None = None
    best: str = ""
    """The narrowest known interval that covers in this row; empty if not measured or if none covers."""

    ratio: float | None = None
    """The width divided by that of `best`."""

    table: str = "tuning"
    """The table that contains the row: a key of `TABLES`."""

    references: Mapping[str, Measurement] = field(default_factory=dict)
    """What each known interval did in this row."""

    @property
    def is_narrow(self) -> bool | None:
        """Whether the width is close to the best known; None if there is none."""
        return None if self.ratio is None else self.ratio <= MAX_EXCESS_WIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A distribution of scores with a known mean."""

    draw: Callable[[Draw, int], Any]
    truth: float
    limits: tuple[float, float] = (0.0, 1.0)

    @property
    def known_limits(self) -> tuple[float, float] | None:
        """The limits that a run knows: those of a loss (`higher_is_better: false`). It guesses others from the scores."""
        return self.limits if self.limits == _LOSS else None


_LOSS = (0.0, math.inf)
TUNING_FAMILIES = {
    "lognormal": Family(draw=lambda rng, n: rng.lognormal(0, 1, n), truth=math.exp(0.5), limits=_LOSS),
    "Beta(.5, 5)": Family(draw=lambda rng, n: rng.beta(0.5, 5, n), truth=0.5 / 5.5),
    "Beta(5, .5)": Family(draw=lambda rng, n: rng.beta(5, 0.5, n), truth=5 / 5.5),
    "exponential": Family(draw=lambda rng, n: rng.exponential(1, n), truth=1.0, limits=_LOSS),
    "Beta(2, 2)": Family(draw=lambda rng, n: rng.beta(2, 2, n), truth=0.5),
    "0, ½ or 1": Family(draw=lambda rng, n: rng.choice([0, 0.5, 1], p=[0.1, 0.2, 0.7], size=n), truth=0.8),
}
HELD_OUT_FAMILIES = {
    "gamma, shape .3": Family(draw=lambda rng, n: rng.gamma(0.3, 1, n), truth=0.3, limits=_LOSS),
    "Weibull, shape .7": Family(
        draw=lambda rng, n: rng.weibull(0.7, n), truth=math.gamma(1 + 1 / 0.7), limits=_LOSS
    ),
    "Pareto, index 3": Family(draw=lambda rng, n: 1 + rng.pareto(3, n), truth=1.5, limits=_LOSS),
    "inverse Gaussian": Family(draw=lambda rng, n: rng.wald(1, 1, n), truth=1.0, limits=_LOSS),
    "half zero, else exponential": Family(
        draw=lambda rng, n: np.where(rng.random(n) < 0.5, 0.0, rng.exponential(1, n)), truth=0.5, limits=_LOSS
    ),
    "70 % zero, else uniform": Family(
        draw=lambda rng, n: np.where(rng.random(n) < 0.7, 0.0, rng.random(n)), truth=0.15
    ),
    "0.2, or 0.9 (10 %)": Family(draw=lambda rng, n: np.where(rng.random(n) < 0.1, 0.9, 0.2), truth=0.27),
    "0.2, or 0.9 (30 %)": Family(draw=lambda rng, n: np.where(rng.random(n) < 0.3, 0.9, 0.2), truth=0.41),
    "minus gamma, shape 1.5": Family(
        draw=lambda rng, n: -rng.gamma(1.5, 1, n), truth=-1.5, limits=(-math.inf, 0.0)
    ),
    "Beta(8, 1)": Family(draw=lambda rng, n: rng.beta(8, 1, n), truth=8 / 9),
    "uniform": Family(draw=lambda rng, n: rng.random(n), truth=0.5),
    "thirds": Family(draw=lambda rng, n: rng.integers(0, 4, n) / 3, truth=0.5),
    "Student's t, 3 degrees": Family(
        draw=lambda rng, n: rng.standard_t(3, n), truth=0.0, limits=(-math.inf, math.inf)
    ),
}


LATER_FAMILIES = {
    "quarters, mostly ½": Family(
        draw=lambda rng, n: rng.choice([0, 0.25, 0.5, 0.75, 1], p=[0.05, 0.1, 0.6, 0.2, 0.05], size=n),
        truth=0.525,
    ),
    "quarters, mostly 1": Family(
        draw=lambda rng, n: rng.choice([0, 0.25, 0.5, 0.75, 1], p=[0.02, 0.03, 0.1, 0.35, 0.5], size=n),
        truth=0.82,
    ),
    "0.4 or 0.6": Family(draw=lambda rng, n: rng.choice([0.4, 0.6], size=n), truth=0.5),
    "0.8 or 1, zeros (10 %)": Family(
        draw=lambda rng, n: rng.choice([0, 0.8, 1], p=[0.1, 0.5, 0.4], size=n), truth=0.8
    ),
    "normal": Family(draw=lambda rng, n: rng.normal(0, 1, n), truth=0.0, limits=(-math.inf, math.inf)),
    "Laplace": Family(draw=lambda rng, n: rng.laplace(0, 1, n), truth=0.0, limits=(-math.inf, math.inf)),
    "exponential minus 1": Family(
        draw=lambda rng, n: rng.exponential(1, n) - 1, truth=0.0, limits=(-math.inf, math.inf)
    ),
    "minus exponential": Family(
        draw=lambda rng, n: -rng.exponential(1, n), truth=-1.0, limits=(-math.inf, 0.0)
    ),
    "minus lognormal": Family(
        draw=lambda rng, n: -rng.lognormal(0, 1, n), truth=-math.exp(0.5), limits=(-math.inf, 0.0)
    ),
}
"""Families that show what the rules cost that were added after the other two tables were known."""


def find_goal(size: int) -> float:
    """Return the coverage that an interval of this many documents or clusters should have."""
    return 0.90 if size < 10 else 0.93


def measure_bounds(bounds: Bounds, truth: float) -> tuple[float, float]:
    """Return the coverage and the mean width of some intervals."""
    low, high = bounds
    return float(np.mean((low - 1e-12 <= truth) & (truth <= high + 1e-12))), float(np.mean(high - low))


def compare_widths(row: Row, references: Mapping[str, Bounds], truth: float, goal: float) -> Row:
    """Return the row with the narrowest reference that covers the truth often enough."""
    measured: dict[str, Measurement] = {}
    for name, bounds in references.items():
        share, width = measure_bounds(bounds, truth)
        measured[name] = Measurement(share=share, width=width, passed=share >= goal and width > 0)
    covering = {name: one.width for name, one in measured.items() if one.passed}
    row = replace(row, references=measured)
    if not covering or row.width is None:
        return replace(row, best="none covers")
    best = min(covering, key=covering.__getitem__)
    return replace(row, best=best, ratio=row.width / covering[best])


def measure(
    draw: Draw, repeats: int, sample: Callable[[Draw], tuple[Interval | None, float]]
) -> tuple[float, float]:
    """Return the coverage and the mean width of an interval; samples without one are left out."""
    hits, widths = [], []
    for _ in range(repeats):
        interval, truth = sample(draw)
        if interval is not None:
            hits.append(interval.low - 1e-12 <= truth <= interval.high + 1e-12)
            widths.append(interval.high - interval.low)
    return float(np.mean(hits)), float(np.mean(widths))


def simulate_means(draw: Draw, repeats: int) -> Iterator[Row]:
    """Means of skewed and symmetric scores."""
    yield from measure_means(draw, repeats, TUNING_FAMILIES, "tuning")
    yield from measure_means(draw, repeats, HELD_OUT_FAMILIES, "held out")


def measure_means(draw: Draw, repeats: int, families: Mapping[str, Family], table: str) -> Iterator[Row]:
    """Means of some families."""
    for name, family in families.items():
        for size in SIZES:
            values = np.stack([family.draw(draw, size) for _ in range(repeats)]).astype(np.float64)
            values = values[values.std(axis=1) > 1e-12]  # equal scores have another interval
            found = [mean_interval(one, limits=family.known_limits) for one in values]
            ours = np.array([one.low for one in found]), np.array([one.high for one in found])
            share, width = measure_bounds(ours, family.truth)
            row = coverage_row("mean", name, size, share, width)
            references = compute_references(Samples(values), family.limits, draw)
            yield compare_widths(replace(row, table=table), references, family.truth, find_goal(size))


def coverage_row(kind: str, name: str, size: int, share: float, width: float, label: str = "") -> Row:
    least = find_goal(size)
    return Row(
        kind=kind,
        name=name,
        size=label or str(size),
        share=share,
        goal=f"≥ {least:.2f}",
        passed=share >= least,
        width=width,
    )


# --- corpus metrics ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusCase:
    """A corpus metric that is a function of a ratio of sums over documents."""

    aggregation: str
    draw: Callable[[Draw, int], list[Any]]
    truth: float
    to_ratio: Callable[[Any], Samples]
    """The documents of many samples as tops and bottoms."""

    limits: tuple[float, float]
    """The range of the ratio."""

    from_ratio: Callable[[Floats], Floats]


def draw_bytes(rng: Draw, n: int) -> list[Any]:
    counts = rng.lognormal(5, 0.8, n)
    return [*np.stack([-0.7 * counts * rng.gamma(8, 1 / 8, n), counts], 1).tolist()]


def draw_labels(rng: Draw, n: int, positive: float = 0.4, right: float = 0.8) -> list[Any]:
    golds = rng.random(n) < positive
    given = np.where(rng.random(n) < right, golds, ~golds)
    return list(zip(golds.astype(int).tolist(), given.astype(int).tolist(), strict=True))


def split_f1(values: Any) -> Samples:
    """Return F1 as a ratio: twice the true positives to the labels and predictions."""
    table = np.asarray(values, dtype=np.float64)
    return Samples(2 * table.prod(axis=2), table.sum(axis=2) + 1e-9)


def split_columns(values: Any) -> Samples:
    table = np.asarray(values, dtype=np.float64)
    return Samples(table[..., 0], table[..., 1])


CORPUS_CASES = {
    "perplexity": CorpusCase(
        aggregation="perplexity",
        draw=lambda rng, n: (-rng.gamma(4, 0.5, n)).tolist(),
        truth=math.exp(2),
        to_ratio=lambda values: Samples(np.asarray(values)),
        limits=(-math.inf, 0.0),
        from_ratio=lambda ratios: np.exp(-ratios),
    ),
    "bits per byte": CorpusCase(
        aggregation="bits_per_byte",
        draw=draw_bytes,
        truth=0.7 / math.log(2),
        to_ratio=split_columns,
        limits=(-math.inf, 0.0),
        from_ratio=lambda ratios: -ratios / math.log(2),
    ),
    "weighted perplexity": CorpusCase(
        aggregation="weighted_perplexity",
        draw=draw_bytes,
        truth=math.exp(0.7),
        to_ratio=split_columns,
        limits=(-math.inf, 0.0),
        from_ratio=lambda ratios: np.exp(-ratios),
    ),
    "F1, 0.76": CorpusCase(
        aggregation="f1",
        draw=draw_labels,
        truth=0.64 / 0.84,
        to_ratio=split_f1,
        limits=(0.0, 1.0),
        from_ratio=lambda ratios: ratios,
    ),
    "F1, 0.92": CorpusCase(
        aggregation="f1",
        draw=lambda rng, n: draw_labels(rng, n, 0.6, 0.9),
        truth=2 * 0.54 / (0.6 + 0.54 + 0.04),
        to_ratio=split_f1,
        limits=(0.0, 1.0),
        from_ratio=lambda ratios: ratios,
    ),
}


def simulate_corpora(draw: Draw, repeats: int) -> Iterator[Row]:
    """Corpus metrics."""
    for name, case in CORPUS_CASES.items():
        for size in SIZES:
            yield measure_corpus(draw, repeats, name, case, size)
    yield from simulate_medians(draw, repeats)
    yield from simulate_translations(draw, repeats)


def measure_corpus(draw: Draw, repeats: int, name: str, case: CorpusCase, size: int) -> Row:
    """Measure a corpus metric against the known intervals of the ratio behind it."""
    drawn = [case.draw(draw, size) for _ in range(repeats)]
    pairs = [
        (values, one) for values in drawn if (one := corpus_interval(case.aggregation, values)) is not None
    ]
    scale = np.log if "perplexity" in case.aggregation else np.asarray
    ours = split_bounds([(one.low, one.high) for _, one in pairs])
    share, width = measure_bounds((scale(ours[0]), scale(ours[1])), float(scale(case.truth)))
    references = transform_bounds(
        compute_references(case.to_ratio([values for values, _ in pairs]), case.limits, draw),
        lambda ratios: scale(case.from_ratio(ratios)),
    )
    row = coverage_row("corpus", name, size, share, width)
    return compare_widths(row, references, float(scale(case.truth)), find_goal(size))


def build_real_case(recorded: Floats) -> CorpusCase:
    """Return the case whose documents are drawn from those that a model has read."""
    if recorded.ndim == 1:
        known = CORPUS_CASES["perplexity"]
        truth = math.exp(-float(recorded.mean()))
    else:
        known = CORPUS_CASES["bits per byte"]
        truth = -float(recorded[:, 0].sum() / recorded[:, 1].sum()) / math.log(2)
    return replace(
        known, draw=lambda rng, n: recorded[rng.integers(0, len(recorded), n)].tolist(), truth=truth
    )


def simulate_later_families(draw: Draw, repeats: int) -> Iterator[Row]:
    """Losses of real models, and families that show what later rules cost."""
    for name, recorded in read_losses().items():
        case = build_real_case(recorded)
        for size in SIZES:
            kind = "perplexity" if recorded.ndim == 1 else "bits per byte"
            yield replace(measure_corpus(draw, repeats, f"{kind}, {name}", case, size), table="later")
    yield from measure_means(draw, repeats, LATER_FAMILIES, "later")
    for names, sizes in LATER_GROUPS:
        yield simulate_skewed_group(draw, repeats, names, sizes, "later")


def transform_bounds(
    references: Mapping[str, Bounds], function: Callable[[Floats], Floats]
) -> dict[str, Bounds]:
    """Return the bounds of a monotone function."""
    moved = {name: (function(low), function(high)) for name, (low, high) in references.items()}
    return {name: (np.minimum(*pair), np.maximum(*pair)) for name, pair in moved.items()}


def simulate_medians(draw: Draw, repeats: int) -> Iterator[Row]:
    """Medians, against the percentile bootstrap."""
    for size in SIZES:
        values = draw.exponential(1, (repeats, size))
        found = [corpus_interval("median", one.tolist()) for one in values]
        known = [one for one in found if one is not None]
        ours = np.array([one.low for one in known]), np.array([one.high for one in known])
        share, width = measure_bounds(ours, math.log(2))
        drawn = np.sort(values[:, draw.integers(0, size, (500, size))], axis=2)[:, :, size // 2]
        low, high = np.quantile(drawn, (0.025, 0.975), axis=1)
        row = coverage_row("corpus", "median", size, share, width)
        yield compare_widths(row, {"percentile": (low, high)}, math.log(2), find_goal(size))


def draw_sentences(rng: Draw, n: int) -> list[tuple[str, str]]:
    """Draw references and translations that keep each word with a chance of their own."""
    pairs = []
    for keep in rng.beta(6, 2, n):
        words = rng.integers(0, 300, rng.integers(6, 25))
        kept = np.where(rng.random(len(words)) < keep, words, rng.integers(0, 300, len(words)))
        pairs.append((" ".join(f"w{one}" for one in words), " ".join(f"w{one}" for one in kept)))
    return pairs


def simulate_translations(draw: Draw, repeats: int) -> Iterator[Row]:
    """BLEU, against Student's t of jackknife pseudo-values, the normal and the plain percentile bootstrap."""
    whole = draw_sentences(draw, max(1000, min(20_000, 10 * repeats)))
    score = build_row_scorer("bleu", whole)
    assert score is not None
    truth = score(np.arange(len(whole), dtype=np.intp)[None, :])[0]
    for size in SIZES:
        ours: list[tuple[float, float]] = []
        others: dict[str, list[tuple[float, float]]] = {"jackknife t": [], "percentile": [], "normal": []}
        for _ in range(max(4, repeats // 5)):
            values = [whole[one] for one in draw.integers(0, len(whole), size)]
            found, own = corpus_interval("bleu", values), build_row_scorer("bleu", values)
            if found is None or own is None:
                continue
            ours.append((found.low, found.high))
            value = own(np.arange(size, dtype=np.intp)[None, :])[0]
            left_out = own(
                np.array([[k for k in range(size) if k != one] for one in range(size)], dtype=np.intp)
            )
            pseudo = size * value - (size - 1) * np.array(left_out)
            half = t_quantile(0.975, size - 1) * float(pseudo.std(ddof=1)) / math.sqrt(size)
            others["jackknife t"].append((max(0.0, value - half), min(100.0, value + half)))
            drawn = np.array(own(draw.integers(0, size, (500, size)).astype(np.intp)))
            plain, half = percentile_interval(drawn), 1.96 * float(drawn.std(ddof=1))
            others["percentile"].append((plain.low, plain.high))
            others["normal"].append((max(0.0, value - half), min(100.0, value + half)))
        share, width = measure_bounds(split_bounds(ours), truth)
        row = coverage_row("corpus", "BLEU", size, share, width)
        references = {name: split_bounds(pairs) for name, pairs in others.items()}
        yield compare_widths(row, references, truth, find_goal(size))


def split_bounds(pairs: list[tuple[float, float]]) -> Bounds:
    low, high = np.array(pairs).T
    return low, high


# --- clusters and groups -----------------------------------------------------------------------------


ClusterCase = tuple[Callable[[Draw], Any], Callable[[Draw, Any], Any], float, tuple[float, float], bool]
"""The cluster of each document, the scores, their mean and range, and whether the case is held out."""


def draw_answers(rng: Draw, codes: Any, share: float, likeness: float = 4.0) -> Any:
    """Draw right and wrong answers whose clusters differ."""
    levels = rng.beta(likeness * share, likeness - likeness * share, codes[-1] + 1)
    return (rng.random(len(codes)) < levels[codes]).astype(float)


def simulate_clusters(draw: Draw, repeats: int) -> Iterator[Row]:
    """Clusters of ten documents, and of different sizes."""
    for count in SIZES:
        equal = np.repeat(np.arange(count), 10)

        def draw_equal(rng: Draw) -> Any:
            return equal

        def draw_sizes(rng: Draw) -> Any:
            return np.repeat(np.arange(count), rng.geometric(0.15, count))

        cases: dict[str, ClusterCase] = {
            "heavy-tailed": (
                draw_equal,
                lambda rng, codes: rng.lognormal(0, 1, count)[codes] * rng.gamma(5, 0.2, len(codes)),
                math.exp(0.5),
                _LOSS,
                False,
            ),
            "right or wrong, p = 0.5": (
                draw_equal,
                lambda rng, codes: draw_answers(rng, codes, 0.5),
                0.5,
                (0.0, 1.0),
                False,
            ),
            "right or wrong, p = 0.9": (
                draw_equal,
                lambda rng, codes: draw_answers(rng, codes, 0.9),
                0.9,
                (0.0, 1.0),
                False,
            ),
            "sizes 1 to 30, right or wrong, p = 0.7": (
                draw_sizes,
                lambda rng, codes: draw_answers(rng, codes, 0.7, 2.0),
                0.7,
                (0.0, 1.0),
                True,
            ),
            "sizes 1 to 30, gamma, shape .5": (
                draw_sizes,
                lambda rng, codes: rng.gamma(0.5, 2, count)[codes] * rng.gamma(4, 0.25, len(codes)),
                1.0,
                _LOSS,
                True,
            ),
        }
        label = {False: f"{count} × 10", True: f"{count} clusters"}
        for name, (sizes, make, truth, limits, held_out) in cases.items():
            found, tops, bottoms = [], [], []
            for _ in range(repeats):
                codes = sizes(draw)
                values = make(draw, codes)
                if values.std() == 0:
                    continue
                found.append(mean_interval(values, codes, limits=limits if limits == _LOSS else None))
                tops.append(np.bincount(codes, weights=values))
                bottoms.append(np.bincount(codes).astype(np.float64))
            share, width = measure_bounds(split_bounds([(one.low, one.high) for one in found]), truth)
            row = coverage_row("clusters", name, count, share, width, label[held_out])
            row = replace(row, table="held out" if held_out else "tuning")
            references = compute_references(Samples(np.stack(tops), np.stack(bottoms)), limits, draw)
            yield compare_widths(row, references, truth, find_goal(count))
        means = -draw.gamma(4, 0.5, (repeats, count))
        perplexities = [corpus_interval("perplexity", one[equal].tolist(), equal) for one in means]
        pairs = [(math.log(one.low), math.log(one.high)) for one in perplexities if one is not None]
        share, width = measure_bounds(split_bounds(pairs), 2.0)
        row = coverage_row("clusters", "perplexity", count, share, width, label[False])
        references = transform_bounds(
            compute_references(Samples(means), (-math.inf, 0.0), draw), lambda ratios: -ratios
        )
        yield compare_widths(row, references, 2.0, find_goal(count))


GROUPS: tuple[tuple[tuple[int, ...], tuple[float, ...], bool], ...] = (
    ((1, 1), (0.4, 0.6), False),
    ((1, 1), (0.9, 0.9), False),
    ((10, 10), (0.9, 0.9), False),
    ((5, 30), (0.9, 0.5), False),
    ((20, 20, 20, 20, 20), (0.95, 0.9, 0.7, 0.5, 0.2), True),
    ((8, 40, 12), (0.98, 0.6, 0.75), True),
)


LATER_GROUPS: tuple[tuple[tuple[str, ...], tuple[int, ...]], ...] = (
    (("Beta(.5, 5)", "Beta(8, 1)"), (5, 5)),
    (("Beta(.5, 5)", "Beta(.5, 5)"), (5, 5)),
    (("Beta(.5, 5)", "Beta(.5, 5)"), (10, 10)),
    (("exponential", "exponential"), (5, 40)),
    (("lognormal", "lognormal"), (10, 10)),
    (("lognormal",) * 10, (5,) * 10),
)


def simulate_groups(draw: Draw, repeats: int) -> Iterator[Row]:
    """Groups of tasks with few documents, against other intervals of a mean of proportions."""
    for sizes, levels, held_out in GROUPS:
        truth = sum(levels) / len(levels)
        rights = draw.binomial(np.array(sizes), np.array(levels), (repeats, len(sizes)))
        ours: list[tuple[float, float]] = []
        for row_rights in rights:
            parts = [build_share_part(int(k), n) for k, n in zip(row_rights, sizes, strict=True)]
            found = compute_stratified_interval(parts, weight_by_size=False)
            if found is not None:
                ours.append((found.low, found.high))
        share, width = measure_bounds(split_bounds(ours), truth)
        name = "p = " + ", ".join(map(str, levels))
        row = coverage_row("group", name, min(sizes), share, width, " + ".join(map(str, sizes)))
        references = compute_group_references(rights, np.array(sizes))
        row = replace(row, table="held out" if held_out else "tuning")
        yield compare_widths(row, references, truth, find_goal(min(sizes)))
    for size in SIZES[1:]:
        yield simulate_skewed_group(draw, repeats, ("Beta(.5, 5)", "Beta(8, 1)"), (size, size), "held out")


def build_share_part(right: int, size: int) -> GroupPart:
    found = wilson_interval(right, size)
    return GroupPart(
        value=right / size, stderr=None, size=size, interval=(found.low, found.high), method=found.method
    )


def compute_group_references(rights: Any, sizes: Any) -> dict[str, Bounds]:
    """Return MOVER of Wilson intervals, Agresti and Caffo's added documents, and Satterthwaite's t."""
    tasks, shares = len(sizes), rights / sizes
    value = shares.mean(axis=1)
    limits = [[wilson_interval(int(k), int(n)) for k, n in zip(row, sizes, strict=True)] for row in rights]
    below = np.array([[one.low for one in row] for row in limits])
    above = np.array([[one.high for one in row] for row in limits])
    lower = np.sqrt(((shares - below) ** 2).sum(axis=1)) / tasks
    upper = np.sqrt(((above - shares) ** 2).sum(axis=1)) / tasks
    added = (rights + 1) / (sizes + 2)
    spread = 1.96 * np.sqrt((added * (1 - added) / (sizes + 2)).sum(axis=1)) / tasks
    found = {
        "MOVER": (value - lower, value + upper),
        "Agresti-Caffo": (added.mean(axis=1) - spread, added.mean(axis=1) + spread),
    }
    if sizes.min() > 1:
        parts = shares * (1 - shares) / (sizes - 1)
        total = parts.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            degrees = np.nan_to_num(total**2 / (parts**2 / (sizes - 1)).sum(axis=1), nan=1.0)
        half = np.array([t_quantile(0.975, max(1.0, round(float(one), 1))) for one in degrees])
        half = half * np.sqrt(total) / tasks
        found["Satterthwaite t"] = (value - half, value + half)
    return {name: (np.clip(low, 0, 1), np.clip(high, 0, 1)) for name, (low, high) in found.items()}


def simulate_skewed_group(
    draw: Draw, repeats: int, names: Sequence[str], sizes: Sequence[int], table: str
) -> Row:
    """A group of tasks with skewed scores, against Satterthwaite's t and MOVER of t intervals."""
    families = [{**TUNING_FAMILIES, **HELD_OUT_FAMILIES}[name] for name in names]
    truth = sum(family.truth for family in families) / len(families)
    drawn = [
        np.stack([family.draw(draw, size) for _ in range(repeats)])
        for family, size in zip(families, sizes, strict=True)
    ]
    ours: list[tuple[float, float]] = []
    for tasks in zip(*drawn, strict=True):
        parts = []
        for values, family in zip(tasks, families, strict=True):
            found = mean_interval(values, limits=family.known_limits)
            parts.append(
                GroupPart(
                    value=float(values.mean()),
                    stderr=None,
                    size=len(values),
                    interval=(found.low, found.high),
                    method=found.method,
                )
            )
        whole = compute_stratified_interval(parts, weight_by_size=False)
        assert whole is not None
        ours.append((whole.low, whole.high))
    variances = np.stack([one.var(axis=1, ddof=1) / size for one, size in zip(drawn, sizes, strict=True)])
    freedom = np.array(sizes)[:, None] - 1
    total = variances.sum(axis=0)
    degrees = total**2 / (variances**2 / freedom).sum(axis=0)
    half = np.array([t_quantile(0.975, round(float(one), 1)) for one in degrees]) * np.sqrt(total)
    value = np.mean([one.mean(axis=1) for one in drawn], axis=0)
    quantiles = np.array([[t_quantile(0.975, size - 1)] for size in sizes])
    halves = {"Satterthwaite t": half, "MOVER": np.sqrt((quantiles**2 * variances).sum(axis=0))}
    references = {name: (value - one / len(sizes), value + one / len(sizes)) for name, one in halves.items()}
    share, width = measure_bounds(split_bounds(ours), truth)
    counts = " + ".join(map(str, sizes)) if len(sizes) < 5 else f"{len(sizes)} × {sizes[0]}"
    title = ", ".join(names) if len(set(names)) > 1 or len(names) == 1 else f"{len(names)} × {names[0]}"
    row = coverage_row("group", title, min(sizes), share, width, counts)
    return compare_widths(replace(row, table=table), references, truth, find_goal(min(sizes)))


def simulate_judges(draw: Draw, repeats: int) -> Iterator[Row]:
    """Judges that err rarely, calibrated with few labels."""
    for labels in (5, 10, 20, 50):
        for error in (0.0, 0.02, 0.1, 0.3):

            def sample(rng: Draw) -> tuple[Interval | None, float]:
                truth = (rng.random(labels + 500) < 0.7).astype(float)
                judged = np.where(rng.random(len(truth)) < error, 0.0, truth)
                return estimate_calibrated_mean(
                    truth[:labels], judged[:labels], judged[labels:]
                ).interval, 0.7

            share, width = measure(draw, repeats, sample)
            yield coverage_row("calibrate", f"judge misses {error:.0%}", labels, share, width)


def simulate_comparisons(draw: Draw, repeats: int) -> Iterator[Row]:
    """Type I errors of tests, and the power that `assay power` promises."""

    for size in (10, 30):
        first, second = (draw.random((repeats, size)) < 0.6 for _ in range(2))
        found = [
            compare_pairs(a.astype(float), b.astype(float)).p_value < 0.05
            for a, b in zip(first, second, strict=True)
        ]
        yield error_row("exact McNemar", str(size), float(np.mean(found)))
    for tasks, size in ((2, 4), (5, 10)):
        steps = draw.normal(size=(repeats, tasks, size))
        errors = steps.std(axis=2, ddof=1) / math.sqrt(size)
        p_values = [
            combine_strata(
                [Stratum(value=v, stderr=e, degrees=size - 1) for v, e in zip(values, own, strict=True)]
            ).p_value
            for values, own in zip(steps.mean(axis=2), errors, strict=True)
        ]
        yield error_row("t-test of all tasks", f"{tasks} × {size}", float(np.mean(np.array(p_values) < 0.05)))
    for size in (10, 20, 50, 200):
        spread = DifferenceVariance(between=0.25, binary=True)
        effect = find_detectable_effect(size, spread) or 1.0
        differing = min(1.0, max(effect, 0.25 + effect**2))
        flips = draw.multinomial(
            size, [(differing + effect) / 2, (differing - effect) / 2, 1 - differing], size=5 * repeats
        )
        power = float(np.mean([compute_mcnemar_p_value(int(up), int(down)) < 0.05 for up, down, _ in flips]))
        yield power_row("exact McNemar", size, power)
    for size in (6, 8, 10, 12, 20):
        effect = find_detectable_effect(size, DifferenceVariance(between=1.0)) or 1.0
        steps = draw.normal(effect, 1.0, size=(2 * repeats, size))
        yield power_row(
            "sign flips", size, float(np.mean([run_sign_flip_test(row)[0] < 0.05 for row in steps]))
        )


def draw_pair(rng: Draw, kind: str, size: int, shift: bool) -> tuple[Any, Any, Any, float]:
    """Draw the scores of two models on the same documents, their clusters, and the true difference."""
    if kind == "rare losses":
        shared = rng.beta(2, 1, size)
        return shared, np.where(rng.random(size) < 0.1, 0.0, shared), None, -0.1 * 2 / 3
    if kind == "right or wrong, clusters of 1 to 30":
        members = np.repeat(np.arange(size), np.minimum(rng.geometric(0.15, size), 30))
        levels = rng.beta(2, 1, (2, size))
        own, other = ((rng.random(len(members)) < one[members]).astype(float) for one in levels)
        return own, other, members, 0.0
    codes = np.repeat(np.arange(size), 10) if "clusters" in kind else None
    count = size if codes is None else 10 * size
    if kind == "Beta scores":
        shared = rng.beta(2, 1, count)
        first, second = shared * rng.beta(3, 1, count), shared * rng.beta(6 if shift else 3, 1, count)
        return first, second, codes, 2 / 3 * (6 / 7 - 3 / 4) if shift else 0.0
    ease = rng.beta(2, 1, size)[codes] if codes is not None else rng.beta(2, 1, count)
    first = (rng.random(count) < ease * 0.9).astype(float)
    if codes is None:
        return (
            first,
            (rng.random(count) < ease * (1.0 if shift else 0.9)).astype(float),
            codes,
            0.1 * shift / 1.5,
        )
    misread = rng.random(size)[codes] < (0.1 if shift else 0.3)  # the second model misreads whole clusters
    second = (rng.random(count) < ease * 0.9 / 0.7).astype(float) * ~misread
    truth = (0.9 if shift else 0.7) * mean_of_clipped() - 0.6
    return first, second, codes, truth


def mean_of_clipped() -> float:
    """Return the mean of min(1, 9/7 x) for x of Beta(2, 1)."""
    edge = 7 / 9
    return (9 / 7) * 2 * edge**3 / 3 + 1 - edge**2


def simulate_differences(draw: Draw, repeats: int) -> Iterator[Row]:
    """Intervals of the difference of two models, and false positives of clustered and corpus tests."""
    for kind, sizes in (
        ("right or wrong", (10, 30)),
        ("Beta scores", (10, 30)),
        ("rare losses", (10, 30)),
        ("right or wrong, clusters", (10, 30)),
        ("right or wrong, clusters of 1 to 30", (10, 30)),
    ):
        for size in sizes:
            found = []
            for _ in range(max(5, repeats // 2)):
                first, second, codes, truth = draw_pair(draw, kind, size, shift=True)
                one = compare_pairs(first, second, codes).interval
                found.append((one.low - truth, one.high - truth))
            share, width = measure_bounds(split_bounds(found), 0.0)
            yield coverage_row(
                "difference", kind, size, share, width, f"{size} × 10" if kind.endswith("clusters") else ""
            )
    for size in (10, 30):
        spans, wrong = [], []
        for _ in range(max(5, repeats // 10)):
            labels = np.array(draw_labels(draw, size))
            flipped = draw.random(size) < 0.2
            other = np.where(flipped, 1 - labels[:, 0], labels[:, 0])
            found_corpus = compare_corpora(
                "f1",
                [tuple(one) for one in labels.tolist()],
                list(zip(labels[:, 0].tolist(), other.tolist(), strict=True)),
                resamples=500,
            )
            if found_corpus is not None:
                spans.append((found_corpus.interval.low, found_corpus.interval.high))
                wrong.append(found_corpus.p_value < 0.05)
        share, width = measure_bounds(split_bounds(spans), 0.0)
        yield coverage_row("difference", "F1", size, share, width)
        yield error_row("permutation, F1", str(size), float(np.mean(wrong)))
    for size in (10, 30):
        rejected = []
        for _ in range(max(5, repeats // 2)):
            levels = draw.beta(2, 1, (2, size))
            codes = np.repeat(np.arange(size), 10)
            first, second = ((draw.random(10 * size) < one[codes]).astype(float) for one in levels)
            rejected.append(compare_pairs(first, second, codes).p_value < 0.05)
        yield error_row("sign flips of clusters", f"{size} × 10", float(np.mean(rejected)))


def error_row(name: str, size: str, rejected: float) -> Row:
    return Row(
        kind="type I error", name=name, size=size, share=rejected, goal="≤ 0.06", passed=rejected <= 0.06
    )


def power_row(name: str, size: int, power: float) -> Row:
    return Row(
        kind="power",
        name=name,
        size=str(size),
        share=power,
        goal="0.80 ± 0.02",  # three standard errors of the simulation
        passed=abs(power - 0.8) <= 0.02,
    )


def simulate_stops(draw: Draw, repeats: int) -> Iterator[Row]:
    """`--stop_when`: how often the interval at which a run stops contains the score over all documents."""
    cases: dict[str, tuple[int, float, float, Callable[[Draw], Any] | None]] = {
        "documents": (300, 4.0, 0.06, None),
        "60 clusters of 10": (60, 2.0, 0.12, lambda rng: np.full(60, 10)),
        "200 clusters of 1 to 30": (200, 2.0, 0.08, lambda rng: np.minimum(rng.geometric(0.15, 200), 30)),
        "200 clusters that are all right or all wrong": (
            200, 0.01, 0.12, lambda rng: np.minimum(rng.geometric(0.15, 200), 30)
        ),
    }  # fmt: skip
    for name, (count, likeness, target, draw_sizes) in cases.items():
        hits, asked = [], []
        for _ in range(max(3, repeats // 8)):
            sizes = np.ones(count, dtype=int) if draw_sizes is None else draw_sizes(draw)
            codes = np.repeat(np.arange(count), sizes)
            scores = draw_answers(draw, codes, 0.7, likeness)
            clusters = [scores[codes == one] for one in draw.permutation(count)]
            sequence = ConfidenceSequence(
                len(scores),
                target=target,
                cluster_sizes=None if draw_sizes is None else [len(one) for one in clusters],
            )
            for one in clusters:
                sequence.add(one.tolist())
                if sequence.interval.half_width <= target:
                    break
            hits.append(sequence.interval.low - 1e-9 <= scores.mean() <= sequence.interval.high + 1e-9)
            asked.append(sequence.count / len(scores))
        share = float(np.mean(hits))
        yield Row(
            kind="stop_when",
            name=f"{name}, ±{100 * target:g} points: {np.mean(asked):.0%} asked",
            size=str(count),
            share=share,
            goal="≥ 0.93",
            passed=share >= 0.93,
        )


SIMULATIONS: Mapping[str, Callable[[Draw, int], Iterator[Row]]] = {
    "means": simulate_means,
    "corpora": simulate_corpora,
    "clusters": simulate_clusters,
    "groups": simulate_groups,
    "judges": simulate_judges,
    "differences": simulate_differences,
    "comparisons": simulate_comparisons,
    "stops": simulate_stops,
    "later": simulate_later_families,
}


def simulate_rows(repeats: int, seed: int = 1, only: Collection[str] = tuple(SIMULATIONS)) -> list[Row]:
    """Return the rows of some simulations, with this number of samples each."""
    draws = {name: np.random.default_rng([seed, place]) for place, name in enumerate(SIMULATIONS)}
    return [row for name in SIMULATIONS if name in only for row in SIMULATIONS[name](draws[name], repeats)]


INTRODUCTION = """\
*best known* is the narrowest of the known intervals that itself reaches the goal in this row, with its coverage. It is chosen with the
truth at hand: for means, ratios and clusters Student's t, Johnson's and Hall's adjusted t, bootstrap-t, BCa and the expanded percentile
bootstrap; for groups MOVER, Agresti-Caffo and Satterthwaite's t; for BLEU jackknife t, percentile and normal bootstrap. *wider* is the
width divided by that of the best known one; the goal is at most 1.15. *none covers*: no known interval reaches the goal. Widths of
perplexities are those of their logarithm. Scores without variance have an interval of their own and are left out. Metrics with
`higher_is_better: false` (lognormal, exponential, gamma and so on) have the range that a run gives them, from 0 to infinity. Runs guess
the range of other scores from the scores: those from 0 to 1 have these limits. An unbounded score without `higher_is_better: false` whose
sample happens to lie between 0 and 1 has too short an interval (exponential scores at n = 5: coverage 0.885 instead of 0.946).

Most constants of the intervals were chosen with the families of the first table, in 10,000 other samples of each. Of constants that are
about as good for the first table, those were taken with which no row of the second loses its coverage: it is a validation set, not an
untouched one. The following was added after both tables were known, because of rows whose intervals were too wide:

- Scores between two limits have no wider interval than right and wrong answers with the same mean.
- Units of different sizes have at least the error of units whose own ratios vary alike.
- Scores that are never positive count as log probabilities, whose tails are at most exponential. Two constants were chosen with the rows of
  perplexity and bits per byte, with "minus gamma" and with exponential losses; the losses of real models below justify them: their
  coefficient of variation is 0.06 to 0.18 per byte of a text and 0.70 for the last words of LAMBADA, their skewness at most 1.6. Long
  texts of natural language deviate half to three quarters as much as short ones, hence the smaller floor of their error.
- Scores at two levels, one of which is repeated inside the limits, have narrower limits. The constant was chosen with "0.2, or 0.9".
- Fewer than ten scores without limits are hardly extended. The constants were chosen with "Student's t". The price: exponential scores minus
  1 (n = 5) are covered in 0.88 instead of 0.91 of the samples.
- Adjusted t intervals of the tasks of a group are combined with their skewness. The rule has no constant; of two means of the sides, the
  one was taken with which "Beta(.5, 5), Beta(8, 1)" meets the goal.

So for these rules the second table is no validation. The third table has families that were looked at when the rules were chosen: discrete
scores, scores without limits, groups and the last words of LAMBADA. Only the losses per byte of real models (`benchmarks/real_losses.py`) did
not decide about any constant. It also shows what the rules cost: "minus lognormal" is no
log probability of a calibrated model, and "MBPP and HumanEval" mixes two sets of programs of different lengths."""


def describe_bounds(rows: list[Row], bounds: Mapping[str, tuple[Bound, Bound]]) -> list[str]:
    """Return what no interval can do, whatever its method."""
    lines = []
    for title, kind, name, size, other in (
        ("losses, 5", "clusters", "perplexity", "5 × 10", "lognormal losses"),
        ("losses, 10", "clusters", "perplexity", "10 × 10", "lognormal losses"),
        ("unlimited, 5", "mean", "Student's t, 3 degrees", "5", "exponential scores minus 1"),
    ):
        alone, both = bounds[title]
        row = next(row for row in rows if (row.kind, row.name, row.size) == (kind, name, size))
        allowed = MAX_EXCESS_WIDTH * row.width / row.ratio if row.width and row.ratio else math.nan
        verdict = (
            "no interval can do both"
            if both.width - 2 * both.error > allowed
            else "the bound does not rule out both"
        )
        lines.append(
            f"- {kind}, {name} ({size}): an interval that reaches the coverage goal here is at least {alone.width:.2f} ± {alone.error:.2f} wide. If"
            f" it also reaches the goal for {other}, it is at least {both.width:.2f} ± {both.error:.2f} wide. The width goal is {allowed:.2f}:"
            f" {verdict}."
        )
    return [
        "## Lower bounds of the width",
        "",
        "Whatever its method, an interval that scales with the losses (without limits: that also moves with the scores) has at least these mean",
        "widths, with the standard errors of `benchmarks/width_bounds.py`. This is why log probabilities have constants of their own.",
        "",
        *lines,
        "",
    ]


def format_rows(
    rows: list[Row], repeats: int, seconds: float, bounds: Mapping[str, tuple[Bound, Bound]] | None = None
) -> str:
    """Return the page; without bounds of the width if there are none."""
    lines = [
        "# Coverage of intervals, error rates of tests",
        "",
        f"Written by `python -m benchmarks.coverage`: {repeats} samples per row, {seconds:.0f} s of one core. Nominal level 95 %. Rows of power have"
        f" {5 * repeats} samples (exact McNemar) or {2 * repeats} (sign flips).",
        "",
        INTRODUCTION,
        "",
        *format_summary(rows),
        *(describe_bounds(rows, bounds) if bounds else ()),
        *format_single_methods(rows),
    ]
    for table, title in TABLES.items():
        chosen = [row for row in rows if row.table == table]
        lines += [
            f"## {title}",
            "",
            "| kind | case | n | measured | goal | met | width | best known | wider | met |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *map(format_row, chosen),
            "",
        ]
    return "\n".join(lines)


def format_summary(rows: list[Row]) -> list[str]:
    """Return what is met and what is not."""
    lines = ["## What is met", ""]
    for table, title in TABLES.items():
        chosen = [row for row in rows if row.table == table]
        narrow = [row for row in chosen if row.ratio is not None]
        lines.append(
            f"- {title}: coverage, error rates and power met in {sum(row.passed for row in chosen)} of {len(chosen)} rows;"
            f" width met in {sum(bool(row.is_narrow) for row in narrow)} of {len(narrow)} rows with a known interval that covers."
        )
    missed = [row for row in rows if not row.passed]
    hopeless = [row for row in missed if row.best == "none covers"]
    wide = [row for row in rows if row.is_narrow is False]
    cheap = [row for row in wide if row.references[row.best].share < NOMINAL_COVERAGE]
    student = [
        row for row in wide
        if "t" in row.references and row.references["t"].width > MAX_EXCESS_WIDTH * row.references[row.best].width
    ]  # fmt: skip
    lines += [
        f"- Not met, coverage ({len(missed)}): {list_rows(missed)}. In {len(hopeless)} of them no known interval reaches the goal.",
        f"- Not met, width ({len(wide)}): {list_rows(wide)}.",
        f"- In {len(cheap)} of the {len(wide)} rows that miss the width goal, the best known interval reaches the goal of the row, but covers"
        f" less than {NOMINAL_COVERAGE:.2f}: it is narrower because it does not keep the nominal level. In {len(student)} of the {len(wide)} rows"
        " Student's t misses the width goal, too.",
    ]
    return [*lines, ""]


def list_rows(rows: list[Row]) -> str:
    """Return the names of some rows, with all sizes of a case together."""
    sizes: dict[str, list[str]] = {}
    for row in rows:
        sizes.setdefault(f"{row.kind}, {row.name}", []).append(row.size)
    return "; ".join(f"{name} ({', '.join(some)})" for name, some in sizes.items()) or "none"


def find_category(row: Row) -> str:
    """Return the kind of interval that a row measures: its known intervals are the same in all rows."""
    if row.kind == "group":
        return "groups"
    return row.name if row.name in ("BLEU", "median") else "means, ratios, clusters"


def format_single_methods(rows: list[Row]) -> list[str]:
    """Return a table of what each interval does if it is used in all rows, as a harness has to."""
    compared = [row for row in rows if row.references]
    lines = [
        "## One method for all rows",
        "",
        "A harness does not know the truth, so it cannot choose the best known interval of each row. This table shows what each interval does",
        "if it is used in every row of the tables below. *width met* counts the rows in which it covers and is at most 1.15 times as wide as",
        "the best known one, of the rows that have one. *width* is its mean width divided by that of Assay, as the median over all rows and",
        "over the rows in which both reach the coverage goal.",
        "",
        "| intervals of | method | covers | lowest coverage | width met | width, all rows | width, both cover |",
        "|---|---|---|---|---|---|---|",
    ]
    leaders = []
    for category in dict.fromkeys(map(find_category, compared)):
        chosen = [row for row in compared if find_category(row) == category]
        own = [Measurement(share=row.share, width=row.width or 0.0, passed=row.passed) for row in chosen]
        lines.append(format_method(category, "Assay", list(zip(chosen, own, strict=True))))
        names = dict.fromkeys(name for row in chosen for name in row.references)
        found = {
            name: [(row, row.references[name]) for row in chosen if name in row.references] for name in names
        }
        lines += [format_method(category, name, pairs) for name, pairs in found.items()]
        if len(found) > 1:
            leaders.append(describe_leader(category, found))
    return [*lines, "", *leaders, ""]


def describe_leader(category: str, found: Mapping[str, list[tuple[Row, Measurement]]]) -> str:
    """Return a line about the known method that covers in most rows."""
    best = max(found, key=lambda name: sum(one.passed for _, one in found[name]) / len(found[name]))
    pairs = found[best]
    covered, own = sum(one.passed for _, one in pairs), sum(row.passed for row, _ in pairs)
    wider = float(np.median([(row.width or 0.0) / one.width for row, one in pairs]))
    which = "no known method covers in every row; " if covered < len(pairs) else ""
    return (
        f"- {category}: {which}{best} covers most often, in {covered} of {len(pairs)} rows. In the same rows Assay covers in {own}, with"
        f" intervals {wider:.2f} times as wide (median)."
    )


def format_method(category: str, name: str, pairs: list[tuple[Row, Measurement]]) -> str:
    """Return the line of a method in the table of methods."""
    sized = [(row, one) for row, one in pairs if row.ratio is not None]
    narrow = sum(
        one.passed and one.width <= MAX_EXCESS_WIDTH * row.references[row.best].width for row, one in sized
    )
    ratios = [one.width / row.width for row, one in pairs if row.width]
    common = [one.width / row.width for row, one in pairs if row.width and row.passed and one.passed]
    shown = f"{float(np.median(common)):.2f}" if common else ""
    return (
        f"| {category} | {name} | {sum(one.passed for _, one in pairs)} of {len(pairs)} | {min(one.share for _, one in pairs):.2f} |"
        f" {narrow} of {len(sized)} | {float(np.median(ratios)):.2f} | {shown} |"
    )


def format_row(row: Row) -> str:
    """Return a line of the table."""
    verdicts = {True: "yes", False: "**no**", None: ""}
    width = "" if row.width is None else f"{row.width:.3g}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    best = f"{row.best} ({row.references[row.best].share:.3f})" if row.best in row.references else row.best
    return (
        f"| {row.kind} | {row.name} | {row.size} | {row.share:.3f} | {row.goal} | {verdicts[row.passed]} | {width} |"
        f" {best} | {ratio} | {verdicts[row.is_narrow]} |"
    )


def main() -> None:
    """Simulate and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fast", action="store_true", help="Few samples; print instead of writing the page.")
    parser.add_argument(
        "--samples", type=int, default=2000, metavar="N", help="Samples per row. [default: 2000]"
    )
    parser.add_argument(
        "--only",
        choices=[*SIMULATIONS],
        action="append",
        help="Print the rows of this simulation; repeatable.",
    )
    options = parser.parse_args()
    fast = options.fast
    repeats = 40 if fast else options.samples
    started = time.process_time()
    rows = simulate_rows(repeats, only=options.only or tuple(SIMULATIONS))
    seconds = time.process_time() - started
    if fast or options.only:
        print(format_rows(rows, repeats, seconds))
    else:
        page = format_rows(rows, repeats, seconds, compute_bounds())
        Path(__file__).with_name("COVERAGE.md").write_text(page, "utf-8")


if __name__ == "__main__":
    main()
