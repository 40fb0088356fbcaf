"""Metrics and aggregations: known, taking their arguments, and fit for what the task asks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from assay.checks.findings import Findings, guarded
from assay.checks.functions import Broken
from assay.core.errors import Problems, UnknownName
from assay.core.specs import MetricSpec, TaskSpec
from assay.models import MODELS
from assay.scoring.metrics import METRICS
from assay.scoring.metrics.pairs import keep_pair
from assay.scoring.scorer import DEFAULT_METRICS, Scorer

__all__ = ["check_scoring", "metric_names"]

_REPORTED: Mapping[str, frozenset[str]] = {
    "loglikelihood": frozenset(("acc", "perplexity", "bypass")),
    "loglikelihood_rolling": frozenset(("word_perplexity", "byte_perplexity", "bits_per_byte", "bypass")),
    "multiple_choice": frozenset(
        "acc acc_norm acc_bytes acc_mutual_info exact_match f1 mcc brier_score likelihood bypass".split()
    ),
}
"""What is ever reported of a task that generates nothing."""

_PAIRS: Mapping[str, frozenset[str]] = {
    "loglikelihood_rolling": frozenset(("word_perplexity", "byte_perplexity", "bits_per_byte")),
    "multiple_choice": frozenset(("f1", "mcc", "brier_score", "likelihood")),
}
"""Metrics whose value is a pair, which only some aggregations understand."""

_OF_NUMBERS = frozenset(("mean", "nanmean", "sum", "std", "perplexity"))
_OF_PAIRS = frozenset(
    "f1 matthews_corrcoef brier_score bleu chrf chrf++ ter weighted_perplexity bits_per_byte".split()
)


def metric_names(spec: TaskSpec) -> tuple[str, ...]:
    """The metrics a task reports, by name: its own, else the defaults of its output type."""
    if spec.metrics or spec.config.get("metric_list") is not None:
        return tuple(entry.name for entry in spec.metrics)
    return DEFAULT_METRICS.get(spec.output_type, ("exact_match",))


def check_scoring(spec: TaskSpec, broken: Broken, findings: Findings) -> None:
    """Look everything up as a run would; then what only a reader of the whole task can see."""
    with guarded(findings, "scoring", spec):
        try:
            scorer = Scorer.of(_without(spec, broken.places))
            _check_judges(scorer, findings)
        except Problems as several:
            # a helper that cannot be imported may be what registers a name
            kept = [one for one in several.problems if not (broken.files and isinstance(one, UnknownName))]
            findings.raised("scoring", Problems(kept))
    seen: set[str] = set()
    for at, entry in enumerate(spec.metrics):
        where = entry.where or spec.place(f"metric_list[{at}]")
        if entry.name in seen:
            findings.warning(
                "repeated-metric", f"the metric `{entry.name}` is listed twice; the last entry counts", where
            )
        seen.add(entry.name)
        _check_entry(entry, where, findings)
        _check_unsaid(spec, entry, where, findings)
        if spec.process_results is None and isinstance(entry.metric, str):
            _check_fit(spec, entry, where, findings)


def _check_judges(scorer: Scorer, findings: Findings) -> None:
    """The models a task file names as judges are known; making them is left to a plan."""
    for jury in scorer.juries:
        for juror in jury.spec.jurors:
            try:
                MODELS.get(juror.model, where=f"{jury.spec.where}.model")
            except UnknownName as error:
                findings.raised("scoring", error)


def _without(spec: TaskSpec, broken: set[str]) -> TaskSpec:
    metrics = [
        entry
        for at, entry in enumerate(spec.metrics)
        if not any(place.startswith(f"metric_list[{at}]") for place in broken)
    ]
    pipelines = [
        pipeline
        for at, pipeline in enumerate(spec.pipelines)
        if not any(place.startswith(f"filter_list[{at}]") for place in broken)
    ]
    return replace(spec, metrics=tuple(metrics), pipelines=tuple(pipelines))


def _check_entry(entry: MetricSpec, where: str, findings: Findings) -> None:
    higher: Any = entry.higher_is_better
    aggregation: Any = entry.aggregation
    if higher is not None and not isinstance(higher, bool):
        findings.error("key", f"`higher_is_better` must be true or false, not {higher!r}", where)
    if aggregation is not None and not isinstance(aggregation, str) and not callable(aggregation):
        findings.error("key", f"`aggregation` must be a name or a function, not {aggregation!r:.60}", where)
    for name in entry.arguments:
        close = get_close_matches(
            str(name), ("aggregation", "higher_is_better", "hf_evaluate"), n=1, cutoff=0.8
        )
        if close and name != close[0]:
            findings.warning(
                "metric-key", f"a metric has no key `{name}`", where, f"did you mean `{close[0]}`?"
            )
    patterns = entry.arguments.get("regexes_to_ignore") or ()
    for pattern in (
        patterns if isinstance(patterns, Sequence) and not isinstance(patterns, str) else [patterns]
    ):
        try:
            re.compile(pattern)
        except (re.error, TypeError, RecursionError, OverflowError) as error:
            findings.error(
                "regex", f"`regexes_to_ignore` has no valid pattern: {pattern!r:.60}: {error}", where
            )


def _check_unsaid(spec: TaskSpec, entry: MetricSpec, where: str, findings: Findings) -> None:
    """A metric nobody knows must say how it is summed up and which way is better."""
    if (isinstance(entry.metric, str) and entry.name in METRICS) or "judge" in entry.arguments:
        return
    unsaid = [
        key
        for key, value in (("aggregation", entry.aggregation), ("higher_is_better", entry.higher_is_better))
        if value is None
    ]
    if unsaid:
        names = " and ".join(f"`{key}`" for key in unsaid)
        findings.warning(
            "unsaid",
            f"the metric `{entry.name}` is not a known one and does not say its {names}",
            where,
            "without `aggregation` it is the mean" if "aggregation" in unsaid else "`higher_is_better: true`",
        )


def _check_fit(spec: TaskSpec, entry: MetricSpec, where: str, findings: Findings) -> None:
    name, kind = entry.name, spec.output_type
    if "judge" in entry.arguments:
        return
    reported = _REPORTED.get(kind)
    if reported is not None and name in METRICS and name not in reported:
        others = ", ".join(sorted(reported - {"bypass"}))
        findings.error(
            "metric-fit", f"a {kind} task never reports `{name}`", where, f"it can report: {others}"
        )
        return
    if name not in METRICS:
        return
    known = METRICS.get(name)
    generates = kind not in _REPORTED
    uses_hub = entry.arguments.get("hf_evaluate") is True
    pair = (
        known.function is keep_pair and not uses_hub if generates else name in _PAIRS.get(kind, frozenset())
    )
    aggregation = entry.aggregation if entry.aggregation is not None else known.aggregation
    if pair and aggregation in _OF_NUMBERS:
        findings.error(
            "metric-fit",
            f"`{name}` of a {kind} task is a pair for each document, which `{aggregation}` cannot sum up",
            where,
            f"`aggregation: {known.aggregation}`"
            if known.aggregation not in _OF_NUMBERS
            else "use a function",
        )
    elif not pair and name != "bypass" and aggregation in _OF_PAIRS and not uses_hub:
        findings.error(
            "metric-fit",
            f"`{name}` of a {kind} task is a number for each document, which `{aggregation}` cannot sum up",
            where,
            "`aggregation: mean`",
        )
