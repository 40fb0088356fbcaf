"""`extract` and `judge`: a document's responses to answers to verdicts.

Helper code of tasks runs here. Whatever it raises makes that document unscored, with the traceback kept;
it never ends the run.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.core.documents import Document
from assay.core.requests import RollingLikelihood, Request
from assay.core.responses import Failure, LogProbability, Outcome
from assay.core.verdicts import Answer, Score, Unscored, Verdict
from assay.engine.plan import PlannedTask
from assay.tasks.makers import loan

__all__ = ["Judged", "OpenDocument", "judge"]


@dataclass(slots=True)
class OpenDocument:
    """A document that waits for its responses."""

    document: Document
    requests: tuple[Request, ...]
    fingerprints: tuple[str, ...]
    outcomes: list[Outcome | None]
    missing: int

    @property
    def failure(self) -> Failure | None:
        """The first failed request, if any."""
        return next((outcome for outcome in self.outcomes if isinstance(outcome, Failure)), None)


@dataclass(slots=True)
class Judged:
    """What judging made of some documents of one task."""

    outcomes: list[tuple[int, str, str]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


def judge(planned: PlannedTask, documents: Sequence[OpenDocument], *, score: bool = True) -> Judged:
    """Extract and judge complete documents of one task."""
    judged = Judged()
    complete = []
    for document in documents:
        failure = document.failure
        if failure is not None:
            judged.outcomes.append((document.document.index, "failed", f"{failure.kind}: {failure.message}"))
        elif not score:
            judged.outcomes.append((document.document.index, "unscored", "predict_only"))
        else:
            complete.append(document)
    if not complete:
        return judged
    unscored: dict[int, str] = {}
    for pipeline in planned.scorer.pipelines:
        for document, answer in _extract(pipeline, complete, unscored):
            judged.answers.append(answer)
            _judge_one(planned, document, answer, judged, unscored)
    for document in complete:
        index = document.document.index
        judged.outcomes.append((index, "unscored" if index in unscored else "scored", unscored.get(index, "")))
    return judged


def _extract(
    pipeline: Any, documents: Sequence[OpenDocument], unscored: dict[int, str]
) -> list[tuple[OpenDocument, Answer]]:
    """Apply one filter pipeline to all requests of the documents at once."""
    responses: list[list[Any]] = []
    fields: list[Mapping[str, Any]] = []
    for document in documents:
        for values in _by_request(document):
            responses.append(values)
            fields.append(document.document.fields)
    try:
        values = list(pipeline.apply(responses, fields))
    except Exception:  # helper border: a custom filter may raise anything
        why = traceback.format_exc(limit=-3)
        for document in documents:
            unscored[document.document.index] = why
        return []
    answers, at = [], 0
    for document in documents:
        count = _request_count(document)
        answer = Answer(
            document=document.document.index, pipeline=pipeline.name, values=tuple(values[at : at + count])
        )
        at += count
        answers.append((document, answer))
    return answers


def _request_count(document: OpenDocument) -> int:
    return sum(1 for request in document.requests if request.repeat == 0)


def _by_request(document: OpenDocument) -> list[list[Any]]:
    """The raw values of each request, one per repeat, in order."""
    grouped: list[list[Any]] = []
    for request, outcome in zip(document.requests, document.outcomes, strict=True):
        if request.repeat == 0:
            grouped.append([])
        assert outcome is not None and not isinstance(outcome, Failure)
        grouped[-1].append(_raw(request, outcome.value))
    return grouped


def _raw(request: Request, value: str | LogProbability) -> Any:
    """A response as filters and helpers know it: text, (log-probability, greedy), or a number."""
    if isinstance(value, str):
        return value
    return value.total if isinstance(request, RollingLikelihood) else (value.total, value.greedy)


def _judge_one(
    planned: PlannedTask, document: OpenDocument, answer: Answer, judged: Judged, unscored: dict[int, str]
) -> None:
    task, scorer = planned.task, planned.scorer
    index = document.document.index
    try:
        fields = loan(document.document.fields)
        inputs, targets = task.shape
        raw = scorer.judge(
            fields=fields,
            answers=list(answer.values),
            target=None if task.spec.process_results is not None else task.target(fields),
            choices=None if task.spec.process_results is not None else task.choices(fields),
            multiple_inputs=inputs,
            multiple_targets=targets,
            question=task.question(fields) if inputs else None,
        )
        judged.verdicts += scorer.verdicts(index, answer.pipeline, raw)
    except Exception:  # helper border: process_results and metrics are foreign code
        why = traceback.format_exc(limit=-3)
        unscored[index] = why
        judged.verdicts += [
            Unscored(document=index, metric=metric, pipeline=answer.pipeline, why=why) for metric in scorer.metrics
        ]


def running_score(judged: Judged, pipeline: str, metric: str) -> list[float]:
    """The scores a progress line shows: of one metric, in one pipeline."""
    return [
        float(verdict.value)
        for verdict in judged.verdicts
        if isinstance(verdict, Score) and verdict.metric == metric and verdict.pipeline == pipeline
    ]
