"""Filter pipelines: from the raw responses of a request to the answer that is scored."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from assay.core.dialects import Dialect
from assay.core.errors import AssayError, ErrorGroup, TaskError
from assay.core.ports import Filter
from assay.core.records.specs import FilterStep, PipelineSpec
from assay.scoring.filters import FILTERS
from assay.scoring.filters.custom import Custom
from assay.scoring.filters.extraction import NotFound, Regex
from assay.scoring.filters.transformation import strip_reasoning

__all__ = ["DEFAULT_PIPELINE", "Pipeline", "build_pipeline"]

DEFAULT_PIPELINE = PipelineSpec(name="none", steps=(FilterStep(function="take_first"),))
"""The pipeline of a task without `filter_list`: the first response, unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStep:
    """One filter with its arguments."""

    factory: Callable[..., Filter]
    arguments: Mapping[str, Any]
    where: str
    name: str = ""

    @property
    def is_task_code(self) -> bool:
        """Whether the filter is code of a task or a plugin."""
        return self.factory is Custom or not getattr(self.factory, "__module__", "").startswith(
            "assay.scoring."
        )

    @property
    def per_document(self) -> bool:
        """Whether the filter processes each document separately."""
        return _per_document(self.factory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The steps of one entry of `filter_list`."""

    name: str
    steps: tuple[PipelineStep, ...]
    per_document: bool
    """Whether any subset of a task's documents may be filtered separately."""

    extracts: bool = False
    """Whether a step extracts the answer from the text and may find none."""

    reasoning_tags: tuple[tuple[str, str], ...] = ()
    """Tags around reasoning, which is removed from the answers."""

    removes_reasoning_last: bool = False
    """Whether reasoning is removed after the filters, as in lmms-eval, and not before them."""

    keeps_trace: bool = False
    """Whether to store the result of each step, because a step is task code that the viewer does not run again."""

    def apply(self, responses: Sequence[Sequence[Any]], documents: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return one answer per request. `responses[i]` are the values of request i, one per repeat."""
        return self.extract(responses, documents)[0]

    def extract(
        self,
        responses: Sequence[Sequence[Any]],
        documents: Sequence[Mapping[str, Any]],
        trace: list[list[Any]] | None = None,
    ) -> tuple[list[Any], set[int]]:
        """Return the answers, and the indices of the requests without an extracted answer.

        Each call creates new filters, because they may have state. `trace` collects the result of each filter.
        """
        values: Sequence[Any] = list(responses)
        if self.reasoning_tags and not self.removes_reasoning_last:
            values = [strip_reasoning(list(several), self.reasoning_tags) for several in values]
        not_found: set[int] = set()
        for step in self.steps:
            values = list(step.factory(**step.arguments).apply(values, documents))
            if trace is not None:
                trace.append([_as_text(value) for value in values[: len(responses)]])
            if self.extracts:
                not_found.update(index for index, value in enumerate(values) if _is_not_found(value))
        if len(values) < len(responses):
            raise TaskError(
                f"the pipeline `{self.name}` returned {len(values)} answers for {len(responses)} responses",
                where=self.steps[-1].where,
            )
        if not_found:  # convert `NotFound` to plain text
            values = [_as_text(value) for value in values]
        answers = list(values[: len(responses)])
        if self.reasoning_tags and self.removes_reasoning_last:
            answers = [strip_reasoning(answer, self.reasoning_tags) for answer in answers]
        return answers, not_found


def build_pipeline(
    spec: PipelineSpec,
    *,
    reasoning_tags: tuple[tuple[str, str], ...] = (),
    removes_reasoning_last: bool = False,
    dialect: Dialect = Dialect.LM_EVAL,
) -> Pipeline:
    """Look up and check every step.

    Raises:
        UnknownName, TaskError: A step does not exist or has invalid arguments.
        ErrorGroup: Several steps are invalid.
    """
    steps: list[PipelineStep] = []
    problems: list[AssayError] = []
    for step in spec.steps:
        try:
            steps.append(_build_step(step, dialect))
        except AssayError as problem:
            problems.append(problem)
    if problems:
        raise problems[0] if len(problems) == 1 else ErrorGroup(problems)
    return Pipeline(
        name=spec.name,
        steps=tuple(steps),
        per_document=all(step.per_document for step in steps),
        keeps_trace=any(step.is_task_code for step in steps),
        extracts=any(isinstance(step.factory, type) and issubclass(step.factory, Regex) for step in steps),
        reasoning_tags=reasoning_tags,
        removes_reasoning_last=removes_reasoning_last,
    )


def _is_not_found(value: Any) -> bool:
    """Return whether the value of a request, or the value of each repeat, is `NotFound`."""
    if isinstance(value, list):
        return bool(value) and all(type(one) is NotFound for one in value)
    return type(value) is NotFound


def _as_text(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_text(one) for one in value]
    return str(value) if type(value) is NotFound else value


def _build_step(step: FilterStep, dialect: Dialect) -> PipelineStep:
    make = (
        FILTERS.get(dialect.resolve_filter(step.function), where=step.where)
        if isinstance(step.function, str)
        else step.function
    )
    name = step.function if isinstance(step.function, str) else getattr(make, "__name__", repr(make))
    _check_arguments(make, name, step)
    try:
        if getattr(make, "__module__", "").startswith("assay.scoring."):
            make(**step.arguments)  # built-in constructors only compile a pattern
    except (TypeError, re.error, AssayError) as problem:
        raise TaskError(f"cannot create the filter `{name}`: {problem}", where=step.where) from None
    return PipelineStep(factory=make, arguments=step.arguments, where=step.where, name=name)


def _has_no_constructor(make: Any) -> bool:
    """Whether a class accepts no arguments. `inspect` finds that out too, but tokenizes the signature of `object`."""
    return type(make) is type and all(
        getattr(make, name) is getattr(object, name) for name in ("__init__", "__new__")
    )


def _check_arguments(make: Callable[..., Filter], name: str, step: FilterStep) -> None:
    """Report every argument that the constructor does not accept, and every one that is missing, without calling it."""
    parameters: Collection[inspect.Parameter] = ()
    if not _has_no_constructor(make):
        try:
            parameters = inspect.signature(make).parameters.values()
        except (TypeError, ValueError):  # implemented in C, without a signature
            return
    kinds = inspect.Parameter
    if any(one.kind is kinds.POSITIONAL_ONLY and one.default is kinds.empty for one in parameters):
        raise TaskError(
            f"cannot create the filter `{name}`: its arguments have no names",
            where=step.where,
            hint="arguments of a filter are keyword arguments",
        )
    named = [one for one in parameters if one.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]
    accepted = [one.name for one in named]
    takes_any = any(one.kind is kinds.VAR_KEYWORD for one in parameters)
    unknown = [] if takes_any else [key for key in step.arguments if key not in accepted]
    missing = [one.name for one in named if one.default is kinds.empty and one.name not in step.arguments]
    problems = []
    if unknown:
        problems.append(f"unknown argument{'s' if len(unknown) > 1 else ''} {_quote_names(unknown)}")
    if missing:
        problems.append(f"missing argument{'s' if len(missing) > 1 else ''} {_quote_names(missing)}")
    if problems:
        close = [match for key in unknown for match in get_close_matches(key, accepted, n=1)]
        guess = f"did you mean {_quote_names(close)}? " if close else ""
        listed = f"it accepts {_quote_names(accepted)}" if accepted else "it accepts no arguments"
        raise TaskError(
            f"cannot create the filter `{name}`: {'; '.join(problems)}",
            where=step.where,
            hint=f"{guess}{listed}",
        )


def _quote_names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _per_document(make: Callable[..., Filter]) -> bool:
    """Return `per_document` of the class. A subclass that overrides `apply` does not inherit it."""
    for kind in make.__mro__ if isinstance(make, type) else ():
        if "per_document" in vars(kind):
            return vars(kind)["per_document"] is True
        if "apply" in vars(kind):
            return False
    return False
