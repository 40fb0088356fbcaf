"""Filter pipelines: what they leave for the metric, and regular expressions that catch nothing."""

from __future__ import annotations

import re
from typing import Any

from assay.checks.findings import Findings
from assay.core.specs import FilterStep, PipelineSpec, TaskSpec

__all__ = ["check_filters"]

_KEEP_LISTS = frozenset(
    "regex regex_pos multi_choice_regex remove_whitespace lowercase uppercase map strip_thinking format_span "
    "majority_vote take_first_k".split()
)
"""Filters that give a list for a list."""

_REGEX = frozenset(("regex", "multi_choice_regex"))


def check_filters(spec: TaskSpec, findings: Findings) -> None:
    """Look at every pipeline of a task."""
    names: set[str] = set()
    for at, pipeline in enumerate(spec.pipelines):
        where = spec.place(f"filter_list[{at}]")
        if pipeline.name in names:
            findings.error(
                "repeated-pipeline",
                f"two pipelines are called `{pipeline.name}`; their scores would overwrite each other",
                where,
            )
        names.add(pipeline.name)
        _check_shape(spec, pipeline, where, findings)
        for step in pipeline.steps:
            _check_step(spec, step, findings)


def _check_shape(spec: TaskSpec, pipeline: PipelineSpec, where: str, findings: Findings) -> None:
    """Follow lists and plain values through the steps: the metric wants one value."""
    is_list: bool | None = True  # the repeats of a request; None: nobody knows
    for step in pipeline.steps:
        name = step.function if isinstance(step.function, str) else None
        if is_list is False and (name == "take_first" or name in _KEEP_LISTS):
            findings.warning(
                "filter-order",
                f"after `take_first` the filter `{name}` sees the characters of the answer, not the answer",
                step.where,
                "put `take_first` last, once",
            )
            is_list = None
        elif name == "take_first":
            is_list = False if is_list is True else None
        elif name not in _KEEP_LISTS:
            is_list = None
    judged_by_name = not spec.metrics or any(
        isinstance(entry.metric, str) and not callable(entry.aggregation) for entry in spec.metrics
    )
    if is_list is True and spec.process_results is None and judged_by_name:
        findings.warning(
            "filter-list",
            f"the pipeline `{pipeline.name}` ends in a list of answers, which the metrics compare as a list",
            where,
            "end it with `- function: take_first`",
        )


def _check_step(spec: TaskSpec, step: FilterStep, findings: Findings) -> None:
    if step.function in _REGEX:
        _check_pattern(step, findings)
    wanted = step.arguments.get("k")
    if step.function == "take_first_k" and isinstance(wanted, int) and wanted > spec.repeats:
        findings.error(
            "repeats",
            f"`take_first_k` wants {wanted} responses of each document, but `repeats` is {spec.repeats}",
            step.where,
            f"`repeats: {wanted}`",
        )
    if step.function == "majority_vote" and spec.repeats == 1:
        findings.note(
            "repeats", "`majority_vote` has one response to choose from", step.where, "set `repeats`"
        )


def _check_pattern(step: FilterStep, findings: Findings) -> None:
    pattern: Any = step.arguments.get("regex_pattern")
    if not isinstance(pattern, str):
        return
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return  # looking the filter up has said so
    if compiled.groups == 0:
        findings.note(
            "regex",
            f"the pattern `{pattern:.60}` has no group, so the whole match is the answer",
            step.where,
            "put brackets around the answer",
        )
    if compiled.search("") is not None and not pattern.startswith("^"):
        findings.warning(
            "regex",
            f"the pattern `{pattern:.60}` matches the empty text, so the answer may be cut out of nothing",
            step.where,
        )
