"""Check metrics and aggregations: they exist, accept their arguments, and fit the output type."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from assay.checks.findings import Findings, collect_errors
from assay.checks.functions import BrokenFunctions
from assay.core.errors import ErrorGroup, UnknownName
from assay.core.records.specs import MetricSpec, TaskSpec
from assay.models import MODELS
from assay.scoring.likelihoods import is_pair_of_choices
from assay.scoring.metrics import METRICS
from assay.scoring.metrics.aggregated import return_pair
from assay.scoring.result_keys import find_metrics_without_values
from assay.scoring.scorer import Scorer, is_unknown_aggregation_allowed
from assay.stats.aggregations import AGGREGATIONS

__all__ = ["check_scoring", "list_metric_names"]

_PAIR_METRICS: Mapping[str, frozenset[str]] = {
    "loglikelihood_rolling": frozenset(("word_perplexity", "byte_perplexity", "bits_per_byte")),
    "multiple_choice": frozenset(("f1", "mcc", "brier_score", "likelihood")),
}
"""Metrics with a pair as value, which only some aggregations accept."""

_NUMBER_AGGREGATIONS = frozenset(("mean", "nanmean", "sum", "std", "perplexity"))
_PAIR_AGGREGATIONS = frozenset(
    "f1 macro_f1 weighted_f1 matthews_corrcoef brier_score bleu chrf chrf++ ter weighted_perplexity bits_per_byte".split()
)


def list_metric_names(spec: TaskSpec) -> tuple[str, ...]:
    """Return the names of the metrics a task reports: its own, or the defaults of its output type."""
    if spec.metrics or spec.config.get("metric_list") is not None:
        return tuple(entry.name for entry in spec.metrics)
    return spec.output_type.default_metrics


def check_scoring(spec: TaskSpec, broken: BrokenFunctions, findings: Findings) -> None:
    """Create the scorer as a run would, then check each metric against the rest of the task."""
    with collect_errors(findings, "scoring", spec):
        try:
            scorer = Scorer.from_spec(_remove_broken_entries(spec, broken.key_paths))
            _check_judges(scorer, findings)
        except ErrorGroup as several:
            # a helper file that cannot be imported may register the name
            kept = [
                one for one in several.errors if not (broken.has_broken_file and isinstance(one, UnknownName))
            ]
            findings.add_exception("scoring", ErrorGroup(kept))
    wrong: set[str] = set()
    with collect_errors(findings, "metric-fit", spec):
        for error in [] if "process_results" in broken.key_paths else find_metrics_without_values(spec):
            findings.error("metric-fit", error.what, error.where, error.hint)
            wrong.add(error.where)
    seen: set[str] = set()
    for index, entry in enumerate(spec.metrics):
        where = entry.where or spec.place(f"metric_list[{index}]")
        if entry.name in seen:
            findings.warning(
                "repeated-metric", f"the metric `{entry.name}` is listed twice; the last entry is used", where
            )
        seen.add(entry.name)
        _check_entry(spec, entry, where, findings)
        _check_undeclared(spec, entry, where, findings)
        if where not in wrong and spec.process_results is None and isinstance(entry.metric, str):
            _check_fit(spec, entry, where, findings)


def _check_judges(scorer: Scorer, findings: Findings) -> None:
    """Check that the judge models of a task file exist. Does not create them."""
    for panel in scorer.panels:
        for entry in panel.spec.models:
            try:
                MODELS.get(entry.model, where=f"{panel.spec.where}.model")
            except UnknownName as error:
                findings.add_exception("scoring", error)


def _remove_broken_entries(spec: TaskSpec, broken: set[str]) -> TaskSpec:
    metrics = [
        entry
        for index, entry in enumerate(spec.metrics)
        if not any(place.startswith(f"metric_list[{index}]") for place in broken)
    ]
    pipelines = [
        pipeline
        for index, pipeline in enumerate(spec.pipelines)
        if not any(place.startswith(f"filter_list[{index}]") for place in broken)
    ]
    return replace(spec, metrics=tuple(metrics), pipelines=tuple(pipelines))


def _check_entry(spec: TaskSpec, entry: MetricSpec, where: str, findings: Findings) -> None:
    higher: Any = entry.higher_is_better
    aggregation: Any = entry.aggregation
    if (
        isinstance(aggregation, str)
        and aggregation not in AGGREGATIONS
        and is_unknown_aggregation_allowed(spec)
    ):
        findings.warning(
            "scoring",
            f"no aggregation is called `{aggregation}`: the metric has no score if `process_results` returns it",
            where,
            "`assay ls aggregations` shows all",
        )
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
                "metric-key", f"unknown metric key `{name}`", where, f"did you mean `{close[0]}`?"
            )
    patterns = entry.arguments.get("regexes_to_ignore") or ()
    for pattern in (
        patterns if isinstance(patterns, Sequence) and not isinstance(patterns, str) else [patterns]
    ):
        try:
            re.compile(pattern)
        except (re.error, TypeError, RecursionError, OverflowError) as error:
            findings.error(
                "regex", f"invalid pattern in `regexes_to_ignore`: {pattern!r:.60}: {error}", where
            )


def _check_undeclared(spec: TaskSpec, entry: MetricSpec, where: str, findings: Findings) -> None:
    """Check that a custom metric declares its aggregation and direction."""
    if (isinstance(entry.metric, str) and entry.name in METRICS) or "judge" in entry.arguments:
        return
    missing = [
        key
        for key, value in (("aggregation", entry.aggregation), ("higher_is_better", entry.higher_is_better))
        if value is None
    ]
    if missing:
        names = " and ".join(f"`{key}`" for key in missing)
        findings.warning(
            "unsaid",
            f"the custom metric `{entry.name}` does not set {names}",
            where,
            "the default `aggregation` is mean" if "aggregation" in missing else "`higher_is_better: true`",
        )


def _check_fit(spec: TaskSpec, entry: MetricSpec, where: str, findings: Findings) -> None:
    name, kind = entry.name, spec.output_type
    if "judge" in entry.arguments:
        return
    if name not in METRICS:
        return
    known = METRICS.get(name)
    generates = kind.generates_text
    uses_hub = entry.arguments.get("hf_evaluate") is True
    pair = (
        known.function is return_pair and not uses_hub
        if generates
        else name in _PAIR_METRICS.get(kind, frozenset()) or is_pair_of_choices(known)
    )
    aggregation = entry.aggregation if entry.aggregation is not None else known.aggregation
    if pair and aggregation in _NUMBER_AGGREGATIONS:
        findings.error(
            "metric-fit",
            f"`{name}` of a {kind} task is a pair per document, which `{aggregation}` cannot aggregate",
            where,
            f"`aggregation: {known.aggregation}`"
            if known.aggregation not in _NUMBER_AGGREGATIONS
            else "use a function",
        )
    elif not pair and name != "bypass" and aggregation in _PAIR_AGGREGATIONS and not uses_hub:
        findings.error(
            "metric-fit",
            f"`{name}` of a {kind} task is a number per document, which `{aggregation}` cannot aggregate",
            where,
            "`aggregation: mean`",
        )
