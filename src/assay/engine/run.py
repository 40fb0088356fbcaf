"""The table of contents: render, ask, extract, judge, append, summarise, in a stream.

    documents -> requests -> (journal? cache?) -> model -> responses -> journal -> answers -> verdicts -> journal

Resume is subtraction: documents the journal has judged are passed over, requests it has answered are not asked.
A response is durable before its document counts as done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from functools import partial
from itertools import chain

from assay.core.errors import AssayError
from assay.core.progress import RunProgress, TaskProgress
from assay.core.requests import Request, fingerprint
from assay.core.responses import Failure, Outcome, Response
from assay.core.verdicts import Estimate
from assay.engine.judging.context import Court
from assay.engine.judging.dispatch import Courthouse
from assay.engine.judging.documents import Judged, OpenDocument, running_score
from assay.engine.judging.llm_judges import deliberate
from assay.engine.planning.plan import Plan, PlannedTask
from assay.engine.results.stop_rules import open_stops, stop_facts
from assay.engine.results.summary import summarise
from assay.engine.running.batching import Gathering, short_turns
from assay.engine.running.cost_ledger import open_ledger
from assay.engine.running.dialogues import go_on
from assay.engine.running.document_reader import CHUNK, open_chunks
from assay.engine.running.gc import few_collections
from assay.engine.running.media_archive import MediaKeeper
from assay.engine.running.model_queue import Backlog, ask
from assay.engine.running.open_documents import Rooms
from assay.engine.running.prefetch import Prefetch, lightened
from assay.engine.running.services import ModelServices, first_of, open_model
from assay.engine.running.token_answers import known_to
from assay.sandboxes.program_runner import permitted
from assay.store.cache import KnownAnswers
from assay.store.journal import Journal
from assay.user_code.runner import Draws, ForeignCode

__all__ = ["run"]

_MOST_WRITES = 32
"""Portions handed to the journal before somebody waits for them."""


async def run(
    plan: Plan,
    journal: Journal,
    cache: KnownAnswers | None,
    progress: RunProgress,
    foreign: ForeignCode | None = None,
) -> list[Estimate]:
    """Answer and score whatever the journal lacks, then sum it up. Task helpers run where `foreign` says."""
    stream = _Stream(plan, journal, known_to(plan, cache), progress, foreign or ForeignCode())
    with few_collections(), short_turns(plan.model), permitted(plan.programs, plan.spec):
        try:
            with stream.court:
                await stream.flow()
                if stream.stops:
                    facts = stop_facts(plan, stream.stops, journal.facts())
                    await asyncio.wrap_future(journal.set_facts(facts))
                progress.stage = "summarise"
                estimates = await stream.foreign.run(partial(summarise, plan, journal))
        finally:
            await stream.close()
    await asyncio.wrap_future(journal.add_estimates(estimates))
    progress.stage = "done"
    return estimates


class _Stream:
    """One pass through a plan."""

    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        cache: KnownAnswers | None,
        progress: RunProgress,
        foreign: ForeignCode,
    ) -> None:
        self.plan = plan
        self.journal = journal
        self.cache = cache
        self.progress = progress
        traits = plan.model.traits
        self.backlog = Backlog(max(2 * traits.window * traits.in_flight, 2 * CHUNK))
        self.waiting: dict[str, list[tuple[OpenDocument, int]]] = {}
        """Fingerprint -> who waits for it: identical requests are asked once."""

        self.arrived: list[Outcome] = []
        self.arrival = asyncio.Event()
        self.rendered = False
        self.held: dict[str, list[OpenDocument]] = {}
        """Complete documents of tasks whose filters look across all documents."""

        self.writes: list[Future[None]] = []
        self.model_digest = plan.model_digest
        self.foreign = foreign
        self.draws = {name: Draws(plan.spec.seed, name) for name in plan.tasks}
        self.stops = open_stops(plan, journal)
        self.rooms = Rooms(
            max(8 * CHUNK, 4 * traits.window * traits.in_flight),
            dialogues=[name for name, planned in plan.tasks.items() if planned.task.is_dialogue],
            room_of_dialogues=2 * CHUNK,
            rounds=self.stops,
        )
        self.ledger = open_ledger(plan.spec, journal)
        self.account = self.ledger.account(plan.model)
        self.services = ModelServices(journal, cache, progress, plan.judges, plan.programs, self.ledger)
        plan.programs.pause = self.foreign.pause
        self.court = Court(self.services, self.foreign, plan.house_judges)
        self.courthouse = Courthouse(plan, self.foreign, self.draws, self.court)
        self.group = asyncio.TaskGroup()
        self.opened = False
        self.media = Prefetch(plan.spec.media_memory_mb * 2**20, plan.model)
        self.keeper = MediaKeeper(journal.path.parent, plan.spec.keep_media_mb)

    # --- the flow ----------------------------------------------------------------------------------

    async def flow(self) -> None:
        for name, planned in self.plan.tasks.items():
            metrics = list(planned.scorer.metrics)
            self.progress.tasks[name] = TaskProgress(
                name, planned.documents, metric=metrics[0] if metrics else ""
            )
        self.progress.stage = "ask"
        try:
            async with asyncio.TaskGroup() as self.group:
                recorder = self.group.create_task(self._record())
                producer = self.group.create_task(self._produce())
                await self._ask()
                if self.ledger.reached:
                    producer.cancel()
                self.rendered = True
                self.arrival.set()
                await recorder
            async with asyncio.TaskGroup() as self.group:
                for name in list(self.held) if not self.ledger.reached else ():
                    documents = self.held.pop(name)
                    await self.rooms.begin(name, len(documents))
                    await self._judge(name, documents)
        except* AssayError as several:
            raise first_of(several) from None
        await self._written()
        if self.ledger.reached:
            raise self.ledger.stopped()

    async def close(self) -> None:
        """Stop cleanly, whatever happened: what has arrived is written."""
        self.foreign.close()
        self.media.close()
        self._append(self._take_arrived())
        await self.services.close()
        await self.courthouse.close()
        await self._written(quietly=True)
        if self.opened:
            await self.plan.model.close()

    async def _ask(self) -> None:
        """Open the model only if there is something to ask."""
        first = await self.backlog.peek()
        if first:
            self.progress.stage = "open"
            await self.services.open()
            await open_model(self.plan.model)
            self.opened = True
            self.progress.stage = "ask"
            await ask(self.plan.model, self.backlog, self._receive, self.account.admit)

    # --- documents to requests ---------------------------------------------------------------------

    async def _produce(self) -> None:
        """Open documents task by task; past a task that waits for its judges, helpers or dialogues, the next."""
        tasks = {name: self._chunks(planned) for name, planned in self.plan.tasks.items()}
        while tasks:
            name = self.rooms.free(tasks)
            if name is None:  # nobody fills the model's window up while all wait
                await self.backlog.hurry()
                await self.rooms.wait(tasks)
                await self.backlog.hurry(on=False)
            elif (chunk := await self.foreign.run(partial(next, tasks[name], None))) is None:
                del tasks[name]
            else:
                await self._admit(self.plan.tasks[name], chunk)
        await self.backlog.hurry()
        await self.rooms.wait_for_dialogues()
        await self.backlog.close()

    def _chunks(self, planned: PlannedTask) -> Iterator[list[OpenDocument]]:
        """Render what is not finished, a chunk at a time."""
        name, media = planned.task.name, self.media
        return open_chunks(
            self.plan,
            planned,
            self._finished(name),
            self.progress.tasks[name],
            lambda chunk: media.at_once([document.requests for document in chunk], CHUNK // 4),
            self.stops.get(name),
        )

    def _finished(self, task: str) -> AbstractSet[int]:
        return self.journal.finished(task, retry_failed=self.plan.spec.retry_failed)

    async def _admit(self, planned: PlannedTask, chunk: list[OpenDocument]) -> None:
        """Write documents and requests down; answer from memory what can be; queue the rest."""
        self._append_documents(chunk)
        await self.keeper.keep(chunk)
        if len(self.writes) > _MOST_WRITES:  # nothing to ask, so nothing else waits for the disk
            await self._written()
        await self.rooms.begin(planned.task.name, len(chunk))
        self._show(planned, chunk)
        complete, pending = self._look_up(chunk)
        await self._complete(planned.task.name, complete)
        await self.backlog.put(pending)
        await self.media.room(self.backlog)

    def _show(self, planned: PlannedTask, chunk: Sequence[OpenDocument]) -> None:
        """Hold on to what juries are to see: within the budget, unless documents wait for each other."""
        if self.plan.spec.predict_only or not any(jury.spec.media for jury in planned.scorer.juries):
            return
        for document in chunk:
            media = [part for request in document.requests[:1] for part in request.prompt.media]
            together = not planned.judged_apart
            document.shown = tuple(media) if together else self.media.hold(document.name, media)

    def _look_up(self, chunk: list[OpenDocument]) -> tuple[list[OpenDocument], Sequence[Request]]:
        """Answer from memory what can be: the documents that are complete, and the requests to be asked."""
        new = [document.fingerprints[document.answered :] for document in chunk]
        wanted = list(dict.fromkeys(chain.from_iterable(new)))
        known = self.journal.find(wanted)
        from_cache: dict[str, Response] = {}
        if self.cache is not None and len(known) < len(wanted):
            from_cache = self.cache.find([mark for mark in wanted if mark not in known])
            kept = self.journal.add_responses(from_cache.items(), source="cache", at_leisure=True)
            self.writes.append(kept)
            known |= from_cache
        pending: list[Request] = []
        complete: list[OpenDocument] = []
        reused = 0
        waiting = self.waiting
        any_media = False
        for document, marks in zip(chunk, new, strict=True):
            requests = document.requests
            for at, mark in enumerate(marks, start=len(requests) - len(marks)):
                if mark in known:
                    document.outcomes[at] = known[mark]
                    document.missing -= 1
                    reused += 1
                elif mark in waiting:
                    waiting[mark].append((document, at))
                else:
                    waiting[mark] = [(document, at)]
                    pending.append(requests[at])
            if document.missing == 0:
                complete.append(document)
            document.requests = lightened(requests)
            any_media = any_media or document.requests is not requests
        self.progress.cached += reused
        return complete, self.media.share(pending) if any_media else pending

    def _append_documents(self, chunk: Sequence[OpenDocument]) -> None:
        """Write down documents with all their requests so far."""
        rows = [(one.document, one.target, one.requests, one.fingerprints) for one in chunk]
        self.writes.append(self.journal.add_documents(rows, at_leisure=True))

    # --- responses to verdicts ---------------------------------------------------------------------

    def _receive(self, outcome: Outcome) -> None:
        self.media.done(outcome.request_id)
        arrived = self.arrived
        if not arrived:
            self.arrival.set()
        arrived.append(self.account.charge(outcome) if self.account.billed else outcome)

    async def _record(self) -> None:
        """Write what arrived, then count it: durable first."""
        gathering = Gathering()
        while True:
            await self.arrival.wait()
            if not self.rendered:
                await gathering.wait(len(self.arrived), of=len(self.waiting))
            self.arrival.clear()
            batch = self._take_arrived()
            if batch:
                with gathering.timed():
                    self._append(batch)
                    await self._written()
                    await self._distribute(batch)
            elif self.rendered and not self.arrived:
                return
            if self.rendered:
                self.arrival.set()

    def _take_arrived(self) -> list[tuple[str, Outcome]]:
        arrived, self.arrived = self.arrived, []
        return [(fingerprint(self.model_digest, outcome.request_id), outcome) for outcome in arrived]

    def _append(self, batch: Sequence[tuple[str, Outcome]]) -> None:
        failures = [(mark, outcome) for mark, outcome in batch if isinstance(outcome, Failure)]
        responses = [(mark, outcome) for mark, outcome in batch if isinstance(outcome, Response)]
        if responses:
            self.writes.append(self.journal.add_responses(responses, source="model", at_leisure=True))
            if self.cache is not None:
                self.cache.add(responses, model=self.plan.model.name)
        if failures:
            self.writes.append(self.journal.add_failures(failures, at_leisure=True))

    async def _distribute(self, batch: Sequence[tuple[str, Outcome]]) -> None:
        complete: dict[str, list[OpenDocument]] = {}
        waiting = self.waiting
        self.progress.count([outcome for _, outcome in batch], billed=self.account.billed)
        for mark, outcome in batch:
            for document, at in waiting.pop(mark):
                document.outcomes[at] = outcome
                document.missing -= 1
                if document.missing == 0:
                    complete.setdefault(document.document.task, []).append(document)
        for task, documents in complete.items():
            await self._complete(task, documents)

    async def _complete(self, task: str, documents: list[OpenDocument]) -> None:
        if not documents:
            return
        if self.plan.tasks[task].task.is_dialogue:
            self.group.create_task(self._talk(self.plan.tasks[task], documents))
        else:
            await self._end(task, documents)

    async def _talk(self, planned: PlannedTask, documents: list[OpenDocument]) -> None:
        """Let dialogues go on until they end or wait for the model; a helper that is slow holds nothing else up."""
        task, limit = planned.task.name, self.plan.spec.max_rounds
        further = partial(go_on, limit=limit, model_digest=self.model_digest)
        while documents:
            await self.foreign.run(partial(further, planned, documents, self.draws[task]))
            ended = [document for document in documents if document.missing == 0]
            await self._end(task, ended)
            going = [document for document in documents if document.missing]
            if not going:
                return
            self._append_documents(going)
            documents, pending = self._look_up(going)
            await self.backlog.put_first(pending)

    async def _end(self, task: str, documents: list[OpenDocument]) -> None:
        if not documents:
            return
        if self.plan.tasks[task].judged_apart:
            await self._judge(task, documents)
        else:
            self.held.setdefault(task, []).extend(documents)
            await self.rooms.end(task, len(documents))  # they wait for each other, not for room

    async def _judge(self, task: str, documents: list[OpenDocument]) -> None:
        documents.sort(key=lambda document: document.document.index)
        if self.courthouse.beside(self.plan.tasks[task]):
            self.group.create_task(self._judge_now(task, documents))
        else:
            await self._judge_now(task, documents)

    async def _judge_now(self, task: str, documents: list[OpenDocument]) -> None:
        planned = self.plan.tasks[task]
        score = not self.plan.spec.predict_only
        judged = await self.courthouse.judge(task, documents)
        if planned.scorer.juries and score:
            await deliberate(planned, documents, judged, self.services, self.foreign, self.courthouse.decide)
            for document in documents:
                self.media.done(document.name)
        self.writes.append(self._kept(task, judged))
        if task in self.stops:
            self.stops[task].add(judged.verdicts)
        counters = self.progress.tasks[task]
        counters.done += len(documents)
        counters.endings.update([ending for _, ending, _ in judged.outcomes])
        counters.add_scores(running_score(judged, planned.scorer.pipelines[0].name, counters.metric))
        await self.rooms.end(task, len(documents))

    def _kept(self, task: str, judged: Judged) -> Future[None]:
        return self.journal.add_judged(
            task, judged.outcomes, judged.answers, judged.verdicts, judged.repeats, at_leisure=True
        )

    async def _written(self, *, quietly: bool = False) -> None:
        """Wait until everything handed to the journal is on disk: in one transaction, as far as it is not yet."""
        writes, self.writes = self.writes, []
        if not writes:
            return
        try:
            await asyncio.wrap_future(self.journal.settle())
            for write in writes:
                write.result()
        except AssayError:
            if not quietly:
                raise
