"""What each filter did to the responses of one document: as it was kept, else the built-in filters applied once more.

Nobody else's code is run to show a page. What a task's own filter did was written down when it did it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.errors import AssayError
from assay.core.responses import LogProbability
from assay.core.specs import FilterStep, PipelineSpec
from assay.scoring.filters import FILTERS
from assay.scoring.filters.transformation import without_thoughts
from assay.scoring.pipelines import DEFAULT_PIPELINE, build_pipeline
from assay.store.one_document import DocumentRecord

__all__ = ["FilterTrace", "StepResult", "filter_traces", "warm_up"]

_LONGEST = 200_000
"""Characters of responses beyond which nobody's patience is tried with regular expressions."""

_OWN = "the task's own code"
_TOGETHER = "looks at all documents of the task together: it ran when the last of them was answered"
_UNKNOWN = "what it did was not kept, and nobody runs it to show a page"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One filter: its name, its arguments, and what it made of each request."""

    name: str
    arguments: str
    values: tuple[str, ...] | None
    """None where it cannot be told."""

    note: str = ""
    """What is to be known of it: whose code it is, whether it waits for all documents, why nothing is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterTrace:
    """One pipeline: what it was given, its steps, and the answers that were judged."""

    name: str
    given: tuple[str, ...]
    steps: tuple[StepResult, ...]
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """A step as the run says it."""

    function: str
    arguments: Mapping[str, Any]
    own: bool = False
    together: bool = False

    @property
    def note(self) -> str:
        return "; ".join([*([_OWN] if self.own else []), *([_TOGETHER] if self.together else [])])


def warm_up() -> None:
    """Load the filters, which the first document would otherwise wait for."""
    FILTERS.names()


def filter_traces(record: DocumentRecord, facts: Mapping[str, Any]) -> list[FilterTrace]:
    """Every pipeline of a document, in the order of the task; `facts` are those of the task."""
    order = [name for name in facts.get("pipelines", ()) if name in record.answers]
    order += [name for name in record.answers if name not in order]
    return [_trace(record, name, facts) for name in order]


def _trace(record: DocumentRecord, name: str, facts: Mapping[str, Any]) -> FilterTrace:
    answers = tuple(shown(value) for value in record.answers[name])
    told = (facts.get("filters") or {}).get(name)
    steps = _described(told) if told else _configured(facts.get("config") or {}, name)
    given = _values(record)
    kept = record.steps.get(name)
    if kept is not None and len(kept) == len(steps):
        values: list[list[Any] | None] = list(kept)
    else:
        values = _replayed(steps, given, record.fields)
    results = [_result(step, made) for step, made in zip(steps, values, strict=True)]
    thoughts = (told or {}).get("thoughts") or ()
    last = values[-1] if values else given
    if last is not None and thoughts:
        last = [without_thoughts(value, thoughts) for value in last]
        results.append(_result(_Described(function="thoughts cut out", arguments={}), last))
    if last is not None and tuple(shown(value) for value in last) != answers:
        # It was filtered otherwise then (by another version): only what is certain is said.
        results = [_result(step, None) for step in steps]
    read = () if given is None else tuple(shown(value) for value in given)
    return FilterTrace(name=name, given=read, steps=tuple(results), answers=answers)


def _described(told: Mapping[str, Any]) -> list[_Described]:
    """The steps of a pipeline as the run wrote them down."""
    return [
        _Described(
            function=str(step.get("function", "?")),
            arguments=step.get("arguments") or {},
            own=bool(step.get("own")),
            together=bool(step.get("together")),
        )
        for step in told.get("steps", ())
    ]


def _configured(config: Mapping[str, Any], name: str) -> list[_Described]:
    """The same from the task file: runs of older versions say no more."""
    listed = config.get("filter_list")
    specs = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    spec = next((one for one in specs if str(one.get("name")) == name), None)
    if spec is None:
        return [
            _Described(function=str(one.function), arguments=one.arguments) for one in DEFAULT_PIPELINE.steps
        ]
    given = spec.get("filter")
    return [
        _Described(
            function=str(step.get("function", "?")),
            arguments={key: value for key, value in step.items() if key != "function"},
            own=step.get("function") == "custom",
        )
        for step in (given if isinstance(given, list) else ())
        if isinstance(step, Mapping)
    ]


def _result(step: _Described, values: Sequence[Any] | None) -> StepResult:
    notes = [step.note] if step.note else []
    if values is None and step.own:
        notes.append(_UNKNOWN)
    return StepResult(
        name=step.function,
        arguments=", ".join(f"{key}={value}" for key, value in step.arguments.items()),
        values=None if values is None else tuple(shown(value) for value in values),
        note="; ".join(notes),
    )


def _replayed(
    steps: Sequence[_Described], given: list[Any] | None, fields: Mapping[str, Any]
) -> list[list[Any] | None]:
    """What each step makes of what the one before it made, as far as that can be told."""
    known: list[Any] | None = given
    found: list[list[Any] | None] = []
    for step in steps:
        alone = known is not None and not step.own and not step.together
        known = (
            _applied(step.function, step.arguments, known, fields) if alone and known is not None else None
        )
        found.append(known)
    return found


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
        if step.is_own:
            return None
        return list(step.make(**step.arguments).apply(list(values), [fields] * len(values)))
    except (AssayError, TypeError, ValueError, KeyError, IndexError, AttributeError):
        return None


def shown(value: Any) -> str:
    """A value as people read it; the only element of a list stands for the list."""
    while isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if isinstance(value, (list, tuple)) and len(value) == 2 and isinstance(value[1], bool):
        return (
            f"{value[0]:.4f}{' (greedy)' if value[1] else ''}" if isinstance(value[0], float) else str(value)
        )
    return value if isinstance(value, str) else str(value)
