"""What each filter did to the responses of one document: the built-in filters, applied once more, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.errors import AssayError
from assay.core.responses import LogProbability
from assay.core.specs import FilterStep, PipelineSpec
from assay.scoring.filters import FILTERS
from assay.scoring.pipelines import DEFAULT_PIPELINE, Step, build_pipeline
from assay.store.one_document import DocumentRecord

__all__ = ["FilterTrace", "StepResult", "filter_traces", "warm_up"]

_LONGEST = 200_000
"""Characters of responses beyond which nobody's patience is tried with regular expressions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One filter: its name, its arguments, and what it made of each request."""

    name: str
    arguments: str
    values: tuple[str, ...] | None
    """None where it cannot be told: a filter of the task's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterTrace:
    """One pipeline: its steps, and the answers that were judged."""

    name: str
    steps: tuple[StepResult, ...]
    answers: tuple[str, ...]


def warm_up() -> None:
    """Load the filters, which the first document would otherwise wait for."""
    FILTERS.names()


def filter_traces(record: DocumentRecord, config: Mapping[str, Any]) -> list[FilterTrace]:
    """Every pipeline of a document, in the order of the task."""
    listed = config.get("filter_list")
    specs = (
        [one for one in listed if isinstance(one, Mapping) and one.get("name")]
        if isinstance(listed, list)
        else []
    )
    by_name = {str(spec["name"]): spec for spec in specs}
    order = [*(name for name in by_name if name in record.answers)]
    order += [name for name in record.answers if name not in order]
    return [_trace(record, name, by_name.get(name)) for name in order]


def _trace(record: DocumentRecord, name: str, spec: Mapping[str, Any] | None) -> FilterTrace:
    answers = tuple(shown(value) for value in record.answers[name])
    given = spec.get("filter") if spec is not None else None
    if isinstance(given, list):
        steps = [dict(step) for step in given if isinstance(step, Mapping)]
    else:
        steps = [
            {"function": step.function, **step.arguments}
            for step in (DEFAULT_PIPELINE.steps if spec is None else ())
        ]
    values = _values(record)
    results: list[StepResult] = []
    known: list[Any] | None = values
    for step in steps:
        function = str(step.pop("function", "?"))
        known = _applied(function, step, known, record.fields) if known is not None else None
        results.append(
            StepResult(
                name=function,
                arguments=", ".join(f"{key}={value}" for key, value in step.items()),
                values=None if known is None else tuple(shown(value) for value in known),
            )
        )
    if known is not None and tuple(shown(value) for value in known) != answers:
        # It was filtered otherwise then (thoughts cut out, another version): only what is certain is said.
        results = [StepResult(name=one.name, arguments=one.arguments, values=None) for one in results]
    return FilterTrace(name=name, steps=tuple(results), answers=answers)


def _values(record: DocumentRecord) -> list[Any] | None:
    """Responses by request, one per repeat, as filters get them; None where one is missing or they are too long."""
    by_request: dict[int, list[Any]] = {}
    total = 0
    for asked in record.asked:
        if asked.response is None:
            return None
        value = asked.response.value
        total += len(value) if isinstance(value, str) else 0
        by_request.setdefault(asked.number, []).append(
            (value.total, value.greedy) if isinstance(value, LogProbability) else value
        )
    return list(by_request.values()) if total <= _LONGEST else None


def _applied(
    function: str, arguments: Mapping[str, Any], values: Sequence[Any], fields: Mapping[str, Any]
) -> list[Any] | None:
    """What one built-in filter makes of the values; nobody else's code is run."""
    try:
        spec = PipelineSpec(name="", steps=(FilterStep(function=function, arguments=dict(arguments)),))
        (step,) = build_pipeline(spec).steps
        if not _built_in(step) or function == "custom":
            return None
        return list(step.make(**step.arguments).apply(list(values), [fields] * len(values)))
    except (AssayError, TypeError, ValueError, KeyError, IndexError, AttributeError):
        return None


def _built_in(step: Step) -> bool:
    return str(getattr(step.make, "__module__", "")).startswith("assay.scoring.")


def shown(value: Any) -> str:
    """A value as people read it; the only element of a list stands for the list."""
    while isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if isinstance(value, (list, tuple)) and len(value) == 2 and isinstance(value[1], bool):
        return (
            f"{value[0]:.4f}{' (greedy)' if value[1] else ''}" if isinstance(value[0], float) else str(value)
        )
    return value if isinstance(value, str) else str(value)
