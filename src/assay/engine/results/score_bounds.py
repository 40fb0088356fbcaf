"""Compute bounds of a score if too many documents were not scored.

A published score counts unparsed answers as wrong and omits failed requests. The bounds show the score if all of them were wrong,
and if all were right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assay.core.records.endings import MIN_UNSCORED_SHARE_FOR_BOUNDS
from assay.core.records.verdicts import Estimate
from assay.engine.planning.records import PlannedTask
from assay.stats.aggregations import find_aggregation_name
from assay.stats.groups import GroupPart, pool_parts
from assay.store.journal.journal import Journal

__all__ = ["add_bounds", "pool_bounds"]


def add_bounds(planned: PlannedTask, estimates: Sequence[Estimate], journal: Journal) -> list[Estimate]:
    """Add bounds to estimates between 0 and 1 if more than 1 % of the documents were not scored."""
    endings = journal.count_outcomes(planned.task.name)
    total = sum(endings.values()) - endings.get("skipped", 0)
    in_doubt = total - endings.get("scored", 0)
    if in_doubt <= MIN_UNSCORED_SHARE_FOR_BOUNDS * total:
        return list(estimates)
    sums = _sum_scored(planned, journal)
    bounded = []
    for estimate in estimates:
        certain = sums.get((estimate.pipeline, estimate.metric), 0.0)
        if certain is None or estimate.population or not _is_share(planned, estimate):
            bounded.append(estimate)
        else:
            bounded.append(replace(estimate, bounds=(certain / total, (certain + in_doubt) / total)))
    return bounded


def _is_share(planned: PlannedTask, estimate: Estimate) -> bool:
    """Whether the estimate is a mean of values between 0 and 1."""
    if find_aggregation_name(planned.scorer.find_report(estimate.metric).aggregation) != "mean":
        return False
    return isinstance(estimate.value, (int, float)) and 0 <= estimate.value <= 1


def _sum_scored(planned: PlannedTask, journal: Journal) -> dict[tuple[str, str], float | None]:
    """Return (pipeline, metric) -> the sum over scored documents; None if a value is outside 0 to 1."""
    in_doubt = {document for document, *_ in journal.read_outcomes(planned.task.name, exclude="scored")}
    sums: dict[tuple[str, str], float | None] = {}
    for pipeline, metric, document, kind, value in journal.read_verdicts(planned.task.name):
        if kind == "unscored":
            continue
        key = (pipeline, metric)
        so_far = sums.get(key, 0.0)
        if so_far is None or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            sums[key] = None
        elif document not in in_doubt:
            sums[key] = so_far + value
        else:
            sums.setdefault(key, 0.0)
    return sums


def pool_bounds(
    members: Sequence[Estimate], sizes: Sequence[int], *, weight_by_size: bool
) -> tuple[float, float] | None:
    """Pool the bounds of a group's tasks; None if no task has any."""
    if all(member.bounds is None for member in members):
        return None
    ends = []
    for side in (0, 1):
        values = [member.value if member.bounds is None else member.bounds[side] for member in members]
        parts = [
            GroupPart(value=value, stderr=None, size=size) for value, size in zip(values, sizes, strict=True)
        ]
        ends.append(pool_parts(parts, weight_by_size=weight_by_size).value)
    return ends[0], ends[1]
