"""Aggregate metrics of groups: known, and reported by some member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from assay.checks.findings import Findings
from assay.checks.groups import GroupNode
from assay.core.errors import AssayError, UnknownName
from assay.core.specs import GroupMetric
from assay.stats.aggregations import AGGREGATIONS
from assay.tasks.load import group_metrics

__all__ = ["Reports", "check_group_metrics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """What a task reports, for the groups it is in."""

    metrics: frozenset[str]
    pipelines: frozenset[str]
    others: bool
    """Whether it may report metrics it does not name: those its own code makes up."""


def check_group_metrics(
    nodes: Sequence[GroupNode], reports: Mapping[str, Reports | None], findings: Findings
) -> None:
    """Every `aggregate_metric_list` of a group against what its tasks report."""
    for node in nodes:
        key = "aggregate_metric_list" if node.place == "task" else node.place
        where = f"{node.file.places.get(key, node.file.path)}, {key}"
        given = node.config.get("aggregate_metric_list")
        try:
            metrics = group_metrics(given, where=where)
        except AssayError as error:
            findings.raised("key", error)
            continue
        _check_weights(given, where, findings)
        known = [reports.get(job.name) for job in node.leaves]
        told = [one for one in known if one is not None]
        for metric in metrics:
            if isinstance(metric.aggregation, str) and metric.aggregation not in AGGREGATIONS:
                names = AGGREGATIONS.names()
                unknown = UnknownName.of("aggregation", metric.aggregation, names, where=where)
                findings.raised("scoring", unknown)
            if told and len(told) == len(known):  # a task that cannot be read may report anything
                _check_reported(node.name, metric, told, where, findings)


def _check_weights(given: Any, where: str, findings: Findings) -> None:
    for entry in given if isinstance(given, list) else [given] if given else []:
        weight = entry.get("weight_by_size", True)
        if not isinstance(weight, bool):
            what = (
                f"`weight_by_size` must be true or false, not {weight!r}; it counts as {bool(weight)}".lower()
            )
            findings.warning("key", what, where)


def _check_reported(
    group: str, metric: GroupMetric, told: Sequence[Reports], where: str, findings: Findings
) -> None:
    if not any(one.others or metric.metric in one.metrics for one in told):
        names = sorted({name for one in told for name in one.metrics})
        close = get_close_matches(metric.metric, names, n=1)
        findings.warning(
            "group-metric",
            f"no member of `{group}` reports `{metric.metric}`",
            where,
            f"{f'did you mean `{close[0]}`? ' if close else ''}they report: {', '.join(names[:12])}",
        )
    pipelines = {name for one in told for name in one.pipelines}
    for name in metric.filter_list or ():
        if name not in pipelines:
            findings.warning(
                "group-metric",
                f"no member of `{group}` has a filter pipeline `{name}`",
                where,
                f"they have: {', '.join(sorted(pipelines)[:12])}",
            )
