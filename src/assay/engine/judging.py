"""`extract` and `judge`: a document's responses to answers to verdicts.

Helper code of tasks runs here. Whatever it raises makes that document unscored, with the traceback kept;
it never ends the run.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.core.codec import encode
from assay.core.documents import Document
from assay.core.endings import ending_of
from assay.core.messages import Media
from assay.core.requests import Request, RollingLikelihood
from assay.core.responses import Failure, Outcome, Response
from assay.core.verdicts import Answer, Evidence, Repeated, Score, Unscored, Verdict
from assay.engine.dialogue import Talks
from assay.engine.foreign_code import Draws
from assay.engine.plan import PlannedTask
from assay.engine.sittings import Court
from assay.engine.watch import current_watch
from assay.scoring.pipelines import Pipeline
from assay.tasks.makers import loan

__all__ = ["Judged", "OpenDocument", "by_request", "judge", "judge_answer", "running_score"]


@dataclass(slots=True)
class OpenDocument:
    """A document that waits for its responses."""

    document: Document
    requests: tuple[Request, ...]
    fingerprints: tuple[str, ...]
    outcomes: list[Outcome | None]
    missing: int
    target: Any = None
    """What `doc_to_target` made of it; None where it was not made, or could not be."""

    shown: tuple[Media, ...] = ()
    """The media of its first prompt, where a jury is to see them too."""

    talks: Talks | None = None
    """Its dialogues, where answers lead to further questions."""

    @property
    def name(self) -> str:
        """What it is known by in its run."""
        return f"{self.document.task}:{self.document.index}"

    @property
    def answered(self) -> int:
        """How many of its requests have their outcome, where the answered ones are the first."""
        return len(self.requests) - self.missing

    @property
    def failure(self) -> Failure | None:
        """The first failed request, if any."""
        for outcome in self.outcomes:
            if isinstance(outcome, Failure):
                return outcome
        return None


@dataclass(slots=True)
class Judged:
    """What judging made of some documents of one task."""

    outcomes: list[tuple[int, str, str]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    repeats: list[Repeated] = field(default_factory=list)


def judge(
    planned: PlannedTask,
    documents: Sequence[OpenDocument],
    *,
    score: bool = True,
    draws: Draws | None = None,
    court: Court | None = None,
) -> Judged:
    """Extract and judge complete documents of one task. In a `court`, its own code may ask judges."""
    judged = Judged()
    complete = []
    for document in documents:
        failure = document.failure
        if failure is not None:
            judged.outcomes.append((document.document.index, "failed", f"{failure.kind}: {failure.message}"))
        else:
            complete.append(document)
    if not complete:
        return judged
    unscored: dict[int, str] = {}
    found: dict[int, bool] = {}
    own_code: list[tuple[OpenDocument, Answer]] = []
    losses = planned.spec.dialect == "lmms_eval"
    for pipeline in planned.scorer.pipelines:
        for document, answer in _extract(pipeline, complete, found, losses=losses):
            if isinstance(answer, str):
                _leave_unscored(planned, document, pipeline.name, answer, judged, unscored)
                continue
            judged.answers.append(answer)
            if score and court is not None and planned.waits_for_the_world:
                own_code.append((document, answer))
            elif score:
                if draws is not None and planned.spec.process_results is not None:
                    draws.judging(document.document.index)
                judge_answer(planned, document, answer, judged, unscored)
    judge_failed: set[int] = set()
    if court is not None and own_code:
        judge_failed = _judge_in_court(planned, own_code, judged, unscored, draws, court)
    for document in complete:
        index = document.document.index
        ending = "skipped" if not score else "unscored" if index in unscored else _ending(document, found)
        ending = "judge-failed" if index in judge_failed else ending
        judged.outcomes.append((index, ending, unscored.get(index, "")))
    return judged


def _ending(document: OpenDocument, found: Mapping[int, bool]) -> str:
    responses = [outcome for outcome in document.outcomes if isinstance(outcome, Response)]
    return ending_of(responses, found.get(document.document.index))


def _judge_in_court(
    planned: PlannedTask,
    pairs: Sequence[tuple[OpenDocument, Answer]],
    judged: Judged,
    unscored: dict[int, str],
    draws: Draws | None,
    court: Court,
) -> set[int]:
    """Let the task's own code judge; while it waits for a judge, it goes on with the next document.

    Returns the documents for which a judge did not answer, whatever the task's code made of that.
    """

    def one(pair: tuple[OpenDocument, Answer]) -> tuple[Judged, dict[int, str], bool]:
        document, answer = pair
        if draws is not None:
            draws.judging(document.document.index)
        found, lost = Judged(), dict[int, str]()
        with court.sitting(planned.task.name, document.document.index) as sitting:
            judge_answer(planned, document, answer, found, lost)
        if sitting.failed:
            found = Judged()
            _leave_unscored(planned, document, answer.pipeline, sitting.failed, found, lost)
        return found, lost, bool(sitting.failed)

    failed = set()
    for found, lost, judge_failed in court.foreign.each(one, pairs):
        judged.verdicts += found.verdicts
        unscored.update(lost)
        failed |= set(lost) if judge_failed else set()
    return failed


def _extract(
    pipeline: Pipeline, documents: Sequence[OpenDocument], found: dict[int, bool], *, losses: bool
) -> list[tuple[OpenDocument, Answer | str]]:
    """Apply one filter pipeline to all requests of the documents at once; a text says why there is no answer.

    `found` learns in which documents an answer was looked for, and whether any pipeline found one.
    """
    responses: list[list[Any]] = []
    fields: list[Mapping[str, Any]] = []
    counts = []
    for document in documents:
        grouped = by_request(document, losses=losses)
        responses += grouped
        fields += [document.document.fields] * len(grouped)
        counts.append(len(grouped))
    try:
        with current_watch():
            values, nothing = pipeline.extract(responses, fields)
    except Exception:  # noqa: BLE001 - helper border: a custom filter may raise anything
        if (
            pipeline.per_document and len(documents) > 1
        ):  # one document must not spoil those it happens to be with
            return [
                pair
                for document in documents
                for pair in _extract(pipeline, [document], found, losses=losses)
            ]
        why = traceback.format_exc(limit=-3)
        return [(document, why) for document in documents]
    answers: list[tuple[OpenDocument, Answer | str]] = []
    at = 0
    for document, count in zip(documents, counts, strict=True):
        index = document.document.index
        answer = Answer(document=index, pipeline=pipeline.name, values=tuple(values[at : at + count]))
        if pipeline.extracts:
            found[index] = found.get(index, False) or not nothing.issuperset(range(at, at + count))
        at += count
        answers.append((document, answer))
    return answers


def by_request(document: OpenDocument, *, losses: bool) -> list[list[Any]]:
    """The raw values of each request, one per repeat, in order; a whole dialogue counts as one."""
    if document.talks is not None:
        return [document.talks.answers]
    grouped: list[list[Any]] = []
    for request, outcome in zip(document.requests, document.outcomes, strict=True):
        assert outcome is not None and not isinstance(outcome, Failure)
        value = (
            outcome.value
        )  # as filters and helpers know it: a text, (log-probability, greedy), or a number
        raw: Any = value
        if not isinstance(value, str):
            rolling = isinstance(request, RollingLikelihood)
            total = -value.total if losses else value.total  # helpers of lmms-eval know losses
            raw = total if rolling else (total, value.greedy)
        if request.repeat == 0:
            grouped.append([raw])
        else:
            grouped[-1].append(raw)
    return grouped


def judge_answer(
    planned: PlannedTask, document: OpenDocument, answer: Answer, judged: Judged, unscored: dict[int, str]
) -> None:
    """Let the metrics judge one answer; `judged` and `unscored` learn what became of it."""
    task, scorer = planned.task, planned.scorer
    index = document.document.index
    try:
        fields = (loan if scorer.runs_own_code else task.lend)(task.judged_fields(document.document.fields))
        inputs, targets = task.shape
        with current_watch():
            raw = scorer.judge(
                fields=fields,
                answers=list(answer.values),
                target=_target(task, document, fields),
                choices=None if task.spec.process_results is not None else task.choices(fields),
                multiple_inputs=inputs,
                multiple_targets=targets,
                question=task.question(fields) if inputs else None,
            )
        verdicts = scorer.verdicts(index, answer.pipeline, raw)
        if not verdicts and scorer.metrics and not scorer.juries:
            _leave_unscored(planned, document, answer.pipeline, "no metric got a value", judged, unscored)
            return
        for verdict in verdicts:
            if isinstance(verdict, Evidence):
                encode(
                    verdict.value
                )  # what the journal cannot keep is this document's trouble, not the run's
        judged.verdicts += verdicts
    except Exception:  # noqa: BLE001 - helper border: process_results and metrics are foreign code
        why = traceback.format_exc(limit=-3)
        _leave_unscored(planned, document, answer.pipeline, why, judged, unscored)


def _leave_unscored(
    planned: PlannedTask,
    document: OpenDocument,
    pipeline: str,
    why: str,
    judged: Judged,
    unscored: dict[int, str],
) -> None:
    index = document.document.index
    unscored[index] = why
    judged.verdicts += [
        Unscored(document=index, metric=metric, pipeline=pipeline, why=why)
        for metric in planned.scorer.metrics
    ]


def _target(task: Any, document: OpenDocument, fields: Mapping[str, Any]) -> Any:
    """The target made when the document was written down; made here when that failed, so that the reason shows."""
    if task.spec.process_results is not None:
        return None
    return task.target(fields) if document.target is None else document.target


def running_score(judged: Judged, pipeline: str, metric: str) -> list[float]:
    """The scores a progress line shows: of one metric, in one pipeline."""
    return [
        float(verdict.value)
        for verdict in judged.verdicts
        if isinstance(verdict, Score) and verdict.metric == metric and verdict.pipeline == pipeline
    ]
