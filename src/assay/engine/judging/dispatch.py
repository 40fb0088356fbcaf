"""Decide where documents are judged: in this process, or on workers (`--workers`).

Workers judge tasks that run code: `process_results`, the task's own metrics and filters, programs the model wrote. They also
parse the replies of LLM judges. This process judges code that calls judges, filters that need all documents, and everything
that cannot be serialized.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from assay.core.ports import SupportsPromptedAs
from assay.core.records.verdicts import Unscored
from assay.engine.judging.context import JudgeContext
from assay.engine.judging.documents import judge_documents
from assay.engine.judging.extraction import TaskExtraction
from assay.engine.judging.llm_judges import JUDGE_FAILED, JudgeReplies, read_replies
from assay.engine.judging.repeats import judge_repeats
from assay.engine.open_document import JudgedBatch, OpenDocument
from assay.engine.planning.records import Plan, PlannedTask
from assay.engine.running.dialogues import FinishedDialogues
from assay.scoring.judges.panel import PanelDecision
from assay.user_code.executor import Executor
from assay.user_code.random_state import TaskRandomState

if TYPE_CHECKING:
    from assay.models.replicas.worker_pool import WorkerPool

__all__ = ["JudgeDispatcher", "gather_or_cancel"]

T = TypeVar("T")

MAX_WORKER_DEATHS = 3
"""Workers that may die on a document before it stays unscored."""


class JudgeDispatcher:
    """Judges the complete documents of a run."""

    def __init__(
        self,
        plan: Plan,
        executor: Executor,
        random_states: Mapping[str, TaskRandomState],
        context: JudgeContext,
    ) -> None:
        self._plan, self._executor, self._random_states = plan, executor, random_states
        self._context = context
        self._pool: WorkerPool | None = None

    def runs_in_background(self, planned: PlannedTask) -> bool:
        """Whether judging may wait for judges, programs or workers, and must not delay the model."""
        return bool(planned.scorer.panels) or planned.uses_services or self._uses_workers(planned)

    async def judge(
        self, task: str, documents: Sequence[OpenDocument], extraction: TaskExtraction | None = None
    ) -> JudgedBatch:
        """Judge complete documents of one task."""
        planned = self._plan.tasks[task]
        if self._uses_workers(planned):
            return await self._judge_on_workers(planned, documents)
        return await self._judge_locally(planned, documents, extraction)

    async def extract(self, task: str, documents: Sequence[OpenDocument]) -> TaskExtraction:
        """Apply the filters that look across all documents of a task."""
        return await self._executor.run(lambda: TaskExtraction(self._plan.tasks[task], documents))

    async def read_replies(
        self, planned: PlannedTask, replies: Sequence[JudgeReplies]
    ) -> Sequence[PanelDecision]:
        """Parse the replies of a task's judge panels, on workers if there are any."""
        if self._plan.spec.workers and replies:
            batches = (self._read_batch_on_worker(planned, batch, 0) for batch in self._split(replies))
            return [decision for batch in await gather_or_cancel(batches) for decision in batch]
        return _read_locally(planned, replies)

    async def close(self) -> None:
        """Stop the workers."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _judge_locally(
        self,
        planned: PlannedTask,
        documents: Sequence[OpenDocument],
        extraction: TaskExtraction | None = None,
    ) -> JudgedBatch:
        score, context = not self._plan.spec.predict_only, self._context
        random_state = self._random_states[planned.task.name]

        def judge() -> JudgedBatch:
            judged = judge_documents(
                planned,
                documents,
                score=score,
                random_state=random_state,
                context=context,
                extraction=extraction,
            )
            if planned.spec.repeats > 1 and score:
                judge_repeats(planned, documents, judged, random_state, context)
            return judged

        return await self._executor.run(judge)

    # --- on workers --------------------------------------------------------------------------------

    def _uses_workers(self, planned: PlannedTask) -> bool:
        spec, scorer = self._plan.spec, planned.scorer
        if not spec.workers or spec.predict_only or isinstance(self._plan.model, SupportsPromptedAs):
            return False
        has_code = planned.uses_services or scorer.runs_task_code or planned.has_custom_filters
        return has_code and planned.is_judged_per_document

    async def _judge_on_workers(self, planned: PlannedTask, documents: Sequence[OpenDocument]) -> JudgedBatch:
        """Judge batches on free workers; the result is in the order of the documents."""
        batches = (self._judge_batch_on_worker(planned, batch, 0) for batch in self._split(documents))
        whole = JudgedBatch()
        for judged in [one for batch in await gather_or_cancel(batches) for one in batch]:
            whole.extend(judged)
        return whole

    async def _read_batch_on_worker(
        self, planned: PlannedTask, replies: Sequence[JudgeReplies], deaths: int
    ) -> list[PanelDecision]:
        """Parse a batch on a worker; if the worker dies, parse its replies one by one."""
        from assay.engine.judging.worker import deserialize, serialize
        from assay.models.replicas.worker_pool import WorkerDied

        try:
            job = serialize(self._build_job(planned, replies=replies))
        except Exception:  # noqa: BLE001 - plugins define judges: what cannot be serialized is parsed here
            return _read_locally(planned, replies)
        try:
            decisions = deserialize(
                await self._get_pool().run("assay.engine.judging.worker:run_reply_job", job)
            )
        except WorkerDied as death:
            if len(replies) == 1 and deaths + 1 >= MAX_WORKER_DEATHS:
                why = _describe_deaths(deaths + 1, death)
                return _read_locally(planned, [replace(replies[0], failure=why, is_retryable=True)])
            batches = [await self._read_batch_on_worker(planned, [one], deaths + 1) for one in replies]
            return [decision for batch in batches for decision in batch]
        return [
            _read_locally(planned, [one])[0] if decision is None else decision
            for one, decision in zip(replies, decisions, strict=True)
        ]

    def _split(self, items: Sequence[T]) -> list[Sequence[T]]:
        size = math.ceil(len(items) / (2 * self._plan.spec.workers))
        return [items[start : start + size] for start in range(0, len(items), size)]

    async def _judge_batch_on_worker(
        self, planned: PlannedTask, documents: Sequence[OpenDocument], deaths: int
    ) -> list[JudgedBatch]:
        """Judge a batch on a worker; if the worker dies, judge its documents one by one."""
        from assay.engine.judging.worker import JudgeJobResult, deserialize, serialize
        from assay.models.replicas.worker_pool import WorkerDied

        try:
            stripped = [_strip_for_transfer(document) for document in documents]
            job = serialize(self._build_job(planned, documents=stripped))
        except Exception:  # noqa: BLE001 - documents hold anything: what cannot be serialized is judged here
            return [await self._judge_locally(planned, [document]) for document in documents]
        try:
            result: JudgeJobResult = deserialize(
                await self._get_pool().run("assay.engine.judging.worker:run_judge_job", job)
            )
        except WorkerDied as death:
            if len(documents) == 1 and deaths + 1 >= MAX_WORKER_DEATHS:
                return [_mark_judge_failed(planned, documents[0], _describe_deaths(deaths + 1, death))]
            batches = [await self._judge_batch_on_worker(planned, [one], deaths + 1) for one in documents]
            return [judged for batch in batches for judged in batch]
        self._plan.programs.record_remote(result.executed, result.isolation)
        return [
            await self._judge_locally(planned, [document]) if judged is None else judged
            for document, judged in zip(documents, result.judged, strict=True)
        ]

    def _build_job(
        self,
        planned: PlannedTask,
        *,
        documents: Sequence[OpenDocument] = (),
        replies: Sequence[JudgeReplies] = (),
    ) -> object:
        from assay.engine.judging.worker import JudgeJob

        model = self._plan.model
        about = {"name": model.name, "abilities": sorted(model.traits.abilities), "identity": {}}
        return JudgeJob(
            spec=self._plan.spec,
            task=planned.task.name,
            digest=planned.digest,
            model=about,
            documents=documents,
            replies=replies,
            panel_members={panel.spec.metric: panel.members for panel in planned.scorer.panels},
        )

    def _get_pool(self) -> WorkerPool:
        if self._pool is None:
            from assay.models.replicas import Cluster, WorkerPool, count_cpus

            spec = self._plan.spec
            cpus = count_cpus(spec.replicas, spec.replica_resources) + spec.workers
            self._pool = WorkerPool(spec.workers, Cluster(spec.ray, cpus=cpus, store_bytes=2**28))
        return self._pool


def _read_locally(planned: PlannedTask, replies: Sequence[JudgeReplies]) -> list[PanelDecision]:
    return [read_replies(planned.scorer.panels[one.panel], one) for one in replies]


def _describe_deaths(count: int, last: Exception) -> str:
    return f"{count} workers died while judging it; the last: {last}"


async def gather_or_cancel(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all of it at once; if one fails, cancel the others before raising."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _strip_for_transfer(document: OpenDocument) -> OpenDocument:
    """Drop what only LLM judges see, and keep only the results of dialogues."""
    dialogues = None if document.dialogues is None else FinishedDialogues(list(document.dialogues.answers))
    return replace(document, judge_media=(), dialogues=dialogues)


def _mark_judge_failed(planned: PlannedTask, document: OpenDocument, why: str) -> JudgedBatch:
    index = document.document.index
    judged = JudgedBatch(outcomes=[(index, JUDGE_FAILED, why)])
    judged.verdicts += [
        Unscored(document=index, metric=metric, pipeline=pipeline.name, why=why)
        for pipeline in planned.scorer.pipelines
        for metric in planned.scorer.metrics
    ]
    return judged
