"""`extract` and `judge`: a document's responses to answers to verdicts.

Helper code of tasks runs here. Whatever it raises makes that document unscored, with the traceback kept;
it never ends the run.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from assay.core.codec import encode
from assay.core.documents import Document
from assay.core.endings import ending_of
from assay.core.messages import Media
from assay.core.requests import Request, RollingLikelihood
from assay.core.responses import Failure, Outcome, Response
from assay.core.verdicts import Answer, Evidence, Repeated, Score, Unscored, Verdict
from assay.engine.judging.context import Court
from assay.engine.planning.plan import PlannedTask
from assay.engine.running.dialogues import Ended, Talks
from assay.scoring.generations import Call
from assay.scoring.pipelines import Pipeline
from assay.tasks.makers import loan
from assay.user_code.runner import Draws
from assay.user_code.timeouts import current_watch

__all__ = ["Bench", "Judged", "OpenDocument", "by_request", "judge", "running_score"]


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

    talks: Talks | Ended | None = None
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
            if type(outcome) is Failure:
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
        if failure is None:
            complete.append(document)
        else:
            why = f"{failure.kind}: {failure.message}"
            judged.outcomes.append((document.document.index, "failed", why))
    if not complete:
        return judged
    bench = Bench(planned, judged)
    found: dict[int, bool] = {}
    own_code: list[tuple[OpenDocument, Answer]] = []
    in_court = court is not None and planned.waits_for_the_world
    own_draws = draws if bench.own_code else None
    losses = planned.spec.dialect == "lmms_eval"
    for pipeline in planned.scorer.pipelines:
        for document, answer in _extract(pipeline, complete, found, losses=losses):
            if isinstance(answer, str):
                bench.leave_unscored(document.document.index, pipeline.name, answer)
                continue
            judged.answers.append(answer)
            if not score:
                continue
            if in_court:
                own_code.append((document, answer))
            else:
                if own_draws is not None:
                    own_draws.judging(document.document.index)
                bench.judge(document, answer)
    unscored = bench.unscored
    judge_failed: set[int] = set()
    if court is not None and own_code:
        judge_failed = _judge_in_court(planned, own_code, bench, draws, court)
    for document in complete:
        index = document.document.index
        if not score:
            ending = "skipped"
        elif index in unscored:
            ending = "judge-failed" if index in judge_failed else "unscored"
        else:
            ending = ending_of(cast("list[Response]", document.outcomes), found.get(index))
        judged.outcomes.append((index, ending, unscored.get(index, "")))
    return judged


def _judge_in_court(
    planned: PlannedTask,
    pairs: Sequence[tuple[OpenDocument, Answer]],
    bench: Bench,
    draws: Draws | None,
    court: Court,
) -> set[int]:
    """Let the task's own code judge; while it waits for a judge, it goes on with the next document.

    Returns the documents for which a judge did not answer, whatever the task's code made of that.
    """

    def one(pair: tuple[OpenDocument, Answer]) -> tuple[Bench, bool]:
        document, answer = pair
        if draws is not None:
            draws.judging(document.document.index)
        alone = Bench(planned, Judged())
        with court.sitting(planned.task.name, document.document.index) as sitting:
            alone.judge(document, answer)
        if sitting.failed:
            alone = Bench(planned, Judged())
            alone.leave_unscored(document.document.index, answer.pipeline, sitting.failed)
        return alone, bool(sitting.failed)

    failed = set()
    for alone, judge_failed in court.foreign.each(one, pairs):
        bench.judged.verdicts += alone.judged.verdicts
        bench.unscored.update(alone.unscored)
        failed |= set(alone.unscored) if judge_failed else set()
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
        counts.append(count := len(grouped))
        if count == 1:
            fields.append(document.document.fields)
        else:
            fields += [document.document.fields] * count
    try:
        with current_watch():
            trace: list[list[Any]] | None = [] if pipeline.traced else None
            values, nothing = pipeline.extract(responses, fields, trace)
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
    at, name = 0, pipeline.name
    for document, count in zip(documents, counts, strict=True):
        index = document.document.index
        own = (values[at],) if count == 1 else tuple(values[at : at + count])
        steps = tuple(tuple(step[at : at + count]) for step in trace) if trace else ()
        answer = Answer(document=index, pipeline=name, values=own, steps=steps)
        if pipeline.extracts:
            found[index] = found.get(index, False) or not nothing.issuperset(range(at, at + count))
        at += count
        answers.append((document, answer))
    return answers


def by_request(document: OpenDocument, *, losses: bool) -> list[list[Any]]:
    """The raw values of each request, one per repeat, in order; a whole dialogue counts as one."""
    if document.talks is not None:
        return [document.talks.answers]
    if len(document.outcomes) == 1:  # by far the most frequent case
        outcome = document.outcomes[0]
        if type(outcome) is Response and type(outcome.value) is str:
            return [[outcome.value]]
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


class Bench:
    """Judges documents of one task, one by one. What is the same for all of them is looked up once."""

    __slots__ = ("_fields", "_only_metric", "_planned", "_watch", "judged", "own_code", "unscored")

    def __init__(self, planned: PlannedTask, judged: Judged) -> None:
        task = planned.task
        lend: Callable[[Mapping[str, Any]], Mapping[str, Any]] = (
            loan if planned.scorer.runs_own_code else task.lend
        )
        self._planned = planned
        self._fields = (lambda fields: lend(task.judged_fields(fields))) if task.media_columns else lend
        self._watch = current_watch()
        self.judged = judged
        self.own_code = planned.spec.process_results is not None
        self.unscored: dict[int, str] = {}
        """Documents that could not be judged, and why."""

        self._only_metric = _only_metric(planned)

    def judge(self, document: OpenDocument, answer: Answer) -> None:
        """Add the verdicts on one answer; whatever goes wrong makes its document unscored."""
        if self._only_metric is not None and self._judge_text(self._only_metric, document.target, answer):
            return
        task, scorer = self._planned.task, self._planned.scorer
        try:
            fields = self._fields(document.document.fields)
            inputs, targets = task.shape
            target, choices = document.target, None
            with self._watch:
                if self.own_code:
                    target = None
                else:
                    choices = task.choices(fields)
                    if (
                        target is None
                    ):  # it could not be made when the document was written down: here one sees why
                        target = task.target(fields)
                raw = scorer.judge(
                    fields=fields,
                    answers=list(answer.values),
                    target=target,
                    choices=choices,
                    multiple_inputs=inputs,
                    multiple_targets=targets,
                    question=task.question(fields) if inputs else None,
                )
            verdicts = scorer.verdicts(answer.document, answer.pipeline, raw)
            if not verdicts and scorer.metrics and not scorer.juries:
                self.leave_unscored(answer.document, answer.pipeline, "no metric got a value")
                return
            for verdict in verdicts:
                if type(verdict) is Evidence:
                    encode(
                        verdict.value
                    )  # what the journal cannot keep is this document's trouble, not the run's
            self.judged.verdicts += verdicts
        except Exception:  # noqa: BLE001 - helper border: process_results and metrics are foreign code
            why = traceback.format_exc(limit=-3)
            self.leave_unscored(answer.document, answer.pipeline, why)

    def _judge_text(self, metric: Call, target: Any, answer: Answer) -> bool:
        """`judge` for a text that one metric of ours compares with a text; False for what is anything else."""
        values, value = answer.values, None
        if len(values) != 1 or type(values[0]) is not str or type(target) is not str:
            return False
        try:
            with self._watch:
                value = metric([target], [values[0]])
        except Exception:  # noqa: BLE001 - helper border: a pattern of the task may be slow beyond reason
            self.leave_unscored(answer.document, answer.pipeline, traceback.format_exc(limit=-3))
            return True
        if type(value) is not float or value != value:
            return False
        self.judged.verdicts.append(
            Score(document=answer.document, metric=metric.name, pipeline=answer.pipeline, value=value)
        )
        return True

    def leave_unscored(self, document: int, pipeline: str, why: str) -> None:
        """Say of every metric why it has no value."""
        self.unscored[document] = why
        self.judged.verdicts += [
            Unscored(document=document, metric=metric, pipeline=pipeline, why=why)
            for metric in self._planned.scorer.metrics
        ]


def _only_metric(planned: PlannedTask) -> Call | None:
    """The metric of a task that compares texts by one metric of ours and does nothing else; None for all others."""
    task, metric = planned.task, planned.scorer.only_metric
    try:
        plain = metric is not None and task.make_choices is None and task.shape == (0, False)
    except Exception:  # noqa: BLE001 - helper border: each document says so itself
        return None
    return metric if plain else None


def running_score(judged: Judged, pipeline: str, metric: str) -> list[float]:
    """The scores a progress line shows: of one metric, in one pipeline."""
    return [
        float(verdict.value)
        for verdict in judged.verdicts
        if isinstance(verdict, Score) and verdict.metric == metric and verdict.pipeline == pipeline
    ]
