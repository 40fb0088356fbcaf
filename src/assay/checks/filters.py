"""Check filter pipelines: the shape of their output, and regular expressions that match nothing."""

from __future__ import annotations

import re
from typing import Any

from assay.checks.findings import Findings
from assay.core.records.specs import FilterStep, PipelineSpec, TaskSpec

__all__ = ["check_filters"]

_LIST_FILTERS = frozenset(
    "regex regex_pos multi_choice_regex remove_whitespace lowercase uppercase map strip_thinking format_span "
    "majority_vote take_first_k".split()
)
"""Filters that map a list to a list."""

_REGEX_FILTERS = frozenset(("regex", "multi_choice_regex"))


def check_filters(spec: TaskSpec, findings: Findings) -> None:
    """Check every filter pipeline of a task."""
    names: set[str] = set()
    for index, pipeline in enumerate(spec.pipelines):
        where = spec.place(f"filter_list[{index}]")
        if pipeline.name in names:
            findings.error(
                "repeated-pipeline",
                f"duplicate pipeline name `{pipeline.name}`: the scores of the second overwrite the first",
                where,
            )
        names.add(pipeline.name)
        _check_shape(spec, pipeline, where, findings)
        for step in pipeline.steps:
            _check_step(spec, step, findings)


def _check_shape(spec: TaskSpec, pipeline: PipelineSpec, where: str, findings: Findings) -> None:
    """Track through the steps whether the value is a list: the metric needs a single value."""
    is_list: bool | None = True  # starts as the list of repeats; None: unknown
    for step in pipeline.steps:
        name = step.function if isinstance(step.function, str) else None
        if is_list is False and (name == "take_first" or name in _LIST_FILTERS):
            findings.warning(
                "filter-order",
                f"after `take_first`, the filter `{name}` iterates over the characters of the answer",
                step.where,
                "use `take_first` once, as the last step",
            )
            is_list = None
        elif name == "take_first":
            is_list = False if is_list is True else None
        elif name not in _LIST_FILTERS:
            is_list = None
    has_named_metric = not spec.metrics or any(
        isinstance(entry.metric, str) and not callable(entry.aggregation) for entry in spec.metrics
    )
    if is_list is True and spec.process_results is None and has_named_metric:
        findings.warning(
            "filter-list",
            f"the pipeline `{pipeline.name}` returns a list of answers, and the metrics compare the whole list",
            where,
            "end it with `- function: take_first`",
        )


def _check_step(spec: TaskSpec, step: FilterStep, findings: Findings) -> None:
    if step.function in _REGEX_FILTERS:
        _check_pattern(step, findings)
    count = step.arguments.get("k")
    if step.function == "take_first_k" and isinstance(count, int) and count > spec.repeats:
        findings.error(
            "repeats",
            f"`take_first_k` needs {count} responses per document, but `repeats` is {spec.repeats}",
            step.where,
            f"`repeats: {count}`",
        )
    if step.function == "majority_vote" and spec.repeats == 1:
        findings.note(
            "repeats", "`majority_vote` gets only one response per document", step.where, "set `repeats`"
        )


def _check_pattern(step: FilterStep, findings: Findings) -> None:
    pattern: Any = step.arguments.get("regex_pattern")
    if not isinstance(pattern, str):
        return
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return  # creating the filter has reported it
    if compiled.groups == 0:
        findings.note(
            "regex",
            f"the pattern `{pattern:.60}` has no group, so the answer is the whole match",
            step.where,
            "put parentheses around the answer",
        )
    if compiled.search("") is not None and not pattern.startswith("^"):
        findings.warning(
            "regex",
            f"the pattern `{pattern:.60}` matches the empty string, so the answer may be empty",
            step.where,
        )
