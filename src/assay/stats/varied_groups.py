"""Groups of tasks that were asked with the same prompt variants.

Documents of different tasks are independent, but a prompt that helps one task often helps the others. The spread between prompts is
therefore that of the group's mean with each prompt, and not pooled from those of the tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from assay.stats.groups import GroupPart
from assay.stats.intervals.confidence_intervals import Interval
from assay.stats.intervals.crossed import CrossedEstimate
from assay.stats.numerics.distributions import t_quantile

__all__ = ["VariedPart", "add_variant_error", "ignore_variants", "widen_by_variants"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VariedPart:
    """A task of a group that was asked with several prompts."""

    names: tuple[str, ...]
    """The names of the variants. Tasks with the same names have the same variants."""

    estimate: CrossedEstimate


def ignore_variants(part: GroupPart, varied: VariedPart | None) -> GroupPart:
    """Return a part of a group with the uncertainty from its documents only."""
    if varied is None:
        return part
    found = varied.estimate
    interval = found.document_interval
    return replace(
        part,
        stderr=None if part.stderr is None else found.document_stderr,
        interval=None if interval is None else (interval.low, interval.high),
        method="" if interval is None else interval.method,
    )


def add_variant_error(stderr: float | None, parts: Sequence[tuple[float, VariedPart | None]]) -> float | None:
    """Return the standard error of a group with the part of the variants; `parts` are the tasks with their weights."""
    if stderr is None:
        return None
    return math.sqrt(stderr**2 + sum(variance for variance, _ in _compute_variances(parts)))


def widen_by_variants(
    found: Interval, value: float, parts: Sequence[tuple[float, VariedPart | None]]
) -> Interval:
    """Add the spread between variants to the interval of a group, which is that of its documents."""
    halves = [
        t_quantile((1 + found.level) / 2, degrees) * math.sqrt(variance)
        for variance, degrees in _compute_variances(parts)
    ]
    low = value - math.hypot(max(0.0, value - found.low), *halves)
    high = value + math.hypot(max(0.0, found.high - value), *halves)
    ranges = [
        None if part is None else part.estimate.limits for _, part in parts
    ]  # None: not known, so nothing is cut off
    known = [one for one in ranges if one is not None]
    if len(known) == len(parts):
        weights = [weight for weight, _ in parts]
        low = max(low, math.fsum(weight * one[0] for weight, one in zip(weights, known, strict=True)))
        high = min(high, math.fsum(weight * one[1] for weight, one in zip(weights, known, strict=True)))
    return replace(found, low=low, high=high, method="stratified, documents × variants")


def _compute_variances(parts: Sequence[tuple[float, VariedPart | None]]) -> list[tuple[float, int]]:
    """Return the variance of the group's mean that comes from each set of variants, and its degrees of freedom."""
    sets: dict[tuple[str, ...], list[tuple[float, CrossedEstimate]]] = {}
    for weight, part in parts:
        if part is not None:
            sets.setdefault(part.names, []).append((weight, part.estimate))
    found = []
    for names, members in sets.items():
        means = np.sum([weight * np.array(one.means) for weight, one in members], axis=0)
        reaction = math.fsum(weight**2 * one.reaction for weight, one in members)
        found.append((max(0.0, float(means.var(ddof=1)) - reaction) / len(names), len(names) - 1))
    return found
