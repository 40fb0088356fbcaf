"""The verdict on a document in a few words: right or wrong, the metrics, the answer beside the target, the filters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.store.documents.details import DocumentRecord
from assay.store.index.row_reader import compute_document_value
from assay.viewer.documents.filter_trace import FilterTrace, format_log_likelihood, format_value

__all__ = ["FilterLine", "MetricValue", "VerdictSummary", "build_filter_lines", "build_verdict_summary"]

Directions = Mapping[tuple[str, str], bool | None]
"""(pipeline, metric) -> whether higher values are better."""

_MAX_VALUE = 160
_MAX_ANSWER = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricValue:
    """A metric of a document; `right` is None if the value is neither the best nor the worst one."""

    pipeline: str
    name: str
    value: Any
    right: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictSummary:
    """The bar above a document."""

    state: str
    """right | wrong | partial | none"""

    word: str
    metrics: tuple[MetricValue, ...]
    answer: str
    target: str
    has_target: bool
    more: bool = False
    """Whether the answer is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineStep:
    """A filter that changed the value, or whose result is unknown."""

    name: str
    arguments: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterLine:
    """A pipeline in one line: the filters that changed the value, the number of the others, and the metrics."""

    trace: FilterTrace
    steps: tuple[LineStep, ...]
    unchanged: int
    metrics: tuple[MetricValue, ...]


def build_verdict_summary(
    record: DocumentRecord,
    choices: Sequence[Mapping[str, Any]],
    traces: Sequence[FilterTrace],
    directions: Directions,
) -> VerdictSummary:
    """Summarise the verdicts; the first metric decides whether the document is right."""
    metrics = _list_metrics(record, directions)
    first = metrics[0] if metrics else None
    if first is None:
        state, word = "none", record.outcome
    elif first.right is not None:
        state, word = ("right", "right") if first.right else ("wrong", "wrong")
    else:
        state, word = "partial", "scored"
    answer = _find_answer(record, choices, traces, first.pipeline if first else "")
    target = _find_target(record, choices)
    return VerdictSummary(
        state=state,
        word=word,
        metrics=tuple(metrics),
        answer=answer[:_MAX_ANSWER],
        more=len(answer) > _MAX_ANSWER,
        target=target,
        has_target=bool(target),
    )


def _list_metrics(record: DocumentRecord, directions: Directions) -> list[MetricValue]:
    """Return the scores, and the values that corpus metrics (error rates, perplexities) have for this document."""
    found = []
    for pipeline, metric, kind, value, _ in record.verdicts:
        if kind == "evidence":
            value = compute_document_value(metric, value)
        if kind == "score" or (kind == "evidence" and value is not None):
            right = _is_right(value, directions.get((pipeline, metric)))
            found.append(MetricValue(pipeline=pipeline, name=metric, value=value, right=right))
    return found


def _is_right(value: Any, higher_is_better: bool | None) -> bool | None:
    """Whether a value is the best (True) or the worst (False) one of a metric."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, (int, float)):
        return None
    if higher_is_better is False:
        return True if value == 0 else None
    return True if value == 1 else False if value == 0 else None


def _find_answer(
    record: DocumentRecord,
    choices: Sequence[Mapping[str, Any]],
    traces: Sequence[FilterTrace],
    pipeline: str,
) -> str:
    """Return the most likely choice, or the answer of the pipeline of the first metric."""
    if choices:
        return next((_format_choice(one) for one in choices if one["best"]), "")
    trace = next((one for one in traces if one.name == pipeline), traces[0] if traces else None)
    if trace is not None and any(request.kind == "rolling" for request in record.asked):
        return " | ".join(format_log_likelihood(value) for value in record.answers.get(trace.name, ()))
    return "" if trace is None else " | ".join(trace.answers).strip()


def _format_choice(choice: Mapping[str, Any]) -> str:
    """Return the text of a choice, and for a letter its option."""
    text = str(choice["text"]).strip()
    return f"{text}: {choice['option']}" if choice.get("option") else text


def _find_target(record: DocumentRecord, choices: Sequence[Mapping[str, Any]]) -> str:
    """Return the target; of a choice its text."""
    named = [_format_choice(one) for one in choices if one["is_target"]]
    if named:
        return " | ".join(dict.fromkeys(named))
    target = record.target
    listed: Any = record.fields.get("choices")
    is_index = isinstance(target, int) and not isinstance(target, bool) and isinstance(listed, list)
    if is_index and 0 <= target < len(listed) and isinstance(listed[target], str):
        return str(listed[target]).strip()
    if target is None or target == [] or target == "":
        return ""
    if isinstance(target, (list, tuple)):
        return " | ".join(_format_target(one) for one in target)
    return _format_target(target).strip()


def _format_target(value: Any) -> str:
    """Format a target; calls and other structures as JSON."""
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, dict) for one in value)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return format_value(value)


def build_filter_lines(
    record: DocumentRecord, traces: Sequence[FilterTrace], directions: Directions
) -> list[FilterLine]:
    """Return each pipeline in one line."""
    metrics = _list_metrics(record, directions)
    lines = []
    for trace in traces:
        steps = []
        unchanged = 0
        before: str | None = _shorten(trace.given) if trace.given else None
        for place, step in enumerate(trace.steps, 1):
            is_last = place == len(trace.steps)
            known = trace.answers if step.values is None and is_last and trace.answers else step.values
            value = None if known is None else _shorten(known)
            if value is not None and value == before:
                unchanged += 1
                continue
            steps.append(LineStep(name=step.name, arguments=step.arguments, value=value))
            before = value
        own = tuple(one for one in metrics if one.pipeline == trace.name)
        lines.append(FilterLine(trace=trace, steps=tuple(steps), unchanged=unchanged, metrics=own))
    return lines


def _shorten(values: Sequence[str]) -> str:
    text = " ".join(" | ".join(values).split())
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 1]}…"
