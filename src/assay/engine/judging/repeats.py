"""Score every repeat of a document on its own.

A task with `repeats` reports what its filters select from a document's responses. The scores of single repeats show how much
sampling adds to the uncertainty, and how often one of k responses, or all of them, is right (pass@k, pass^k). They do not
change the numbers the task reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from assay.core.records.verdicts import Answer, RepeatScores, Score
from assay.engine.judging.context import JudgeContext
from assay.engine.judging.documents import DocumentScorer
from assay.engine.judging.extraction import group_responses
from assay.engine.open_document import JudgedBatch, OpenDocument
from assay.engine.planning.records import Plan, PlannedTask
from assay.engine.results.confidence_intervals import read_clusters
from assay.scoring.pipelines import Pipeline
from assay.stats.intervals.repeats import RepeatTable, summarise_repeats
from assay.stats.intervals.variance_components import split_variance
from assay.store.journal.journal import Journal
from assay.user_code.random_state import TaskRandomState
from assay.user_code.timeouts import current_timer

__all__ = ["judge_repeats", "summarise_run_repeats"]


def judge_repeats(
    planned: PlannedTask,
    documents: Sequence[OpenDocument],
    judged: JudgedBatch,
    random_state: TaskRandomState,
    court: JudgeContext,
) -> None:
    """Score each repeat of the scored documents and add the scores to `judged`.

    Skips what costs more or makes no sense: LLM judges, programs, filters that look across documents, and filters that keep
    all responses instead of selecting one.
    """
    is_agent = planned.spec.output_type.is_agent
    asks_judges = planned.scorer.panels and not is_agent  # judges of agents score every repeat themselves
    if planned.spec.unsafe_code or planned.task.name in court.tasks_with_judge_calls or asks_judges:
        return
    scored = {verdict.document for verdict in judged.verdicts if isinstance(verdict, Score)}
    complete = [
        one for one in documents if one.document.index in scored and (one.dialogues is None or is_agent)
    ]
    chosen = {
        (answer.document, answer.pipeline)
        for answer in judged.answers
        if len(answer.values) == 1 and isinstance(answer.values[0], str)
    }
    for pipeline in planned.scorer.pipelines:
        if not pipeline.per_document:
            continue
        wanted = [one for one in complete if (one.document.index, pipeline.name) in chosen]
        for document, answers in _extract_each(
            pipeline, wanted, losses=planned.spec.dialect.answers_are_losses
        ):
            random_state.seed_for_document(document.document.index)
            scores = _score_each(planned, document, pipeline.name, answers)
            if scores:
                known: dict[Any, int] = {}
                judged.repeats.append(
                    RepeatScores(
                        document=document.document.index,
                        pipeline=pipeline.name,
                        answers=tuple(known.setdefault(answer, len(known)) for answer in answers),
                        scores=scores,
                    )
                )
    if is_agent:
        _average_repeats(judged)


def _average_repeats(judged: JudgedBatch) -> None:
    """Replace the scores of agents by their means: each repeat is an attempt of its own, and none is selected."""
    means = {
        (one.document, one.pipeline, metric): sum(scores) / len(scores)
        for one in judged.repeats
        for metric, scores in one.scores.items()
    }
    for index, verdict in enumerate(judged.verdicts):
        key = (verdict.document, verdict.pipeline, verdict.metric)
        if isinstance(verdict, Score) and key in means:
            judged.verdicts[index] = replace(verdict, value=means[key])


def _extract_each(
    pipeline: Pipeline, documents: Sequence[OpenDocument], *, losses: bool
) -> Iterator[tuple[OpenDocument, list[Any]]]:
    """Filter each response alone; skip documents with a response that the filters reject."""
    for document in documents:
        (responses,) = group_responses(document, negate_likelihoods=losses)
        fields = [document.document.fields] * len(responses)
        try:
            with current_timer():
                answers = pipeline.apply([[response] for response in responses], fields)
        except Exception:  # noqa: BLE001 - user code: a filter may need several responses
            continue
        if all(isinstance(answer, str) for answer in answers):
            yield document, answers


def _score_each(
    planned: PlannedTask, document: OpenDocument, pipeline: str, answers: Sequence[Any]
) -> dict[str, tuple[float, ...]]:
    """Score each answer; return the metrics that have a number for all of them."""
    found: dict[str, list[float]] = {}
    for answer in answers:
        judged, index = JudgedBatch(), document.document.index
        alone = Answer(document=index, pipeline=pipeline, values=(answer,))
        DocumentScorer(planned, judged).score(document, alone)
        for verdict in judged.verdicts:
            if isinstance(verdict, Score):
                found.setdefault(verdict.metric, []).append(float(verdict.value))
    return {
        metric: tuple(values)
        for metric, values in found.items()
        if len(values) == len(answers) and planned.scorer.is_reported(metric)
    }


def summarise_run_repeats(plan: Plan, journal: Journal) -> list[dict[str, Any]]:
    """Summarise repeats for the journal: each task, filter and metric. Documents of a stratified subset have different weights,
    which repeat metrics do not take into account: they are left out, and a note of the plan says so."""
    facts = []
    for name, planned in plan.tasks.items():
        if planned.spec.repeats > 1 and not planned.has_unequal_weights:
            tables = RepeatTable.build_tables(journal.read_repeats(name))
            clusters = read_clusters(planned.spec, journal)
            facts += [
                {
                    "task": name,
                    "pipeline": pipeline,
                    "metric": metric,
                    **summarise_repeats(table, clusters),
                    **_split_agent_variance(planned, metric, table),
                }
                for (pipeline, metric), table in tables.items()
            ]
    return facts


def _split_agent_variance(planned: PlannedTask, metric: str, table: RepeatTable) -> dict[str, Any]:
    """Return the variance components of an agent task."""
    agent = planned.spec.agent
    if agent is None:
        return {}
    has_user = agent.user is not None and agent.user.script is None
    repeats = table.scores.shape[1]
    seeds = None
    if has_user and agent.user is not None and agent.user.seeds:
        seeds = [repeat % agent.user.seeds for repeat in range(repeats)]
    panels = {name for panel in planned.scorer.panels for name in panel.metrics}
    split = split_variance(
        table.scores,
        user_seeds=seeds,
        judge_samples=table.judge_samples,
        has_user=has_user,
        has_judge=metric in panels,
    )
    return {"components": asdict(split)}
