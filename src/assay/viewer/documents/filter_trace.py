"""What each filter did to the responses of a document: from the store, else by applying the built-in filters again.

The viewer never runs task code. The results of custom filters are stored during the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.errors import AssayError
from assay.core.records.responses import LogProbability
from assay.core.records.specs import FilterStep, PipelineSpec
from assay.scoring.filters import FILTERS
from assay.scoring.filters.transformation import strip_reasoning
from assay.scoring.pipelines import DEFAULT_PIPELINE, build_pipeline
from assay.store.documents.details import DocumentRecord

__all__ = [
    "FilterTrace",
    "StepResult",
    "build_filter_traces",
    "format_log_likelihood",
    "format_value",
    "preload",
]

_MAX_REPLAY_LENGTH = 200_000
"""Longer responses are not filtered again: regular expressions could take too long."""

_CUSTOM_NOTE = "custom filter of the task"
_GLOBAL_NOTE = "filters all documents of the task together, after the last response"
_NOT_STORED_NOTE = "its result is not stored, and the viewer does not run task code"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One filter: its name, its arguments, and its result for each request."""

    name: str
    arguments: str
    values: tuple[str, ...] | None
    """None if it is unknown."""

    note: str = ""
    """Whether it is a custom filter, whether it filters all documents together, why the result is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterTrace:
    """One pipeline: its input, its steps, and the resulting answers."""

    name: str
    given: tuple[str, ...]
    steps: tuple[StepResult, ...]
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepSpec:
    """A step as the run recorded it."""

    function: str
    arguments: Mapping[str, Any]
    is_custom: bool = False
    is_global: bool = False

    @property
    def note(self) -> str:
        return "; ".join(
            [*([_CUSTOM_NOTE] if self.is_custom else []), *([_GLOBAL_NOTE] if self.is_global else [])]
        )


def preload() -> None:
    """Load the filters, which the first document page would otherwise wait for."""
    FILTERS.names()


def build_filter_traces(record: DocumentRecord, facts: Mapping[str, Any]) -> list[FilterTrace]:
    """Return the trace of each pipeline, in the order of the task; `facts` are those of the task."""
    order = [name for name in facts.get("pipelines", ()) if name in record.answers]
    order += [name for name in record.answers if name not in order]
    return [_build_trace(record, name, facts) for name in order]


def _build_trace(record: DocumentRecord, name: str, facts: Mapping[str, Any]) -> FilterTrace:
    answers = tuple(format_value(value) for value in record.answers[name])
    recorded = (facts.get("filters") or {}).get(name)
    steps = _read_steps(recorded) if recorded else _read_configured_steps(facts.get("config") or {}, name)
    given = _read_responses(record)
    thoughts = (recorded or {}).get("thoughts") or ()
    if given is not None and thoughts and (recorded or {}).get("thoughts_first"):
        given, thoughts = [strip_reasoning(value, thoughts) for value in given], ()
    kept = record.steps.get(name)
    if kept is not None and len(kept) == len(steps):
        values: list[list[Any] | None] = list(kept)
    else:
        values = _replay_steps(steps, given, record.fields)
    results = [_build_result(step, value) for step, value in zip(steps, values, strict=True)]
    last = values[-1] if values else given
    if last is not None and thoughts:
        last = [strip_reasoning(value, thoughts) for value in last]
        results.append(_build_result(_StepSpec(function="reasoning removed", arguments={}), last))
    if last is not None and tuple(format_value(value) for value in last) != answers:
        # Another version filtered it differently: show only the stored answers.
        results = [_build_result(step, None) for step in steps]
    read = () if given is None else tuple(format_value(value) for value in given)
    return FilterTrace(name=name, given=read, steps=tuple(results), answers=answers)


def _read_steps(recorded: Mapping[str, Any]) -> list[_StepSpec]:
    """Return the steps of a pipeline that the run recorded."""
    return [
        _StepSpec(
            function=str(step.get("function", "?")),
            arguments=step.get("arguments") or {},
            is_custom=bool(step.get("own")),
            is_global=bool(step.get("together")),
        )
        for step in recorded.get("steps", ())
    ]


def _read_configured_steps(config: Mapping[str, Any], name: str) -> list[_StepSpec]:
    """Return the steps from the task's configuration, for runs of older versions."""
    listed = config.get("filter_list")
    specs = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    spec = next((one for one in specs if str(one.get("name")) == name), None)
    if spec is None:
        return [
            _StepSpec(function=str(one.function), arguments=one.arguments) for one in DEFAULT_PIPELINE.steps
        ]
    given = spec.get("filter")
    return [
        _StepSpec(
            function=str(step.get("function", "?")),
            arguments={key: value for key, value in step.items() if key != "function"},
            is_custom=step.get("function") == "custom",
        )
        for step in (given if isinstance(given, list) else ())
        if isinstance(step, Mapping)
    ]


