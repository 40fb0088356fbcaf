"""Judge every attempt of an agent: the repeats of a document are split before the judges are asked, and averaged after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from assay.core.records.verdicts import Answer, RepeatScores, Score, Unscored, Verdict
from assay.engine.open_document import JudgedBatch, OpenDocument
from assay.engine.planning.records import PlannedTask
from assay.scoring.judges.panel import PanelDecision
from assay.user_code.timeouts import current_timer

__all__ = ["average_attempts", "split_attempts"]

Decision = tuple[tuple[int, Answer], PanelDecision]
"""The index of a panel, the answer it judged, and its decision."""


def split_attempts(
    planned: PlannedTask, documents: Mapping[int, OpenDocument], answers: Sequence[Answer]
) -> list[Answer]:
    """Return an answer per attempt. Filters that look across documents, or need several responses, stay as they are."""
    pipelines = {pipeline.name: pipeline for pipeline in planned.scorer.pipelines}
    found: list[Answer] = []
    for answer in answers:
        document, pipeline = documents[answer.document], pipelines[answer.pipeline]
        attempts = [] if document.dialogues is None else list(document.dialogues.answers)
        if len(attempts) < 2 or not pipeline.per_document:
            found.append(answer)
            continue
        try:
            with current_timer():
                fields = [document.document.fields] * len(attempts)
                values = pipeline.apply([[attempt] for attempt in attempts], fields)
        except Exception:  # noqa: BLE001 - user code: a filter may need several responses
            found.append(answer)
        else:
            found += [replace(answer, values=(value,)) for value in values]
    return found


def average_attempts(
    planned: PlannedTask, decisions: Sequence[Decision], judged: JudgedBatch
) -> list[Decision]:
    """Return one decision per panel and document: the mean over the attempts. Their scores are added to `judged.repeats`.

    A document with an attempt that has no verdict has none, because the mean of the others would favour it.
    """
    grouped: dict[tuple[int, int, str], list[Decision]] = {}
    for decision in decisions:
        (panel, answer), _ = decision
        grouped.setdefault((panel, answer.document, answer.pipeline), []).append(decision)
    merged: list[Decision] = []
    for key, attempts in grouped.items():
        if len(attempts) > 1:
            merged.append((attempts[0][0], _merge(planned, key, attempts, judged)))
        else:
            merged += attempts
    return merged


def _merge(
    planned: PlannedTask, key: tuple[int, int, str], attempts: Sequence[Decision], judged: JudgedBatch
) -> PanelDecision:
    panel, document, pipeline = key
    found = [decision for _, decision in attempts]
    by_metric: dict[str, list[Verdict]] = {}
    for decision in found:
        for verdict in decision.verdicts:
            by_metric.setdefault(verdict.metric, []).append(verdict)
    verdicts: list[Verdict] = []
    scores: dict[str, tuple[float, ...]] = {}
    for metric, several in by_metric.items():
        missing = next((one for one in several if isinstance(one, Unscored)), None)
        if missing is not None or len(several) < len(found):
            why = missing.why if missing is not None else "an attempt has no verdict"
            verdicts.append(Unscored(document=document, metric=metric, pipeline=pipeline, why=why))
            continue
        values = tuple(float(one.value) for one in several if isinstance(one, Score))
        why = "; ".join(one.why for one in several if isinstance(one, Score) and one.why)
        mean = sum(values) / len(values)
        verdicts.append(Score(document=document, metric=metric, pipeline=pipeline, value=mean, why=why))
        if planned.scorer.is_reported(metric):
            scores[metric] = values
    metric = planned.scorer.panels[panel].spec.metric
    samples = tuple(decision.values for decision in found)
    is_complete = metric in scores and len({len(one) for one in samples}) == 1 and len(samples[0]) > 1
    _add_scores(judged, document, pipeline, scores, {metric: samples} if is_complete else {}, len(found))
    failed = next((decision.failed for decision in found if decision.failed), "")
    return PanelDecision(tuple(verdicts), failed)


def _add_scores(
    judged: JudgedBatch,
    document: int,
    pipeline: str,
    scores: Mapping[str, tuple[float, ...]],
    samples: Mapping[str, tuple[tuple[float, ...], ...]],
    attempts: int,
) -> None:
    if not scores:
        return
    for index, known in enumerate(judged.repeats):
        if (known.document, known.pipeline) == (document, pipeline):
            judged.repeats[index] = replace(
                known,
                scores={**known.scores, **scores},
                judge_samples={**known.judge_samples, **samples},
            )
            return
    judged.repeats.append(
        RepeatScores(
            document=document,
            pipeline=pipeline,
            answers=tuple(range(attempts)),
            scores=scores,
            judge_samples=samples,
        )
    )
