"""`extract` and `judge`: turn the responses of documents into answers and verdicts.

This runs user code. If it raises, the document is unscored and keeps the traceback; the run continues.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from assay.core.records.agents import FAULT_ENDS, AgentAnswer
from assay.core.records.codec import encode
from assay.core.records.endings import (
    ENDINGS,
    classify_ending,
    explain_missing_answer,
    is_reasoning_truncated,
)
from assay.core.records.requests import Generate
from assay.core.records.responses import Response
from assay.core.records.tools import describe_call_problem
from assay.core.records.verdicts import Answer, Evidence, Score, Unscored
from assay.engine.judging.context import JudgeContext
from assay.engine.judging.extraction import TaskExtraction, extract_answers
from assay.engine.open_document import Dialogues, JudgedBatch, OpenDocument
from assay.engine.planning.records import PlannedTask
from assay.scoring.generations import MetricCall
from assay.tasks.prompts.field_compilers import copy_fields
from assay.user_code.random_state import TaskRandomState
from assay.user_code.timeouts import current_timer

__all__ = ["DocumentScorer", "judge_documents", "list_scores"]


def judge_documents(
    planned: PlannedTask,
    documents: Sequence[OpenDocument],
    *,
    score: bool = True,
    random_state: TaskRandomState | None = None,
    context: JudgeContext | None = None,
    extraction: TaskExtraction | None = None,
) -> JudgedBatch:
    """Extract and judge complete documents of one task. With a `context`, its code may call judges.

    `extraction` has the answers of filters that look across all documents of the task, if these are a part of them.
    """
    judged = JudgedBatch()
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
    scorer = DocumentScorer(planned, judged)
    found: dict[int, bool] = {}
    deferred: list[tuple[OpenDocument, Answer]] = []
    """Answers whose code may wait for judges or programs."""

    truncated = {document.document.index for document in complete if _ends_inside_reasoning(document)}
    unusable = dict(
        problem for document in complete if (problem := _find_format_problem(document)) is not None
    )
    """Documents whose responses have malformed tool calls or another format than required: ending and reason."""

    agent_ends = {
        document.document.index: end
        for document in complete
        if document.dialogues is not None and (end := _find_agent_end(document.dialogues)) is not None
    }
    """Documents whose agents were stopped by a limit or a fault: ending and reason."""

    exceptions = truncated.union(unusable, agent_ends)
    """Documents that may end in another way than by their score."""

    defers = context is not None and planned.uses_services
    seeds = random_state if scorer.has_process_results else None
    negate = planned.spec.dialect.answers_are_losses
    for pipeline in planned.scorer.pipelines:
        if extraction is None or pipeline.per_document:
            extracted = extract_answers(pipeline, complete, found, negate_likelihoods=negate)
        else:
            extracted = extraction.get_answers(pipeline, complete, found)
        for document, answer in extracted:
            if isinstance(answer, str):
                scorer.mark_unscored(document.document.index, pipeline.name, answer)
                continue
            judged.answers.append(answer)
            if not score:
                continue
            if answer.document in exceptions:
                if answer.document in truncated:
                    why = explain_missing_answer(_responses(document))
                    scorer.mark_unscored(answer.document, pipeline.name, why)
                    continue
                ending, why = agent_ends.get(answer.document, ("", ""))
                if ending in FAULT_ENDS:
                    scorer.mark_unscored(answer.document, pipeline.name, why)
                    continue
                ending, why = unusable.get(answer.document, ("", ""))
                if ending == "unparsed-call" and not scorer.has_process_results:
                    scorer.mark_unscored(answer.document, pipeline.name, why)
                    continue
            if defers:
                deferred.append((document, answer))
            else:
                if seeds is not None:
                    seeds.seed_for_document(document.document.index)
                scorer.score(document, answer)
    unscored = scorer.unscored
    judge_failed: set[int] = set()
    if context is not None and deferred:
        judge_failed = _judge_concurrently(planned, deferred, scorer, random_state, context)
    for document in complete:
        index = document.document.index
        if score and index not in exceptions and index not in unscored:
            responses = _responses(document)
            ending = classify_ending(responses, found.get(index))
            why = explain_missing_answer(responses) if ending == "empty" else ""
            judged.outcomes.append((index, ending, why))
            continue
        if not score:
            ending = "skipped"
        elif index in truncated:
            ending = "truncated"
        elif index in agent_ends and (index not in unscored or agent_ends[index][0] in FAULT_ENDS):
            ending = agent_ends[index][0]
        elif index in unusable and (index not in unscored or unusable[index][0] == "unparsed-call"):
            ending = unusable[index][0]
        else:
            ending = "judge-failed" if index in judge_failed else "unscored"
        why = agent_ends[index][1] if index in agent_ends else ""
        why = unusable[index][1] if index in unusable and ending == unusable[index][0] else why
        judged.outcomes.append((index, ending, unscored.get(index, why)))
    return judged


def _responses(document: OpenDocument) -> list[Response]:
    """Return the responses of a complete document."""
    return cast("list[Response]", document.outcomes)


def _ends_inside_reasoning(document: OpenDocument) -> bool:
    first = document.outcomes[0] if document.outcomes else None
    if type(first) is not Response or first.finish != "length" or document.dialogues is not None:
        return False
    return is_reasoning_truncated(_responses(document))


def _find_agent_end(dialogues: Dialogues) -> tuple[str, str] | None:
    """Return the ending and the reason of a document with agents that did not end by themselves; else None.

    A fault of the environment or of the user in any repeat counts; a limit counts if all repeats reached one.
    """
    results = [answer.result for answer in dialogues.answers if isinstance(answer, AgentAnswer)]
    for repeat, result in enumerate(results):
        if result.is_fault:
            return result.end, f"repeat {repeat}: {result.why}" if len(results) > 1 else result.why
    if results and all(result.end in ENDINGS for result in results):
        return results[0].end, results[0].why
    return None


def _find_format_problem(document: OpenDocument) -> tuple[int, tuple[str, str]] | None:
    """Return the index of a document all of whose responses are malformed, with the ending and the reason; else None."""
    request = document.requests[0] if document.requests else None
    if type(request) is not Generate or (request.tools is None and request.response_format is None):
        return None
    if document.dialogues is not None:
        return None
    index, responses = document.document.index, _responses(document)
    if request.tools is not None:
        problems = [describe_call_problem(response.tool_calls) for response in responses]
        if all(problems):
            return index, ("unparsed-call", problems[0])
    if request.response_format is not None and all(response.finish != "length" for response in responses):
        from assay.core.json_schema import describe_invalid_answer  # few tasks have a response format

        schema = request.response_format.schema
        problems = [
            "" if response.tool_calls else describe_invalid_answer(str(response.value), schema)
            for response in responses
        ]
        if all(problems):
            return index, ("invalid-format", problems[0])
    return None


def _judge_concurrently(
    planned: PlannedTask,
    pairs: Sequence[tuple[OpenDocument, Answer]],
    scorer: DocumentScorer,
    random_state: TaskRandomState | None,
    context: JudgeContext,
) -> set[int]:
    """Let the task's code judge; while it waits for a judge or a program, the next document starts.

    Returns the documents for which a judge did not answer, even if the task's code handled the failure.
    """

    def judge_one(pair: tuple[OpenDocument, Answer]) -> tuple[DocumentScorer, bool]:
        document, answer = pair
        index = document.document.index
        if random_state is not None:
            random_state.seed_for_document(index)
        alone = DocumentScorer(planned, JudgedBatch())
        with context.open_document(planned.task.name, index) as document_context:
            alone.score(document, answer)
        if document_context.failure:
            alone = DocumentScorer(planned, JudgedBatch())
            alone.mark_unscored(index, answer.pipeline, document_context.failure)
        return alone, bool(document_context.failure)

    failed = set()
    for alone, judge_failed in context.executor.map(judge_one, pairs):
        scorer.judged.verdicts += alone.judged.verdicts
        scorer.unscored.update(alone.unscored)
        failed |= set(alone.unscored) if judge_failed else set()
    return failed


class DocumentScorer:
    """Scores documents of one task, one by one. What all of them share is looked up once."""

    __slots__ = ("_fields", "_planned", "_text_metric", "_timer", "has_process_results", "judged", "unscored")

    def __init__(self, planned: PlannedTask, judged: JudgedBatch) -> None:
        task = planned.task
        lend: Callable[[Mapping[str, Any]], Mapping[str, Any]] = (
            copy_fields if planned.scorer.runs_task_code else task.copy_for_code
        )
        self._planned = planned
        self._fields = (lambda fields: lend(task.scoring_fields(fields))) if task.media_columns else lend
        self._timer = current_timer()
        self.judged = judged
        self.has_process_results = planned.spec.process_results is not None
        self.unscored: dict[int, str] = {}
        """Documents that could not be scored, and why."""

        self._text_metric = _find_single_text_metric(planned)

    def score(self, document: OpenDocument, answer: Answer) -> None:
        """Add the verdicts on one answer; any exception makes its document unscored."""
        if self._text_metric is not None and self._score_text(self._text_metric, document.target, answer):
            return
        task, scorer = self._planned.task, self._planned.scorer
        try:
            fields = self._fields(document.document.fields)
            inputs, targets = task.shape
            target, choices = document.target, None
            with self._timer:
                if self.has_process_results:
                    target = None
                else:
                    choices = task.choices(fields)
                    if target is None:  # it failed while rendering: here its exception becomes the reason
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
            verdicts = scorer.to_verdicts(answer.document, answer.pipeline, raw)
            if not verdicts and scorer.metrics and not scorer.panels:
                self.mark_unscored(answer.document, answer.pipeline, "no metric has a value")
                return
            for verdict in verdicts:
                if type(verdict) is Evidence:
                    encode(verdict.value)  # a value the journal cannot store concerns this document only
            self.judged.verdicts += verdicts
        except Exception:  # noqa: BLE001 - user code: process_results and metrics
            why = traceback.format_exc(limit=-3)
            self.mark_unscored(answer.document, answer.pipeline, why)

    def _score_text(self, metric: MetricCall, target: Any, answer: Answer) -> bool:
        """Score a text with a single text metric, the common case; return False if that does not apply."""
        values, value = answer.values, None
        if len(values) != 1 or type(values[0]) is not str or type(target) is not str:
            return False
        try:
            with self._timer:
                value = metric([target], [values[0]])
        except Exception:  # noqa: BLE001 - user code: a pattern of the task may time out
            self.mark_unscored(answer.document, answer.pipeline, traceback.format_exc(limit=-3))
            return True
        if type(value) is not float or value != value:
            return False
        self.judged.verdicts.append(
            Score(document=answer.document, metric=metric.name, pipeline=answer.pipeline, value=value)
        )
        return True

    def mark_unscored(self, document: int, pipeline: str, why: str) -> None:
        """Record for every metric why it has no value."""
        self.unscored[document] = why
        self.judged.verdicts += [
            Unscored(document=document, metric=metric, pipeline=pipeline, why=why)
            for metric in self._planned.scorer.metrics
        ]


def _find_single_text_metric(planned: PlannedTask) -> MetricCall | None:
    """Return the metric of a task that only compares texts with one of Assay's metrics; None for all others."""
    task, metric = planned.task, planned.scorer.single_metric
    try:
        plain = metric is not None and task.choices_function is None and task.shape == (0, False)
    except Exception:  # noqa: BLE001 - user code: each document reports it
        return None
    return metric if plain else None


def list_scores(judged: JudgedBatch, pipeline: str, metric: str) -> list[float]:
    """Return the scores of one metric in one pipeline, for progress."""
    return [
        float(verdict.value)
        for verdict in judged.verdicts
        if isinstance(verdict, Score) and verdict.metric == metric and verdict.pipeline == pipeline
    ]
