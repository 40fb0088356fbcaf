"""Choose the metric that `--stop_when` watches in each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.core.errors import InvalidOption
from assay.core.options.stop_rules import StopRule
from assay.engine.planning.records import PlannedTask
from assay.stats.aggregations import find_aggregation_name

__all__ = ["StopMetric", "find_score_range", "find_stop_metric", "list_stop_warnings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopMetric:
    """The metric that a stop rule watches."""

    pipeline: str
    metric: str
    limits: tuple[float, float] = (0.0, 1.0)
    """The range of its values."""

    higher_is_better: bool = True


def find_stop_metric(planned: PlannedTask, rule: StopRule) -> StopMetric | str:
    """Return the metric the rule watches, or a string with the reason if there is none."""
    scorer = planned.scorer
    if not planned.is_judged_per_document:
        return "its filters need all documents"
    name, _, pipeline = rule.metric.partition(",")
    pipelines = [one.name for one in scorer.pipelines]
    if pipeline and pipeline not in pipelines:
        return f"it has no filter `{pipeline}` (it has: {', '.join(pipelines)})"
    if name and name not in scorer.metrics:
        return f"it has no metric `{name}` (it has: {', '.join(scorer.metrics)})"
    means = [
        metric
        for metric in scorer.metrics
        if find_aggregation_name(scorer.find_report(metric).aggregation) == "mean"
    ]
    found = next((metric for metric in means if name in ("", metric)), None)
    if found is None:
        what = f"{name} is" if name else "none of its metrics is"
        return f"{what} a mean of per-document scores, and only means can be stopped early"
    return StopMetric(
        pipeline=pipeline or pipelines[0],
        metric=found,
        limits=rule.limits or find_score_range(planned, found) or (0.0, 1.0),
        higher_is_better=scorer.find_report(found).higher_is_better is not False,
    )


def find_score_range(planned: PlannedTask, metric: str) -> tuple[float, float] | None:
    """Return the range of a judge's scores; None for other metrics."""
    for panel in planned.scorer.panels:
        parts = {f"{panel.spec.metric}_{part}" for part in panel.spec.judge.parts}
        limits = getattr(panel.spec.judge, "limits", None)
        if limits is not None and metric in {panel.spec.metric, *parts}:
            low, high = limits
            return float(low), float(high)
    return None


def list_stop_warnings(rule: StopRule, tasks: Mapping[str, PlannedTask]) -> list[str]:
    """Return notes: what the rule watches, and the tasks it cannot stop.

    Raises:
        InvalidOption: The rule applies to no task.
    """
    found = {name: find_stop_metric(planned, rule) for name, planned in tasks.items()}
    refused = {name: why for name, why in found.items() if isinstance(why, str)}
    if refused and len(refused) == len(found):
        first = next(iter(refused))
        raise InvalidOption(
            f"the rule applies to no task: {first}: {refused[first]}",
            where="--stop_when",
            hint="omit it, or name a metric that is a mean: `METRIC: ci<=1.0`",
        )
    by_reason: dict[str, list[str]] = {}
    by_metric: dict[str, list[str]] = {}
    for name, one in found.items():
        if isinstance(one, str):
            by_reason.setdefault(one, []).append(name)
        else:
            scale = "" if one.limits == (0.0, 1.0) else f" between {one.limits[0]:g} and {one.limits[1]:g}"
            shown = one.metric if one.pipeline == "none" else f"{one.metric} ({one.pipeline})"
            key = tasks[name].spec.cluster_key
            units = f", in whole clusters of `{key}`" if key and _is_column(tasks[name], key) else ""
            by_metric.setdefault(shown + scale, []).append(name + units)
    return [
        *(f"{_format_names(names)}: --stop_when does not apply: {why}" for why, names in by_reason.items()),
        *(f"--stop_when watches {metric} of {_format_names(names)}" for metric, names in by_metric.items()),
    ]


def _is_column(planned: PlannedTask, key: str) -> bool:
    """Whether a (dotted) key starts with a column of the task."""
    return key.partition(".")[0] in planned.task.columns


def _format_names(tasks: Sequence[str]) -> str:
    return ", ".join(tasks[:3]) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")
