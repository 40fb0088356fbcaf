"""Where documents are judged: in this process, or on workers (`--workers`).

Workers judge what runs a task's own code: `process_results`, own metrics and filters, programs the model wrote. They read what
the judges of a jury replied. What its own code asks judges for and what needs other documents is judged here, as is everything
that does not survive being sent.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from assay.core.ports import StandsIn
from assay.core.verdicts import Unscored
from assay.engine.judging.context import Court
from assay.engine.judging.documents import Judged, OpenDocument, judge
from assay.engine.judging.llm_judges import Hearing, decided
from assay.engine.judging.repeats import judge_repeats
from assay.engine.planning.plan import Plan, PlannedTask
from assay.engine.running.dialogues import Ended
from assay.scoring.judges.jury import Decision
from assay.user_code.runner import Draws, ForeignCode

if TYPE_CHECKING:
    from assay.models.replicas.pool import Pool

__all__ = ["Courthouse"]

T = TypeVar("T")

_DEATHS_ALLOWED = 3
"""Workers a document may cost before it is left unscored."""


class Courthouse:
    """`extract` and `judge` for a run."""

    def __init__(self, plan: Plan, foreign: ForeignCode, draws: Mapping[str, Draws], court: Court) -> None:
        self._plan, self._foreign, self._draws, self._court = plan, foreign, draws, court
        self._pool: Pool | None = None

    def beside(self, planned: PlannedTask) -> bool:
        """Whether judging may wait for the world, and must not hold up what the model answers meanwhile."""
        return bool(planned.scorer.juries) or planned.waits_for_the_world or self._goes_away(planned)

    async def judge(self, task: str, documents: Sequence[OpenDocument]) -> Judged:
        """Judge complete documents of one task."""
        planned = self._plan.tasks[task]
        if self._goes_away(planned):
            return await self._judge_away(planned, documents)
        return await self._judge_here(planned, documents)

    async def decide(self, planned: PlannedTask, hearings: Sequence[Hearing]) -> Sequence[Decision]:
        """What a task's juries make of what they heard: their judges' replies are read on workers, if there are any."""
        if self._plan.spec.workers and hearings:
            return await self._decide_away(planned, hearings)
        juries = planned.scorer.juries
        return [decided(juries[hearing.jury], hearing) for hearing in hearings]

    async def close(self) -> None:
        """End the workers."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _judge_here(self, planned: PlannedTask, documents: Sequence[OpenDocument]) -> Judged:
        score, draws, court = not self._plan.spec.predict_only, self._draws[planned.task.name], self._court
        judged = await self._foreign.run(
            lambda: judge(planned, documents, score=score, draws=draws, court=court)
        )
        if planned.spec.repeats > 1 and score:
            await self._foreign.run(lambda: judge_repeats(planned, documents, judged, draws, court))
        return judged

    # --- on workers --------------------------------------------------------------------------------

    def _goes_away(self, planned: PlannedTask) -> bool:
        spec, scorer = self._plan.spec, planned.scorer
        if not spec.workers or spec.predict_only or isinstance(self._plan.model, StandsIn):
            return False
        steps = (step for pipeline in scorer.pipelines for step in pipeline.steps)
        own = planned.waits_for_the_world or scorer.runs_own_code
        own = own or any(not step.make.__module__.startswith("assay.") for step in steps)
        return own and planned.judged_apart

    async def _judge_away(self, planned: PlannedTask, documents: Sequence[OpenDocument]) -> Judged:
        """Pieces to whoever is free; put together again in the order of the documents."""
        found = await _together(self._sent(planned, piece, 0) for piece in self._pieces(documents))
        whole = Judged()
        for judged in (one for piece in found for one in piece):
            whole.outcomes += judged.outcomes
            whole.answers += judged.answers
            whole.verdicts += judged.verdicts
            whole.repeats += judged.repeats
        return whole

    async def _decide_away(self, planned: PlannedTask, hearings: Sequence[Hearing]) -> list[Decision]:
        found = await _together(self._ruled(planned, piece, 0) for piece in self._pieces(hearings))
        return [decision for piece in found for decision in piece]

    async def _ruled(self, planned: PlannedTask, hearings: Sequence[Hearing], deaths: int) -> list[Decision]:
        """What a worker makes of what some juries heard; after its death, of each alone."""
        from assay.engine.judging.worker import packed, unpacked
        from assay.models.replicas.pool import WorkerDied

        juries = planned.scorer.juries
        try:
            order = packed(self._order(planned, hearings=hearings))
        except Exception:  # noqa: BLE001 - a kind of judge may be anything: what cannot be sent is read here
            return [decided(juries[hearing.jury], hearing) for hearing in hearings]
        try:
            found = unpacked(await self._opened_pool().do("assay.engine.judging.worker:decide_away", order))
        except WorkerDied as death:
            if len(hearings) == 1 and deaths + 1 >= _DEATHS_ALLOWED:
                why = f"{deaths + 1} workers died over it; the last: {death}"
                return [decided(juries[hearings[0].jury], replace(hearings[0], without=why))]
            each = [await self._ruled(planned, [hearing], deaths + 1) for hearing in hearings]
            return [decision for found in each for decision in found]
        return [
            decided(juries[hearing.jury], hearing) if decision is None else decision
            for hearing, decision in zip(hearings, found, strict=True)
        ]

    def _pieces(self, things: Sequence[T]) -> list[Sequence[T]]:
        size = math.ceil(len(things) / (2 * self._plan.spec.workers))
        return [things[at : at + size] for at in range(0, len(things), size)]

    async def _sent(
        self, planned: PlannedTask, documents: Sequence[OpenDocument], deaths: int
    ) -> list[Judged]:
        """What a worker makes of some documents; after its death, of each alone."""
        from assay.engine.judging.worker import Finding, packed, unpacked
        from assay.models.replicas.pool import WorkerDied

        try:
            order = packed(self._order(planned, [_told(document) for document in documents]))
        except Exception:  # noqa: BLE001 - a document may hold anything: what cannot be sent is judged here
            return [await self._judge_here(planned, [document]) for document in documents]
        try:
            finding: Finding = unpacked(
                await self._opened_pool().do("assay.engine.judging.worker:judge_away", order)
            )
        except WorkerDied as death:
            if len(documents) == 1 and deaths + 1 >= _DEATHS_ALLOWED:
                return [
                    _given_up(planned, documents[0], f"{deaths + 1} workers died over it; the last: {death}")
                ]
            each = [await self._sent(planned, [document], deaths + 1) for document in documents]
            return [judged for found in each for judged in found]
        self._plan.programs.note(finding.executed, finding.isolation)
        return [
            await self._judge_here(planned, [document]) if judged is None else judged
            for document, judged in zip(documents, finding.judged, strict=True)
        ]

    def _order(
        self, planned: PlannedTask, documents: Sequence[OpenDocument] = (), hearings: Sequence[Hearing] = ()
    ) -> object:
        from assay.engine.judging.worker import Order

        model = self._plan.model
        about = {"name": model.name, "abilities": sorted(model.traits.abilities), "identity": {}}
        return Order(
            spec=self._plan.spec,
            task=planned.task.name,
            digest=planned.digest,
            model=about,
            documents=documents,
            hearings=hearings,
            seats={jury.spec.metric: jury.seats for jury in planned.scorer.juries},
        )

    def _opened_pool(self) -> Pool:
        if self._pool is None:
            from assay.models.replicas import Cluster, Pool, processors_for

            spec = self._plan.spec
            cpus = processors_for(spec.replicas, spec.replica_resources) + spec.workers
            self._pool = Pool(spec.workers, Cluster(spec.ray, cpus=cpus, store_bytes=2**28))
        return self._pool


async def _together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All of it at once; where one fails, the others are stopped before it is told: nobody asks for workers that are gone."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _told(document: OpenDocument) -> OpenDocument:
    """A document as it travels: without what only juries look at, and with what its dialogues came to."""
    talks = None if document.talks is None else Ended(document.talks.answers)
    return replace(document, shown=(), talks=talks)


def _given_up(planned: PlannedTask, document: OpenDocument, why: str) -> Judged:
    index = document.document.index
    judged = Judged(outcomes=[(index, "unscored", why)])
    judged.verdicts += [
        Unscored(document=index, metric=metric, pipeline=pipeline.name, why=why)
        for pipeline in planned.scorer.pipelines
        for metric in planned.scorer.metrics
    ]
    return judged
