"""Groups of tasks with the same prompt variants."""

from __future__ import annotations

import math

import numpy as np
import pytest

from assay.stats.groups import GroupPart, compute_stratified_interval, pool_parts
from assay.stats.intervals.confidence_intervals import Interval
from assay.stats.intervals.crossed import estimate_crossed
from assay.stats.varied_groups import VariedPart, add_variant_error, ignore_variants, widen_by_variants

NAMES = ("@base", "@v1", "@v2", "@v3", "@v4")


def estimate(tables: list[np.ndarray], names: list[tuple[str, ...]]) -> tuple[Interval, float, float]:
    """Return the interval, the standard error and the mean of a group whose tasks have the same weight."""
    varied = [
        VariedPart(names=given, estimate=estimate_crossed(table))
        for given, table in zip(names, tables, strict=True)
    ]
    parts = [
        ignore_variants(GroupPart(value=one.estimate.mean, stderr=one.estimate.stderr, size=len(table)), one)
        for one, table in zip(varied, tables, strict=True)
    ]
    pooled = pool_parts(parts, weight_by_size=False)
    inner = compute_stratified_interval(parts, weight_by_size=False)
    assert inner is not None
    weighted = [(1 / len(parts), one) for one in varied]
    stderr = add_variant_error(pooled.stderr, weighted)
    assert stderr is not None
    return widen_by_variants(inner, pooled.value, weighted), stderr, pooled.value


def draw(seed: int, tasks: int, documents: int, spread: float) -> list[np.ndarray]:
    """Draw tasks whose prompts have the same effect on each of them."""
    generator = np.random.default_rng(seed)
    shifts = generator.normal(0, spread, (1, 5))
    return [
        (
            generator.normal(0, 1.5, (documents, 1)) + shifts + generator.normal(0, 0.5, (documents, 5)) > 0
        ).astype(float)
        for _ in range(tasks)
    ]


def test_the_interval_of_a_group_contains_its_mean_with_shared_prompts() -> None:
    hits = independent = 0
    for seed in range(60):
        tables = draw(seed, 8, 60, 0.5)
        found, *_ = estimate(tables, [NAMES] * 8)
        other, *_ = estimate(tables, [tuple(f"{number}{name}" for name in NAMES) for number in range(8)])
        hits += found.low <= 0.5 <= found.high
        independent += other.low <= 0.5 <= other.high
    assert hits >= 54  # 95 % of 60 is 57
    assert independent < 48


def test_other_variants_are_independent() -> None:
    tables = draw(1, 2, 2000, 1.0)
    one, same, _ = estimate(tables, [NAMES, NAMES])
    two, other, _ = estimate(tables, [NAMES, tuple(f"other{name}" for name in NAMES)])
    assert same == pytest.approx(other * math.sqrt(2), rel=0.05)
    assert one.half_width > 1.3 * two.half_width


def test_the_interval_stays_within_the_range_of_scores() -> None:
    tables = [np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])] * 3
    found, _, value = estimate(tables, [NAMES[:3]] * 3)
    assert 0 <= found.low < value < found.high <= 1


def test_a_task_with_one_prompt_keeps_its_uncertainty() -> None:
    part = GroupPart(value=0.5, stderr=0.1, size=20, interval=(0.3, 0.7), method="wilson")
    assert ignore_variants(part, None) is part
    assert add_variant_error(0.1, [(1.0, None)]) == pytest.approx(0.1)
    assert add_variant_error(None, [(1.0, None)]) is None
