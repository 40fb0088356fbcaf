"""Where documents are judged: in this process, or on workers (`--workers`).

Workers judge what runs a task's own code: `process_results`, own metrics and filters, programs the model wrote. What needs
judges, other documents or a dialogue is judged here, as is everything that does not survive being sent.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from assay.core.ports import StandsIn
from assay.core.verdicts import Unscored
from assay.engine.foreign_code import Draws, ForeignCode
from assay.engine.judging import Judged, OpenDocument, judge
from assay.engine.plan import Plan, PlannedTask
from assay.engine.repeated import judge_repeats
from assay.engine.sittings import Court

if TYPE_CHECKING:
    from assay.models.replicas.pool import Pool

__all__ = ["Courthouse"]

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
        return own and planned.judged_apart and not scorer.juries and not planned.task.is_dialogue

    async def _judge_away(self, planned: PlannedTask, documents: Sequence[OpenDocument]) -> Judged:
        """Pieces to whoever is free; put together again in the order of the documents."""
        size = math.ceil(len(documents) / (2 * self._plan.spec.workers))
        pieces = [documents[at : at + size] for at in range(0, len(documents), size)]
        found = await asyncio.gather(*(self._sent(planned, piece, 0) for piece in pieces))
        whole = Judged()
        for judged in (one for piece in found for one in piece):
            whole.outcomes += judged.outcomes
            whole.answers += judged.answers
            whole.verdicts += judged.verdicts
            whole.repeats += judged.repeats
        return whole

    async def _sent(
        self, planned: PlannedTask, documents: Sequence[OpenDocument], deaths: int
    ) -> list[Judged]:
        """What a worker makes of some documents; after its death, of each alone."""
        from assay.engine.away import Finding, packed, unpacked
        from assay.models.replicas.pool import WorkerDied

        try:
            order = packed(self._order(planned, documents))
        except Exception:  # noqa: BLE001 - a document may hold anything: what cannot be sent is judged here
            return [await self._judge_here(planned, [document]) for document in documents]
        try:
            finding: Finding = unpacked(await self._opened_pool().do("assay.engine.away:judge_away", order))
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

    def _order(self, planned: PlannedTask, documents: Sequence[OpenDocument]) -> object:
        from assay.engine.away import Order

        model = self._plan.model
        about = {"name": model.name, "abilities": sorted(model.traits.abilities), "identity": {}}
        return Order(
            spec=self._plan.spec,
            task=planned.task.name,
            digest=planned.digest,
            model=about,
            documents=[replace(document, shown=()) for document in documents],
        )

    def _opened_pool(self) -> Pool:
        if self._pool is None:
            from assay.models.replicas import Cluster, Pool, processors_for

            spec = self._plan.spec
            cpus = processors_for(spec.replicas, spec.replica_resources) + spec.workers
            self._pool = Pool(spec.workers, Cluster(spec.ray, cpus=cpus, store_bytes=2**28))
        return self._pool


def _given_up(planned: PlannedTask, document: OpenDocument, why: str) -> Judged:
    index = document.document.index
    judged = Judged(outcomes=[(index, "unscored", why)])
    judged.verdicts += [
        Unscored(document=index, metric=metric, pipeline=pipeline.name, why=why)
        for pipeline in planned.scorer.pipelines
        for metric in planned.scorer.metrics
    ]
    return judged
