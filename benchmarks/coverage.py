# ruff: noqa: B023 - every function is called before its loop goes on
"""Simulate the coverage of every interval, the error rates of every test and the promises of `assay power`.

Run `python benchmarks/coverage.py` to write `benchmarks/COVERAGE.md` (about four minutes of one core), `--fast` for a short
version that only checks that everything runs. The true value of each row is known, so coverage is the share of samples whose
interval contains it. The intervals are those of the functions that runs use.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.stats.calibration import estimate_calibrated_mean
from assay.stats.comparisons.comparison import compare_pairs, compute_mcnemar_p_value
from assay.stats.comparisons.power import DifferenceVariance, find_detectable_effect
from assay.stats.comparisons.sign_flip_test import run_sign_flip_test
from assay.stats.comparisons.stratified import Stratum, combine_strata
from assay.stats.groups import GroupPart, compute_stratified_interval
from assay.stats.intervals.confidence_intervals import Interval, mean_interval
from assay.stats.intervals.confidence_sequences import ConfidenceSequence
from assay.stats.intervals.corpus_intervals import corpus_interval

__all__ = ["Row", "main", "simulate_rows"]

Draw = np.random.Generator
SIZES = (5, 10, 30)


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
    best_width: float | None = None
    """Mean width of the bootstrap-t interval of the same samples, a known interval for skewed means."""


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


def measure_bootstrap_t(draw: Draw, repeats: int, make: Callable[[Draw, int], Any], size: int) -> float:
    """Return the mean width of the bootstrap-t interval of a mean, within the range of scores of 0 and more."""
    widths = []
    for _ in range(repeats):
        values = make(draw, size)
        error = values.std(ddof=1) / math.sqrt(size)
        if error == 0:
            continue
        drawn = values[draw.integers(0, size, (600, size))]
        errors = np.maximum(drawn.std(axis=1, ddof=1) / math.sqrt(size), 1e-3 * error)
        low, high = np.quantile((drawn.mean(axis=1) - values.mean()) / errors, (0.025, 0.975))
        widths.append(min(values.mean(), high * error) - low * error)
    return float(np.mean(widths))


def simulate_means(draw: Draw, repeats: int) -> Iterator[Row]:
    """Means of skewed and symmetric scores."""
    cases: dict[str, tuple[Callable[[Draw, int], Any], float]] = {
        "lognormal": (lambda rng, n: rng.lognormal(0, 1, n), math.exp(0.5)),
        "Beta(.5, 5)": (lambda rng, n: rng.beta(0.5, 5, n), 0.5 / 5.5),
        "Beta(5, .5)": (lambda rng, n: rng.beta(5, 0.5, n), 5 / 5.5),
        "exponential": (lambda rng, n: rng.exponential(1, n), 1.0),
        "Beta(2, 2)": (lambda rng, n: rng.beta(2, 2, n), 0.5),
        "0, ½ or 1": (lambda rng, n: rng.choice([0, 0.5, 1], p=[0.1, 0.2, 0.7], size=n), 0.8),
    }
    for name, (make, truth) in cases.items():
        for size in SIZES:
            share, width = measure(draw, repeats, lambda rng: (mean_interval(make(rng, size)), truth))
            best = measure_bootstrap_t(draw, max(20, repeats // 10), make, size)
            yield coverage_row("mean", name, size, share, width, best)


def coverage_row(
    kind: str, name: str, size: int, share: float, width: float, best: float | None = None, label: str = ""
) -> Row:
    least = 0.90 if size < 10 else 0.93
    return Row(
        kind=kind,
        name=name,
        size=label or str(size),
        share=share,
        goal=f"≥ {least:.2f}",
        passed=share >= least,
        width=width,
        best_width=best,
    )


def simulate_corpora(draw: Draw, repeats: int) -> Iterator[Row]:
    """Corpus metrics."""

    def draw_bytes(rng: Draw, n: int) -> list[Any]:
        counts = rng.lognormal(5, 0.8, n)
        return [*np.stack([-0.7 * counts * rng.gamma(8, 1 / 8, n), counts], 1).tolist()]

    def draw_labels(rng: Draw, n: int) -> list[Any]:
        golds = rng.random(n) < 0.4
        given = np.where(rng.random(n) < 0.8, golds, ~golds)
        return list(zip(golds.astype(int).tolist(), given.astype(int).tolist(), strict=True))

    cases: dict[str, tuple[str, Callable[[Draw, int], Any], float]] = {
        "perplexity": ("perplexity", lambda rng, n: (-rng.gamma(4, 0.5, n)).tolist(), math.exp(2)),
        "bits per byte": ("bits_per_byte", draw_bytes, 0.7 / math.log(2)),
        "weighted perplexity": ("weighted_perplexity", draw_bytes, math.exp(0.7)),
        "F1": ("f1", draw_labels, 0.64 / 0.84),
        "median": ("median", lambda rng, n: rng.exponential(1, n).tolist(), math.log(2)),
    }
    for name, (aggregation, make, truth) in cases.items():
        for size in SIZES:
            share, width = measure(
                draw, repeats, lambda rng: (corpus_interval(aggregation, make(rng, size)), truth)
            )
            yield coverage_row("corpus", name, size, share, width)


def draw_answers(rng: Draw, codes: Any, share: float) -> Any:
    """Draw right and wrong answers whose clusters differ."""
    levels = rng.beta(4 * share, 4 - 4 * share, codes[-1] + 1)
    return (rng.random(len(codes)) < levels[codes]).astype(float)


def simulate_clusters(draw: Draw, repeats: int) -> Iterator[Row]:
    """Clusters of ten documents."""
    for count in SIZES:
        codes = np.repeat(np.arange(count), 10)
        cases: dict[str, tuple[Callable[[Draw], Any], float]] = {
            "heavy-tailed": (
                lambda rng: rng.lognormal(0, 1, count)[codes] * rng.gamma(5, 0.2, 10 * count),
                math.exp(0.5),
            ),
            "right or wrong, p = 0.5": (lambda rng: draw_answers(rng, codes, 0.5), 0.5),
            "right or wrong, p = 0.9": (lambda rng: draw_answers(rng, codes, 0.9), 0.9),
        }
        for name, (make, truth) in cases.items():
            share, width = measure(draw, repeats, lambda rng: (mean_interval(make(rng), codes), truth))
            yield coverage_row("clusters", name, count, share, width, label=f"{count} × 10")
        share, width = measure(
            draw,
            repeats,
            lambda rng: (
                corpus_interval("perplexity", (-rng.gamma(4, 0.5, count)[codes]).tolist(), codes),
                math.exp(2),
            ),
        )
        yield coverage_row("clusters", "perplexity", count, share, width, label=f"{count} × 10")


def simulate_groups(draw: Draw, repeats: int) -> Iterator[Row]:
    """Groups of tasks with few documents."""

    def build_part(values: Any) -> GroupPart:
        found = mean_interval(values)
        return GroupPart(
            value=float(values.mean()),
            stderr=None,
            size=len(values),
            interval=(found.low, found.high),
            method=found.method,
        )

    for sizes, levels in (
        ((1, 1), (0.4, 0.6)),
        ((1, 1), (0.9, 0.9)),
        ((10, 10), (0.9, 0.9)),
        ((5, 30), (0.9, 0.5)),
    ):

        def sample(rng: Draw) -> tuple[Interval | None, float]:
            parts = [
                build_part((rng.random(n) < p).astype(float)) for n, p in zip(sizes, levels, strict=True)
            ]
            return compute_stratified_interval(parts, weight_by_size=False), sum(levels) / len(levels)

        share, width = measure(draw, repeats, sample)
        label = " + ".join(map(str, sizes))
        yield coverage_row("group", f"p = {levels[0]}, {levels[1]}", min(sizes), share, width, label=label)


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

    def error_row(name: str, size: str, rejected: float) -> Row:
        return Row(
            kind="type I error", name=name, size=size, share=rejected, goal="≤ 0.06", passed=rejected <= 0.06
        )

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
            size, [(differing + effect) / 2, (differing - effect) / 2, 1 - differing], size=repeats
        )
        power = float(np.mean([compute_mcnemar_p_value(int(up), int(down)) < 0.05 for up, down, _ in flips]))
        yield power_row("exact McNemar", size, power)
    for size in (10, 20):
        effect = find_detectable_effect(size, DifferenceVariance(between=1.0)) or 1.0
        steps = draw.normal(effect, 1.0, size=(max(50, repeats // 4), size))
        yield power_row(
            "sign flips", size, float(np.mean([run_sign_flip_test(row)[0] < 0.05 for row in steps]))
        )


def power_row(name: str, size: int, power: float) -> Row:
    return Row(
        kind="power",
        name=name,
        size=str(size),
        share=power,
        goal="0.80 ± 0.06",
        passed=abs(power - 0.8) <= 0.06,
    )


def simulate_stops(draw: Draw, repeats: int) -> Iterator[Row]:
    """`--stop_when`: documents in random order, so that clusters do not matter for the score over all of them."""
    hits = []
    for _ in range(max(20, repeats // 40)):
        chances = np.repeat(draw.beta(2, 1, 30), 10)
        scores = (draw.random(300) < chances).astype(float)
        sequence = ConfidenceSequence(300, target=0.05)
        for start in range(0, 300, 50):
            sequence.add(draw_part for draw_part in scores[order(draw, start)].tolist())
            if sequence.interval.half_width <= 0.05:
                break
        hits.append(sequence.interval.low <= scores.mean() <= sequence.interval.high)
    share = float(np.mean(hits))
    yield Row(
        kind="stop_when",
        name="30 clusters of 10",
        size="300",
        share=share,
        goal="≥ 0.93",
        passed=share >= 0.93,
    )


_ORDERS: dict[int, Any] = {}


def order(draw: Draw, start: int) -> Any:
    """Return the next fifty documents of a random order that is drawn at the first of them."""
    if start == 0:
        _ORDERS[0] = draw.permutation(300)
    return _ORDERS[0][start : start + 50]


def simulate_rows(repeats: int, seed: int = 1) -> list[Row]:
    """Return all rows, with this number of samples each."""
    simulations = (
        simulate_means, simulate_corpora, simulate_clusters, simulate_groups, simulate_judges, simulate_comparisons,
        simulate_stops,
    )  # fmt: skip
    draw = np.random.default_rng(seed)
    return [row for simulate in simulations for row in simulate(draw, repeats)]


def format_rows(rows: list[Row], repeats: int, seconds: float) -> str:
    """Return the page."""
    lines = [
        "# Coverage of intervals, error rates of tests",
        "",
        f"Written by `python benchmarks/coverage.py`: {repeats} samples per row, {seconds:.0f} s. Nominal level 95 %.",
        "`bootstrap-t` is the mean width of that interval for the same scores.",
        "",
        "| kind | case | n | measured | goal | met | width | bootstrap-t |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        numbers = ["" if one is None else f"{one:.3g}" for one in (row.width, row.best_width)]
        met = "yes" if row.passed else "**no**"
        lines.append(
            f"| {row.kind} | {row.name} | {row.size} | {row.share:.3f} | {row.goal} | {met} | {numbers[0]} | {numbers[1]} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Simulate and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fast", action="store_true", help="Few samples; print instead of writing the page.")
    repeats = 40 if (fast := parser.parse_args().fast) else 2000
    started = time.monotonic()
    rows = simulate_rows(repeats)
    page = format_rows(rows, repeats, time.monotonic() - started)
    if fast:
        print(page)
    else:
        Path(__file__).with_name("COVERAGE.md").write_text(page, "utf-8")


if __name__ == "__main__":
    main()
