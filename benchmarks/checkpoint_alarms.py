"""Measure false alarms and power of `assay watch`, and how often its best checkpoint is the best, by simulation with a known truth.

    python benchmarks/checkpoint_alarms.py [--runs 1000] [--processes 2] [--write]

A simulated training run is a sequence of checkpoints whose documents have known probabilities of success; their answers are
sampled, so that checkpoints of a frozen model differ by noise. Prints a table; `--write` stores it in
benchmarks/CHECKPOINT_ALARMS.md. Takes about ten minutes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from assay.stats.comparisons.best_of_many import find_best
from assay.stats.comparisons.comparison import compute_mcnemar_p_value
from assay.stats.comparisons.regression_alarms import RegressionDetector

Row = tuple[str, str, str, str, bool | None]
"""What, setting, measured, goal, whether the goal is met (None: no goal)."""

Floats = np.ndarray
ALPHA = 0.05
MIN_COVERAGE = 0.95 - 2 * 0.0069
"""The goal minus two standard errors of 1,000 runs."""

CLUSTER_SIZE = 5


def draw_probabilities(draw: np.random.Generator, documents: int, shift: float = 0.0) -> Floats:
    """Return the probability of success of each document: some easy, some hard, many uncertain."""
    return 1 / (1 + np.exp(-(draw.normal(0.5, 1.5, documents) + shift)))


def sample_frozen(draw: np.random.Generator, checkpoints: int, documents: int) -> Floats:
    """Return answers of one model, sampled for each checkpoint."""
    return (draw.random((checkpoints, documents)) < draw_probabilities(draw, documents)).astype(float)


def sample_clustered(draw: np.random.Generator, checkpoints: int, documents: int) -> Floats:
    """Return answers of one model whose documents share their luck within clusters of five: most succeed or fail together."""
    groups = documents // CLUSTER_SIZE
    probabilities = np.repeat(draw_probabilities(draw, groups), CLUSTER_SIZE)
    shared = np.repeat(draw.random((checkpoints, groups)), CLUSTER_SIZE, axis=1)
    luck = np.where(
        draw.random((checkpoints, documents)) < 0.8, shared, draw.random((checkpoints, documents))
    )
    return (luck < probabilities).astype(float)


def sample_real_valued(draw: np.random.Generator, checkpoints: int, documents: int) -> Floats:
    """Return scores between 0 and 1 of one model, many of them small, as of F1."""
    means = np.clip(draw_probabilities(draw, documents), 0.02, 0.98)
    return draw.beta(means, 1 - means, size=(checkpoints, documents))


def sample_changing(draw: np.random.Generator, checkpoints: int, documents: int) -> Floats:
    """Return greedy answers of models that are equally good but solve different documents."""
    skill = draw.normal(0.5, 1.5, documents) + draw.normal(0, 1.0, (checkpoints, documents))
    return (skill > 0).astype(float)


SAMPLERS: dict[str, Callable[[np.random.Generator, int, int], Floats]] = {
    "frozen model, sampled answers": sample_frozen,
    "frozen model, scores between 0 and 1": sample_real_valued,
    "equally good models that solve different documents": sample_changing,
}


def has_alarm(table: Floats, clusters: list[int] | None = None, order: Floats | None = None) -> bool:
    """Whether the detector raises an alarm anywhere in a run."""
    detector = RegressionDetector(ALPHA, clusters)
    steps = range(len(table)) if order is None else order.tolist()
    return any(detector.add(step, table[step]) is not None for step in steps)


def has_naive_alarm(table: Floats, *, best: bool) -> bool:
    """Whether a test at 5 % against the previous checkpoint, or the best so far, raises an alarm anywhere in a run."""
    means = table.mean(axis=1)
    for at in range(1, len(table)):
        reference = int(means[:at].argmax()) if best else at - 1
        losses = int((table[reference] > table[at]).sum())
        wins = int((table[reference] < table[at]).sum())
        if losses > wins and compute_mcnemar_p_value(wins, losses) / 2 < ALPHA:
            return True
    return False


def format_share(count: int, runs: int) -> str:
    """Return a share with its standard error."""
    share = count / runs
    return f"{share:.3f} ± {math.sqrt(max(share * (1 - share), 1 / runs) / runs):.3f}"


def measure_false_alarms(name: str, checkpoints: int, documents: int, runs: int) -> list[Row]:
    """Measure runs with at least one false alarm; the rate is over the whole run."""
    draw = np.random.default_rng([1, checkpoints, documents])
    count = sum(has_alarm(SAMPLERS[name](draw, checkpoints, documents)) for _ in range(runs))
    setting = f"{name}; {checkpoints} checkpoints, {documents} documents"
    return [("runs with a false alarm", setting, format_share(count, runs), "≤ .05", count / runs <= ALPHA)]


def measure_clusters(checkpoints: int, runs: int) -> list[Row]:
    """Measure false alarms of correlated documents, with and without their clusters."""
    clusters = [at // CLUSTER_SIZE for at in range(500)]
    draw = np.random.default_rng([2, checkpoints])
    known = unknown = 0
    for _ in range(runs):
        table = sample_clustered(draw, checkpoints, 500)
        known += has_alarm(table, clusters)
        unknown += has_alarm(table)
    what = "runs with a false alarm"
    setting = f"frozen model, 500 documents in clusters of five; {checkpoints} checkpoints"
    return [
        (what, f"{setting}, `cluster_key` set", format_share(known, runs), "≤ .05", known / runs <= ALPHA),
        (what, f"{setting}, clusters unknown", format_share(unknown, runs), "", None),
    ]


def measure_order(runs: int) -> list[Row]:
    """Measure false alarms of checkpoints that are evaluated in random order."""
    draw = np.random.default_rng(3)
    count = sum(has_alarm(sample_frozen(draw, 50, 200), order=draw.permutation(50)) for _ in range(runs))
    setting = "frozen model; 50 checkpoints in random order, 200 documents"
    return [("runs with a false alarm", setting, format_share(count, runs), "≤ .05", count / runs <= ALPHA)]


def measure_naive(runs: int) -> list[Row]:
    """Measure false alarms of a plain test after every checkpoint."""
    draw = np.random.default_rng(4)
    tables = [sample_frozen(draw, 50, 200) for _ in range(runs)]
    rows: list[Row] = []
    for best in (False, True):
        count = sum(has_naive_alarm(table, best=best) for table in tables)
        reference = "the best checkpoint so far" if best else "the previous checkpoint"
        setting = f"frozen model; 50 checkpoints, 200 documents; McNemar's test at 5 % against {reference}"
        rows.append(("for comparison: runs with a false alarm", setting, format_share(count, runs), "", None))
    return rows


def sample_drop(draw: np.random.Generator, documents: int, drop: float, *, last: int) -> Floats:
    """Return a run that improves for 20 checkpoints, then loses `drop` at once and stays there for `last` checkpoints."""
    base = draw.normal(0.0, 1.5, documents)
    rising = [1 / (1 + np.exp(-(base + 1.2 * (1 - math.exp(-at / 6))))) for at in range(20)]
    damaged = np.clip(rising[-1] - drop, 0.0, 1.0)
    probabilities = np.stack([*rising, *[damaged] * last])
    return (draw.random(probabilities.shape) < probabilities).astype(float)


def measure_power(documents: int, drop: float, runs: int) -> list[Row]:
    """Measure how often a real drop after 20 checkpoints raises an alarm, and how soon."""
    draw = np.random.default_rng([5, documents, int(1000 * drop)])
    within = {1: 0, 4: 0, 16: 0}
    early = 0
    count = max(100, runs // 5)
    for _ in range(count):
        table = sample_drop(draw, documents, drop, last=16)
        detector = RegressionDetector(ALPHA)
        first = next((at for at, scores in enumerate(table) if detector.add(at, scores) is not None), None)
        early += first is not None and first < 20
        for limit in within:
            within[limit] += first is not None and 20 <= first < 20 + limit
    shown = ", ".join(
        f"{found / count:.2f} within {limit} checkpoint{'s' if limit > 1 else ''}"
        for limit, found in within.items()
    )
    setting = f"drop of {100 * drop:g} points after 20 checkpoints, {documents} documents"
    return [("power", setting, f"{shown} (before the drop {early / count:.3f})", "", None)]


CURVES = {
    "all equal": np.zeros(12),
    "peak of 2 points at checkpoint 8": 0.02 - 0.005 * np.abs(np.arange(12) - 7),
    "two equal peaks": np.where(np.isin(np.arange(12), (3, 8)), 0.03, 0.0),
    "rising by 2 points each": 0.02 * np.arange(12),
    "one is 10 points better": np.where(np.arange(12) == 5, 0.1, 0.0),
}
"""The true quality of twelve checkpoints, relative to the others."""


def measure_best(name: str, documents: int, runs: int) -> list[Row]:
    """Measure how often the candidates contain the best checkpoint, and how often a confident claim is wrong."""
    curve = CURVES[name]
    draw = np.random.default_rng([6, documents, int(1000 * curve.sum())])
    right = claims = wrong = sizes = 0
    best = int(curve.argmax())
    for _ in range(runs):
        base = draw.beta(2, 2, documents) * 0.7 + 0.05
        table = (draw.random((12, documents)) < np.clip(base + curve[:, None], 0, 1)).astype(float)
        found = find_best(table, draws=1000)
        assert found is not None
        right += best in found.candidates
        sizes += len(found.candidates)
        if found.confidence >= 0.95:
            claims += 1
            wrong += bool(curve[found.index] < curve.max())
    setting = f"12 checkpoints, {name}, {documents} documents"
    shown = f"{format_share(right, runs)}, {sizes / runs:.1f} candidates"
    return [
        ("candidates contain the best checkpoint", setting, shown, "≥ .95", right / runs >= MIN_COVERAGE),
        (
            "best checkpoint named with 95 % confidence, and wrong",
            setting,
            f"{wrong / runs:.3f} (named in {claims / runs:.2f})",
            "≤ .05",
            wrong / runs <= ALPHA,
        ),
    ]


def measure_clustered_best(runs: int) -> list[Row]:
    """Measure how often the candidates contain the best checkpoint if documents are correlated."""
    draw = np.random.default_rng(7)
    clusters = [at // CLUSTER_SIZE for at in range(500)]
    right = 0
    for _ in range(runs):
        found = find_best(sample_clustered(draw, 12, 500), clusters, draws=1000)
        right += found is not None and 0 in found.candidates
    setting = "12 checkpoints, all equal, 500 documents in clusters of five"
    goal_is_met = right / runs >= MIN_COVERAGE
    return [
        ("candidates contain the best checkpoint", setting, format_share(right, runs), "≥ .95", goal_is_met)
    ]


def list_measurements() -> list[tuple[Callable[..., list[Row]], tuple[Any, ...]]]:
    """Return every measurement with its arguments, without the number of runs."""
    frozen, real, changing = SAMPLERS
    sizes = [(frozen, 20, 200), (frozen, 50, 200), (frozen, 50, 1000), (frozen, 200, 200)]
    sizes += [(name, 50, documents) for name in (real, changing) for documents in (200, 1000)]
    return [
        *((measure_false_alarms, size) for size in sizes),
        *((measure_clusters, (checkpoints,)) for checkpoints in (20, 50)),
        (measure_order, ()),
        (measure_naive, ()),
        *((measure_power, (count, drop)) for count in (200, 1000, 4000) for drop in (0.02, 0.05, 0.1, 0.2)),
        *((measure_best, (name, documents)) for name in CURVES for documents in (100, 1000)),
        (measure_clustered_best, ()),
    ]


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    lines = ["| what | setting | measured | goal | |", "|---|---|---|---|---|"]
    with ProcessPoolExecutor(options.processes) as pool:
        jobs = [pool.submit(measure, *given, options.runs) for measure, given in list_measurements()]
        for job in jobs:
            for row in job.result():
                lines.append(format_row(row))
                print(lines[-1], flush=True)
    if options.write:
        write_table(lines, options.runs)


def format_row(row: Row) -> str:
    """Return a row of the table."""
    what, setting, measured, goal, met = row
    verdict = {None: "", True: "met", False: "**missed**"}[met]
    return f"| {what} | {setting} | {measured} | {goal} | {verdict} |"


def write_table(lines: list[str], runs: int) -> None:
    """Write the table to its page."""
    head = (
        "# False alarms and power of `assay watch`\n\n"
        f"Simulated with a known truth by `python benchmarks/checkpoint_alarms.py --runs {runs} --write`:"
        f" {runs} training runs per row ({max(100, runs // 5)} for power), alarms with the default"
        " rate of 5 % for the whole run. Standard errors follow ±; a coverage goal is met within two of them."
        " [How alarms work](../docs/guides/watching-checkpoints.md).\n\n"
    )
    path = Path(__file__).parent / "CHECKPOINT_ALARMS.md"
    path.write_text(head + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
