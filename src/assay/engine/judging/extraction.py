"""Apply filter pipelines to the responses of documents.

A filter may look across all documents of a task. `TaskExtraction` applies such filters to all of them at once and keeps their
output, so that the documents can be scored and written in small batches.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.records.requests import Generate, Request, RollingLikelihood
from assay.core.records.responses import Failure, Response
from assay.core.records.tools import ToolAnswer
from assay.core.records.verdicts import Answer
from assay.engine.open_document import OpenDocument
from assay.engine.planning.records import PlannedTask
from assay.scoring.pipelines import Pipeline
from assay.user_code.timeouts import current_timer

__all__ = ["TaskExtraction", "extract_answers", "group_responses"]


@dataclass(frozen=True, slots=True)
class _PipelineOutput:
    """The output of a pipeline for the requests of some documents."""

    values: Sequence[Any]
    nothing: set[int]
    """Indices of the requests without an extracted answer."""

    trace: Sequence[Sequence[Any]]
    why: str = ""
    """The traceback of a pipeline that raised."""


class TaskExtraction:
    """The answers that filters found by looking across all documents of a task."""

    def __init__(self, planned: PlannedTask, documents: Sequence[OpenDocument]) -> None:
        complete = [document for document in documents if document.failure is None]
        negate = planned.spec.dialect.answers_are_losses
        self._filtered: list[tuple[Pipeline, _PipelineOutput]] = []
        for pipeline in planned.scorer.pipelines:
            if not pipeline.per_document:
                responses, fields, counts = _collect_responses(complete, negate_likelihoods=negate)
                try:
                    filtered = _apply(pipeline, responses, fields)
                except Exception:  # noqa: BLE001 - user code: a custom filter may raise anything
                    filtered = _PipelineOutput((), set(), (), traceback.format_exc(limit=-3))
                self._filtered.append((pipeline, filtered))
        self._places: dict[int, tuple[int, int]] = {}
        """By document: the index of its first request among all of them, and their number."""

        start = 0
        for document, count in zip(complete, counts, strict=True) if self._filtered else ():
            self._places[document.document.index] = start, count
            start += count

    def get_answers(
        self, pipeline: Pipeline, documents: Sequence[OpenDocument], found: dict[int, bool]
    ) -> list[tuple[OpenDocument, Answer | str]]:
        """Return the answers of some of the documents, as `extract_answers` does."""
        filtered = next(filtered for one, filtered in self._filtered if one is pipeline)
        places = [self._places[document.document.index] for document in documents]
        return _build_answers(pipeline, filtered, documents, places, found)


def extract_answers(
    pipeline: Pipeline, documents: Sequence[OpenDocument], found: dict[int, bool], *, negate_likelihoods: bool
) -> list[tuple[OpenDocument, Answer | str]]:
    """Apply one filter pipeline to all requests of the documents; return a string with the reason if there is no answer.

    Updates `found`: the documents in which the filters look for an answer, and whether any pipeline found one.
    """
    responses, fields, counts = _collect_responses(documents, negate_likelihoods=negate_likelihoods)
    try:
        filtered = _apply(pipeline, responses, fields)
    except Exception:  # noqa: BLE001 - user code: a custom filter may raise anything
        if pipeline.per_document and len(documents) > 1:  # find the document that raises
            return [
                pair
                for document in documents
                for pair in extract_answers(
                    pipeline, [document], found, negate_likelihoods=negate_likelihoods
                )
            ]
        filtered = _PipelineOutput((), set(), (), traceback.format_exc(limit=-3))
    places, start = [], 0
    for count in counts:
        places.append((start, count))
        start += count
    return _build_answers(pipeline, filtered, documents, places, found)


def _collect_responses(
    documents: Sequence[OpenDocument], *, negate_likelihoods: bool
) -> tuple[list[list[Any]], list[Mapping[str, Any]], list[int]]:
    """Return the responses of all requests, the fields of the document of each of them, and the number of requests by document."""
    responses: list[list[Any]] = []
    fields: list[Mapping[str, Any]] = []
    counts = []
    for document in documents:
        grouped = group_responses(document, negate_likelihoods=negate_likelihoods)
        responses += grouped
        counts.append(count := len(grouped))
        if count == 1:
            fields.append(document.document.fields)
        else:
            fields += [document.document.fields] * count
    return responses, fields, counts


def _apply(
    pipeline: Pipeline, responses: list[list[Any]], fields: Sequence[Mapping[str, Any]]
) -> _PipelineOutput:
    with current_timer():
        trace: list[list[Any]] | None = [] if pipeline.keeps_trace else None
        values, nothing = pipeline.extract(responses, fields, trace)
        return _PipelineOutput(values, nothing, trace or ())


def _build_answers(
    pipeline: Pipeline,
    filtered: _PipelineOutput,
    documents: Sequence[OpenDocument],
    places: Sequence[tuple[int, int]],
    found: dict[int, bool],
) -> list[tuple[OpenDocument, Answer | str]]:
    if filtered.why:
        return [(document, filtered.why) for document in documents]
    answers: list[tuple[OpenDocument, Answer | str]] = []
    values, nothing, trace, name = filtered.values, filtered.nothing, filtered.trace, pipeline.name
    for document, (start, count) in zip(documents, places, strict=True):
        index = document.document.index
        own = (values[start],) if count == 1 else tuple(values[start : start + count])
        steps = tuple(tuple(step[start : start + count]) for step in trace) if trace else ()
        answer = Answer(document=index, pipeline=name, values=own, steps=steps)
        if pipeline.extracts:
            found[index] = found.get(index, False) or not nothing.issuperset(range(start, start + count))
        answers.append((document, answer))
    return answers


def group_responses(document: OpenDocument, *, negate_likelihoods: bool) -> list[list[Any]]:
    """Return the raw values of each request, one per repeat, in order; a whole dialogue counts as one request."""
    if document.dialogues is not None:
        return [list(document.dialogues.answers)]
    if len(document.outcomes) == 1:  # by far the most frequent case
        outcome, asked = document.outcomes[0], document.requests[0]
        if type(outcome) is Response and type(outcome.value) is str:
            return [[_answer_with_calls(asked, outcome)]]
    grouped: list[list[Any]] = []
    for request, outcome in zip(document.requests, document.outcomes, strict=True):
        assert outcome is not None and not isinstance(outcome, Failure)
        value = outcome.value
        raw: Any = (
            _answer_with_calls(request, outcome) if type(value) is str else value
        )  # filters and helpers get a text, (log probability, greedy) or a number
        if not isinstance(value, str):
            rolling = isinstance(request, RollingLikelihood)
            total = -value.total if negate_likelihoods else value.total  # lmms-eval hands helpers losses
            raw = total if rolling else (total, value.greedy)
        if request.repeat == 0:
            grouped.append([raw])
        else:
            grouped[-1].append(raw)
    return grouped


def _answer_with_calls(request: Request, response: Response) -> Any:
    """Return the text of a response; with its calls if the request has tools."""
    if type(request) is Generate and request.tools is not None:
        return ToolAnswer.from_calls(str(response.value), response.tool_calls, request.tools)
    return response.value
