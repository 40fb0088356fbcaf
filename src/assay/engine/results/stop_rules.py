"""`--stop_when`: evaluate documents in random order until the interval is narrow enough.

Documents are asked in rounds. Which ones a round holds is drawn beforehand from the run's seed, so that a stopped run goes on
with the same ones, and each round is rendered in the dataset's order, so that every prompt is the one a whole run would ask.
After a round its scores are looked at in the drawn order; the interval (`stats.intervals.confidence_sequences`) holds however
often that is done. If the task names a `cluster_key`, whole clusters are drawn and a round ends with a cluster.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.options.stop_rules import StopRule, parse_stop_rule
from assay.core.records.verdicts import Score, Unscored, Verdict
from assay.engine.planning.manifests.run_names import get_output_folder
from assay.engine.planning.records import Plan, PlannedTask
from assay.engine.results.stop_metrics import StopMetric, find_stop_metric
from assay.stats.intervals.confidence_intervals import Interval
from assay.stats.intervals.confidence_sequences import ConfidenceSequence
from assay.store.journal.journal import Journal
from assay.store.runs.lookup import DEFAULT_FOLDER, find_run
from assay.store.runs.run import Run

__all__ = ["TaskStopRule", "describe_stops", "make_stop_rules"]

MIN_ROUND_SIZE = 32
"""Minimum number of documents in a round."""

_LEVEL = 0.95


class TaskStopRule:
    """The stop rule of one task."""

    def __init__(
        self,
        rule: StopRule,
        order: Sequence[int],
        watched: StopMetric,
        baseline: Mapping[int, float] | None = None,
        cluster_sizes: Sequence[int] | None = None,
    ) -> None:
        self.rule = rule
        self.order = order
        """The documents in the order in which they are asked; those of a cluster follow each other."""

        self.cluster_ends = None if cluster_sizes is None else list(accumulate(cluster_sizes))
        """The number of documents up to the end of each cluster; None without clusters."""

        self.watched = watched
        self.key = (watched.pipeline, watched.metric)
        self.baseline = baseline
        """The scores of the baseline, by document."""

        self.unread_documents = 0
        """Documents of this round that are not read yet."""

        self.asked = 0
        self.is_reached = False
        self.failure = ""
        """Why the rule cannot be applied; all documents are evaluated then."""

        self._scores: dict[int, float] = {}
        target = rule.points / 100 if not rule.baseline else None
        self._sequence = ConfidenceSequence(
            len(order), level=_LEVEL, target=target, cluster_sizes=cluster_sizes
        )

    def rounds(self) -> Iterator[frozenset[int]]:
        """Yield the documents of the next round until the rule is reached; the caller finishes a round before the next."""
        while not self.is_reached and self.asked < len(self.order):
            end = min(self.asked + self._choose_round_size(), len(self.order))
            if self.cluster_ends is not None:
                end = self.cluster_ends[bisect_left(self.cluster_ends, end)]
            chosen = self.order[self.asked : end]
            self.unread_documents = len(chosen)
            yield frozenset(chosen)
            self._check(chosen)

    def add(self, verdicts: Sequence[Verdict]) -> None:
        """Add verdicts."""
        for verdict in verdicts:
            if (verdict.pipeline, verdict.metric) != self.key or isinstance(verdict, Unscored):
                continue
            value = verdict.value if isinstance(verdict, Score) else None
            self.add_score(verdict.document, value)

    def add_score(self, document: int, value: Any) -> None:
        """Add a score; a score outside the range disables the rule."""
        low, high = self.watched.limits
        if isinstance(value, (int, float)) and low <= value <= high:
            self._scores[document] = (float(value) - low) / (high - low)
        elif not self.failure:
            metric = self.watched.metric
            self.failure = (
                f"{metric} has values outside {low:g} and {high:g};"
                f' "{metric}: {_format_condition(self.rule)} in LOW..HIGH" says what they are between'
            )

    @property
    def interval(self) -> Interval:
        """The interval of the score, or of the difference to the baseline, over all documents, in the unit of the metric."""
        found, (low, high) = self._sequence.interval, self.watched.limits
        start, span = (low, high - low) if self.baseline is None else (low - high, 2 * (high - low))
        return replace(found, low=start + span * found.low, high=start + span * found.high)

    def _check(self, chosen: Sequence[int]) -> None:
        self.asked += len(chosen)
        if self.failure:
            return
        self._sequence.add(self._measure(document) for document in chosen)
        found, points = self.interval, self._points
        if self.baseline is None:
            self.is_reached = found.half_width <= points + 1e-12
        else:
            self.is_reached = found.low >= points or found.high < points

    @property
    def _points(self) -> float:
        """The threshold of the rule, in the unit of the metric."""
        low, high = self.watched.limits
        return self.rule.points / 100 * (high - low)

    def _measure(self, document: int) -> float | None:
        """Return a document's score scaled to 0 to 1; with a baseline, the scaled difference."""
        score = self._scores.get(document)
        if self.baseline is None or score is None:
            return score
        before, (low, high) = self.baseline.get(document), self.watched.limits
        if before is None:
            return None
        gain = score - (before - low) / (high - low)
        return ((gain if self.watched.higher_is_better else -gain) + 1) / 2

    def _choose_round_size(self) -> int:
        """Choose the size of the next round: half of the documents that seem to be needed."""
        if self.failure:
            return len(self.order)
        if not self.asked or self.baseline is not None:
            return max(MIN_ROUND_SIZE, self.asked // 2)
        wanted = self.asked * (self.interval.half_width / self._points) ** 2
        likely = wanted / (1 + wanted / len(self.order))  # sampling without replacement
        return max(MIN_ROUND_SIZE, int((likely - self.asked) / 2))

    def to_facts(self) -> dict[str, Any]:
        """Return the result of the rule for the journal."""
        found = self.interval
        return {
            "metric": self.key[1],
            "pipeline": self.key[0],
            "asked": self.asked,
            "documents": len(self.order),
            "reached": self.is_reached,
            "higher_is_better": self.watched.higher_is_better,
            "low": found.low,
            "high": found.high,
            "level": found.level,
            "method": found.method,
            "clusters": None if self.cluster_ends is None else len(self.cluster_ends),
            "clusters_asked": None if self.cluster_ends is None else self._sequence.clusters,
            "why_not": self.failure,
        }


def _format_condition(rule: StopRule) -> str:
    return f"gate:{rule.baseline}>={rule.points:g}" if rule.baseline else f"ci<={rule.points:g}"


def make_stop_rules(plan: Plan, journal: Journal) -> dict[str, TaskStopRule]:
    """Make the rule of each task, with the scores in the journal.

    Raises:
        InvalidOption: The baseline run is not comparable.
    """
    if plan.spec.stop_when is None:
        return {}
    rule = parse_stop_rule(plan.spec.stop_when)
    baseline = _open_baseline(plan, rule)
    stops: dict[str, TaskStopRule] = {}
    for name, planned in plan.tasks.items():
        stop = _make_stop_rule(plan, planned, rule, baseline)
        if stop is not None:
            stops[name] = stop
            for pipeline, metric, document, kind, value in journal.read_verdicts(name):
                if (pipeline, metric) == stop.key and kind != "unscored":
                    stop.add_score(document, value)
    if baseline is not None:
        baseline.close()
    return stops


def _open_baseline(plan: Plan, rule: StopRule) -> Run | None:
    """Open the baseline run, from the output folder or `./assay-runs`."""
    if not rule.baseline:
        return None
    return Run(find_run(rule.baseline, (get_output_folder(plan.spec), Path(DEFAULT_FOLDER))))


def _make_stop_rule(
    plan: Plan, planned: PlannedTask, rule: StopRule, baseline: Run | None
) -> TaskStopRule | None:
    """Make the rule of a task; None if it does not apply (`plan.notes` say why)."""
    found = find_stop_metric(planned, rule)
    if isinstance(found, str):
        return None
    clusters = _group_by_cluster(planned)
    Random(f"{plan.spec.seed[0]} {planned.task.name}").shuffle(clusters)
    order = [document for cluster in clusters for document in cluster]
    known = None if baseline is None else _read_baseline_scores(baseline, planned, found)
    sizes = [len(cluster) for cluster in clusters] if len(clusters) < len(order) else None
    return TaskStopRule(rule, order, found, known, sizes)


def _group_by_cluster(planned: PlannedTask) -> list[list[int]]:
    """Return the documents of each cluster; a document without a cluster is one of its own."""
    key, documents = planned.spec.cluster_key, planned.task.indices
    if not key:
        return [[document] for document in documents]
    clusters: dict[Hashable, list[int]] = {}
    for document in planned.task.documents():
        value: Any = document.fields
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is None:
            value = (None, document.index)
        clusters.setdefault(value if isinstance(value, Hashable) else repr(value), []).append(document.index)
    return list(clusters.values())


def _read_baseline_scores(baseline: Run, planned: PlannedTask, found: StopMetric) -> dict[int, float]:
    """Return the scores of the baseline, by document.

    Raises:
        InvalidOption: The baseline has other documents.
    """
    name, manifest = planned.task.name, baseline.facts.get("manifest")
    about = manifest.get("tasks", {}).get(name) if isinstance(manifest, dict) else None
    if about is None:
        raise InvalidOption(f"the run `{baseline.id}` has no task `{name}`", where="--stop_when")
    if about.get("dataset", {}).get("digest") != planned.data_digest:
        raise InvalidOption(
            f"the run `{baseline.id}` has other documents of `{name}`",
            where="--stop_when",
            hint="the baseline must have the same task and data",
        )
    low, high = found.limits
    return {
        document: float(value)
        for pipeline, metric, document, kind, value in baseline.journal.read_verdicts(name)
        if (pipeline, metric) == (found.pipeline, found.metric)
        and kind == "score"
        and isinstance(value, (int, float))
        and low <= value <= high
    }


def describe_stops(plan: Plan, stops: Mapping[str, TaskStopRule], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of the rules for the journal, with the number of documents evaluated."""
    rule = parse_stop_rule(plan.spec.stop_when or "")
    refused = {
        name: (planned.documents, why)
        for name, planned in plan.tasks.items()
        if isinstance(why := find_stop_metric(planned, rule), str)
    }
    asked = {
        name: {**about, "documents": stops[name].asked}
        for name, about in facts["tasks"].items()
        if name in stops
    }
    return {
        "stopped": {name: stop.to_facts() for name, stop in stops.items()} | _describe_unstoppable(refused),
        "tasks": {**facts["tasks"], **asked},
    }


def _describe_unstoppable(refused: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    """Describe tasks to which the rule does not apply."""
    return {
        name: {"asked": count, "documents": count, "reached": False, "why_not": why}
        for name, (count, why) in refused.items()
    }