def _build_result(step: _StepSpec, values: Sequence[Any] | None) -> StepResult:
    notes = [step.note] if step.note else []
    if values is None and step.is_custom:
        notes.append(_NOT_STORED_NOTE)
    return StepResult(
        name=step.function,
        arguments=", ".join(f"{key}={value}" for key, value in step.arguments.items()),
        values=None if values is None else tuple(format_value(value) for value in values),
        note="; ".join(notes),
    )


def _replay_steps(
    steps: Sequence[_StepSpec], given: list[Any] | None, fields: Mapping[str, Any]
) -> list[list[Any] | None]:
    """Apply the steps one after another; results are None from the first step that cannot be replayed."""
    known: list[Any] | None = given
    found: list[list[Any] | None] = []
    for step in steps:
        alone = known is not None and not step.is_custom and not step.is_global
        known = (
            _apply_filter(step.function, step.arguments, known, fields)
            if alone and known is not None
            else None
        )
        found.append(known)
    return found


def _read_responses(record: DocumentRecord) -> list[Any] | None:
    """Return the responses by request, one per repeat; None if one is missing or they are too long."""
    by_request: dict[int, list[Any]] = {}
    total = 0
    for request in record.asked:
        if request.response is None:
            return None
        value = request.response.scored_value
        total += len(value) if isinstance(value, str) else 0
        by_request.setdefault(request.number, []).append(
            (value.total, value.greedy) if isinstance(value, LogProbability) else value
        )
    return list(by_request.values()) if total <= _MAX_REPLAY_LENGTH else None


def _apply_filter(
    function: str, arguments: Mapping[str, Any], values: Sequence[Any], fields: Mapping[str, Any]
) -> list[Any] | None:
    """Apply a built-in filter to the values; None for a custom filter or an error."""
    try:
        spec = PipelineSpec(name="", steps=(FilterStep(function=function, arguments=dict(arguments)),))
        (step,) = build_pipeline(spec).steps
        if step.is_task_code:
            return None
        return list(step.factory(**step.arguments).apply(list(values), [fields] * len(values)))
    except (AssayError, TypeError, ValueError, KeyError, IndexError, AttributeError):
        return None


def format_log_likelihood(value: Any) -> str:
    """Format the log-likelihood of a text with four significant digits.

    >>> format_log_likelihood([-3.14159265]), format_log_likelihood(-123456.789)
    ('-3.142', '-123457')
    """
    while isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if not isinstance(value, float):
        return format_value(value)
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def format_value(value: Any) -> str:
    """Format a value; a list of one element is formatted as the element."""
    while isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if isinstance(value, (list, tuple)) and len(value) == 2 and isinstance(value[1], bool):
        return (
            f"{value[0]:.4f}{' (greedy)' if value[1] else ''}" if isinstance(value[0], float) else str(value)
        )
    if isinstance(value, (list, tuple)) and value and all(isinstance(one, str) for one in value):
        return " | ".join(value)
    return value if isinstance(value, str) else str(value)
