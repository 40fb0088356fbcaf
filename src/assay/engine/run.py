"""Execute a plan, top to bottom: render, ask, append, judge, summarise, in a stream.

    documents -> requests -> (journal? cache?) -> model -> responses -> journal -> answers -> verdicts -> journal

A resumed run does only what the journal lacks: judged documents are skipped, answered requests are not sent again. A response
is durable before its document counts as done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import chain

from assay.core.errors import AssayError
from assay.core.ports import SupportsRandomStates
from assay.core.progress import RunProgress, TaskProgress
from assay.core.records.documents import Document
from assay.core.records.requests import Generate, Request, compute_fingerprint
from assay.core.records.responses import Failure, Outcome, Response
from assay.core.records.verdicts import Estimate
from assay.engine.judging.context import JudgeContext
from assay.engine.judging.dispatch import JudgeDispatcher
from assay.engine.judging.documents import list_scores
from assay.engine.judging.extraction import TaskExtraction
from assay.engine.judging.llm_judges import ask_judges
from assay.engine.open_document import JudgedBatch, OpenDocument
from assay.engine.planning.records import Plan, PlannedTask
from assay.engine.results.stop_rules import describe_stops, make_stop_rules
from assay.engine.results.summary import summarise
from assay.engine.running.agents import AgentRuntime, DocumentAgents
from assay.engine.running.batching import ResponseBatcher, shorten_thread_switches
from assay.engine.running.cost_ledger import open_ledger
from assay.engine.running.dialogues import add_requests, advance_dialogues
from assay.engine.running.document_reader import CHUNK_SIZE, read_chunks
from assay.engine.running.gc import reduce_collections
from assay.engine.running.media_archive import MediaArchive
from assay.engine.running.model_queue import Backlog, UnsavedAnswerLimiter, ask
from assay.engine.running.open_documents import OpenDocumentLimiter
from assay.engine.running.prefetch import MediaPrefetcher, strip_media
from assay.engine.running.services import ModelServices, first_error, open_model
from assay.engine.running.token_answers import require_tokens
from assay.models.remote.rate_limits import find_longest_pause_s
from assay.sandboxes.program_runner import programs_for_run
from assay.store.cache.response_cache import ResponseSource
from assay.store.journal.journal import Journal
from assay.tasks.data.rows import share_names
from assay.user_code.executor import Executor
from assay.user_code.random_state import TaskRandomState

__all__ = ["run"]

MAX_WINDOWS_READY = 64
"""Twice as many windows of requests are rendered ahead, however many a model can have in flight."""

MAX_PENDING_WRITES = 32
"""Batches handed to the journal before the run waits for the disk."""


async def run(
    plan: Plan,
    journal: Journal,
    cache: ResponseSource | None,
    progress: RunProgress,
    executor: Executor,
) -> list[Estimate]:
    """Answer and score what the journal lacks, then aggregate. User code runs on the executor."""
    stream = _RunStream(plan, journal, require_tokens(plan, cache), progress, executor)
    with (
        reduce_collections(),
        shorten_thread_switches(plan.model),
        programs_for_run(plan.programs, plan.spec),
    ):
        try:
            with stream.judge_context:
                await stream.execute()
                if stream.stops:
                    facts = describe_stops(plan, stream.stops, journal.read_facts())
                    await asyncio.wrap_future(journal.set_facts(facts))
                progress.stage = "summarise"
                estimates = await executor.run(partial(summarise, plan, journal))
        finally:
            await stream.close()
    await asyncio.wrap_future(journal.add_estimates(estimates))
    progress.stage = "done"
    return estimates


class _RunStream:
    """One pass through a plan. Documents flow through the methods in the order of this file."""

    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        cache: ResponseSource | None,
        progress: RunProgress,
        executor: Executor,
    ) -> None:
        self.plan = plan
        self.journal = journal
        self.cache = cache
        self.progress = progress
        self.executor = executor
        self.model_digest = plan.model_digest
        self.group = asyncio.TaskGroup()
        self.stops = make_stop_rules(plan, journal)
        self.random_states = {name: TaskRandomState(plan.spec.seed, name) for name in plan.tasks}
        # documents to requests
        traits = plan.model.traits
        self.open_documents = OpenDocumentLimiter(
            max(8 * CHUNK_SIZE, 4 * traits.window * traits.in_flight),
            dialogues=[name for name, planned in plan.tasks.items() if planned.task.is_dialogue],
            dialogue_limit=2 * CHUNK_SIZE,
            rounds=self.stops,
        )
        self.has_media = any(planned.has_media for planned in plan.tasks.values())
        self.media = MediaPrefetcher(plan.spec.media_memory_mb * 2**20, plan.model)
        self.media_archive = MediaArchive(journal.path.parent, plan.spec.keep_media_mb)
        # requests to responses
        self.backlog = Backlog(
            max(2 * traits.window * min(traits.in_flight, MAX_WINDOWS_READY), 2 * CHUNK_SIZE)
        )
        self.in_flight: dict[str, list[tuple[OpenDocument, int]]] = {}
        """Fingerprint -> the documents that wait for it: identical requests are sent once."""

        self.calls: dict[tuple[str, int], asyncio.Future[Outcome]] = {}
        """Calls of external agents that wait for their outcome, by document and index of the request."""

        self.ledger = open_ledger(plan.spec, journal)
        self.account = self.ledger.account(plan.model)
        self.model_is_open = False
        # responses to verdicts
        self.arrived: list[Outcome] = []
        self.unsaved = UnsavedAnswerLimiter(plan.model)
        self.arrival = asyncio.Event()
        self.all_asked = False
        self.writes: list[Future[None]] = []
        self.held: dict[str, list[OpenDocument]] = {}
        """Complete documents of tasks whose filters look across all documents."""

        self.field_names: dict[tuple[str, ...], tuple[str, ...]] = {}

        self.services = ModelServices(
            journal, cache, progress, plan.judges, plan.programs, self.ledger, model=plan.model
        )
        plan.programs.wait = executor.wait
        self.agents = AgentRuntime(
            journal,
            plan.folder,
            self.services,
            executor,
            plan.spec.seed[0] or 0,
            getattr(cache, "read_agent_events", None),
        )
        self.judge_context = JudgeContext(self.services, executor, plan.default_judges)
        self.dispatcher = JudgeDispatcher(plan, executor, self.random_states, self.judge_context)

    async def execute(self) -> None:
        """Run all stages at the same time, until every document is judged and written."""
        for name, planned in self.plan.tasks.items():
            metric = next(iter(planned.scorer.metrics), "")
            self.progress.tasks[name] = TaskProgress(name, planned.documents, metric=metric)
        self.progress.stage = "ask"
        self.progress.measure_pause_s = find_longest_pause_s
        try:
            async with asyncio.TaskGroup() as self.group:
                recorder = self.group.create_task(self._append_responses())
                producer = self.group.create_task(self._render_requests())
                await self._ask()
                if self.ledger.is_exhausted:
                    producer.cancel()
                    self._stop_calls("the budget is exhausted (--max_cost)")
                self.all_asked = True
                self.arrival.set()
                await recorder
            async with asyncio.TaskGroup() as self.group:
                for name in list(self.held) if not self.ledger.is_exhausted else ():
                    documents = self.held.pop(name)
                    await self.open_documents.add(name, len(documents))
                    await self._judge_together(name, documents)
        except* AssayError as errors:
            raise first_error(errors) from None
        await self._flush()
        if self.ledger.is_exhausted:
            raise self.ledger.build_error()

    async def close(self) -> None:
        """Stop, whatever happened: responses that arrived are written."""
        self.media.close()
        self.agents.close()
        self._stop_calls("the run was stopped")
        self._append(self._take_arrived())
        await self.services.close()
        await self.dispatcher.close()
        await self._flush(ignore_errors=True)
        if self.model_is_open:
            await self.plan.model.close()

    # --- documents to requests ---------------------------------------------------------------------

    async def _render_requests(self) -> None:
        """Read and render documents task by task; if a task reached its limit, continue with the next one."""
        tasks = {name: self._read_chunks(planned) for name, planned in self.plan.tasks.items()}
        while tasks:
            name = self.open_documents.choose_task(tasks)
            if name is None:
                await self.backlog.release_partial_windows()
                await self.open_documents.wait(tasks)
                await self.backlog.release_partial_windows(enabled=False)
            elif (chunk := await self.executor.run(partial(next, tasks[name], None))) is None:
                del tasks[name]
            else:
                await self._queue_chunk(self.plan.tasks[name], chunk)
        await self.backlog.release_partial_windows()
        await self.open_documents.wait_for_dialogues()
        await self.backlog.close()

    def _read_chunks(self, planned: PlannedTask) -> Iterator[list[OpenDocument]]:
        name, media = planned.task.name, self.media
        return read_chunks(
            self.plan,
            planned,
            self.journal.finished_documents(name, retry_failed=self.plan.spec.retry_failed),
            self.progress.tasks[name],
            lambda chunk: media.choose_chunk_size([document.requests for document in chunk], CHUNK_SIZE // 4),
            self.stops.get(name),
        )

    async def _queue_chunk(self, planned: PlannedTask, chunk: list[OpenDocument]) -> None:
        """Append documents and requests to the journal, answer known requests, queue the others."""
        self._append_documents(chunk)
        if len(self.writes) > MAX_PENDING_WRITES:  # a resumed run with nothing to ask waits nowhere else
            await self._flush()
        await self.open_documents.add(planned.task.name, len(chunk))
        self._hold_judge_media(planned, chunk)
        complete, pending = self._look_up(chunk)
        if planned.has_media:
            pending = self.media.share(pending)
            await self.media_archive.save(chunk)  # while the first media are decoded
            _strip_documents(chunk)
        await self._advance(planned.task.name, complete)
        await self.backlog.put(pending)
        if planned.has_media:
            await self.media.wait_for_memory(self.backlog)

    def _hold_judge_media(self, planned: PlannedTask, chunk: Sequence[OpenDocument]) -> None:
        """Keep media for LLM judges that see them: within the memory budget, unless documents wait for each other."""
        if self.plan.spec.predict_only or not any(panel.spec.media for panel in planned.scorer.panels):
            return
        for document in chunk:
            media = [part for request in document.requests[:1] for part in request.prompt.media]
            per_document = planned.is_judged_per_document
            document.judge_media = self.media.hold(document.key, media) if per_document else tuple(media)

    def _look_up(self, chunk: list[OpenDocument]) -> tuple[list[OpenDocument], Sequence[Request]]:
        """Answer requests from the journal and the cache; return the complete documents and the open requests."""
        new = [document.fingerprints[document.answered_count :] for document in chunk]
        known = self._find_responses(list(dict.fromkeys(chain.from_iterable(new))))
        pending: list[Request] = []
        complete: list[OpenDocument] = []
        reused = 0
        in_flight = self.in_flight
        for document, fingerprints in zip(chunk, new, strict=True):
            requests = document.requests
            for index, fingerprint in enumerate(fingerprints, start=len(requests) - len(fingerprints)):
                if fingerprint in known:
                    document.outcomes[index] = known[fingerprint]
                    document.missing -= 1
                    reused += 1
                elif fingerprint in in_flight:
                    in_flight[fingerprint].append((document, index))
                else:
                    in_flight[fingerprint] = [(document, index)]
                    pending.append(requests[index])
            if document.missing == 0:
                complete.append(document)
        self.progress.cached += reused
        return complete, pending

    def _find_responses(self, wanted: Sequence[str]) -> dict[str, Response]:
        """Return the responses that the journal or the cache has, by fingerprint."""
        known = dict(self.journal.find(wanted))
        if self.cache is not None and len(known) < len(wanted):
            from_cache = self.cache.find([fingerprint for fingerprint in wanted if fingerprint not in known])
            self.writes.append(self.journal.add_responses(from_cache.items(), source="cache", deferred=True))
            known |= from_cache
        return known

    def _append_documents(self, chunk: Sequence[OpenDocument]) -> None:
        rows = [(one.document, one.target, one.requests, one.fingerprints) for one in chunk]
        self.writes.append(self.journal.add_documents(rows, deferred=True))

    # --- requests to responses ---------------------------------------------------------------------

    async def _ask(self) -> None:
        """Send the queued requests; the model is opened only if there are any."""
        if await self.backlog.peek():
            self.progress.stage = "open"
            await self.services.open()
            await open_model(self.plan.model)
            self.model_is_open = True
            if isinstance(self.plan.model, SupportsRandomStates) and self.plan.random_states is not None:
                self.plan.model.receive_random_states(self.plan.random_states)
            await self.services.probe_calls.record()
            self.progress.stage = "ask"
            try:
                await ask(self.plan.model, self.backlog, self._receive, self.unsaved, self.account.admit)
            finally:
                self.account.release_all()  # judges may wait for the budget of requests that were cancelled

    def _receive(self, outcome: Outcome) -> None:
        if self.has_media:
            self.media.release(outcome.request_id)
        arrived = self.arrived
        if not arrived:
            self.arrival.set()
        arrived.append(self.account.charge(outcome) if self.account.billed else outcome)
        self.unsaved.add()

    async def _append_responses(self) -> None:
        """Write responses, then hand them to their documents: durable first."""
        batcher = ResponseBatcher()
        while True:
            await self.arrival.wait()
            if not self.all_asked and not self.unsaved.is_full:
                await batcher.wait(len(self.arrived), in_flight=len(self.in_flight))
            self.arrival.clear()
            batch = self._take_arrived()
            if batch:
                with batcher.measure():
                    self._append(batch)
                    await self._flush()
                    self.unsaved.remove(len(batch))
                    await self._distribute(batch)
            elif self.all_asked and not self.arrived:
                return
            if self.all_asked:
                self.arrival.set()

    def _take_arrived(self) -> list[tuple[str, Outcome]]:
        arrived, self.arrived = self.arrived, []
        return [(compute_fingerprint(self.model_digest, outcome.request_id), outcome) for outcome in arrived]

    def _append(self, batch: Sequence[tuple[str, Outcome]]) -> None:
        failures = [(key, outcome) for key, outcome in batch if isinstance(outcome, Failure)]
        responses = [(key, outcome) for key, outcome in batch if isinstance(outcome, Response)]
        if responses:
            self.writes.append(self.journal.add_responses(responses, source="model", deferred=True))
            if self.cache is not None:
                self.cache.add(responses, model=self.plan.model.name)
        if failures:
            self.writes.append(self.journal.add_failures(failures, deferred=True))

    async def _distribute(self, batch: Sequence[tuple[str, Outcome]]) -> None:
        """Hand outcomes to the documents that wait for them, and complete documents to the next stage."""
        complete: dict[str, list[OpenDocument]] = {}
        in_flight = self.in_flight
        self.progress.count([outcome for _, outcome in batch], billed=self.account.billed)
        for fingerprint, outcome in batch:
            for document, index in in_flight.pop(fingerprint):
                document.outcomes[index] = outcome
                if self.calls and (call := self.calls.pop((document.key, index), None)) is not None:
                    if not call.done():
                        call.set_result(outcome)
                    continue
                document.missing -= 1
                if document.missing == 0:
                    complete.setdefault(document.document.task, []).append(document)
        for task, documents in complete.items():
            await self._advance(task, documents)

    # --- responses to verdicts ---------------------------------------------------------------------

    async def _advance(self, task: str, documents: list[OpenDocument]) -> None:
        """Judge complete documents, or continue their dialogues."""
        if not documents:
            return
        planned = self.plan.tasks[task]
        if planned.spec.agent is not None:
            for document in documents:  # each continues at its own speed
                self.group.create_task(self._advance_agents(planned, document))
        elif planned.task.is_dialogue:
            self.group.create_task(self._advance_dialogues(self.plan.tasks[task], documents))
        else:
            await self._judge_when_ready(task, documents)

    async def _advance_dialogues(self, planned: PlannedTask, documents: list[OpenDocument]) -> None:
        """Advance dialogues until they end or wait for the model. A slow helper delays nothing else."""
        task = planned.task.name
        advance = partial(
            advance_dialogues,
            planned,
            random_state=self.random_states[task],
            limit=self.plan.spec.max_rounds,
            model_digest=self.model_digest,
        )
        while documents:
            await self.executor.run(partial(advance, documents))
            await self._judge_when_ready(task, [document for document in documents if not document.missing])
            waiting = [document for document in documents if document.missing]
            if not waiting:
                return
            self._append_documents(waiting)
            documents, pending = self._look_up(waiting)
            _strip_documents(waiting)
            await self.backlog.put_first(self.media.share(pending))

    async def _advance_agents(self, planned: PlannedTask, document: OpenDocument) -> None:
        """Advance the agents of a document until they end or wait for the model."""
        agents, task = document.dialogues, planned.task.name
        if not isinstance(agents, DocumentAgents):  # it could not be rendered
            await self._judge_when_ready(task, [document])
            return
        await self.agents.open(agents)
        if planned.spec.agent is not None and planned.spec.agent.is_external:
            await self._run_external_agents(task, document, agents)
            return
        while document.failure is None:
            following = await self.executor.run(
                partial(
                    self.agents.advance,
                    planned,
                    agents,
                    document.requests,
                    document.outcomes,
                    self.random_states[task],
                )
            )
            if isinstance(following, Failure):
                document.outcomes.append(following)
            if isinstance(following, Failure) or not following:
                break
            add_requests(document, following, self.model_digest)
            self._append_documents([document])
            complete, pending = self._look_up([document])
            _strip_documents([document])
            await self.backlog.put_first(self.media.share(pending))
            if not complete:
                return
        await self.agents.release(agents)
        await self._judge_when_ready(task, [document])

    async def _run_external_agents(self, task: str, document: OpenDocument, agents: DocumentAgents) -> None:
        """Run the programs of a document, one per repeat. Each continues at its own speed."""
        await self.agents.run_programs(agents, partial(self._ask_for_agent, document))
        await self.agents.release(agents)
        if len(agents.results) < len(agents.first) and document.failure is None:
            if self.all_asked or self.ledger.is_exhausted:
                return  # the run was stopped; the next start continues
            message = "the program was stopped before it ended"
            document.outcomes.append(Failure(request_id="", kind="agent error", message=message))
        if len(agents.results) == len(agents.first):
            document = document.select_answered()  # programs dealt with the other calls
        await self._judge_when_ready(task, [document])

    async def _ask_for_agent(self, document: OpenDocument, request: Generate) -> Outcome:
        """Return the outcome of a call of an external agent, which becomes a request of the document."""
        fingerprint, index = compute_fingerprint(self.model_digest, request.id), len(document.requests)
        document.requests += (request,)
        document.fingerprints += (fingerprint,)
        document.outcomes.append(None)
        self._append_documents([document])
        if (known := self._find_responses([fingerprint]).get(fingerprint)) is not None:
            document.outcomes[index] = known
            self.progress.cached += 1
            return known
        if request.prompt.media and "image" not in self.plan.model.traits.abilities:
            message = f"the model `{self.plan.model.name}` accepts no images"
            failure = Failure(request_id=request.id, kind="unsupported", message=message)
            document.outcomes[index] = failure
            self.writes.append(self.journal.add_failures([(fingerprint, failure)], deferred=True))
            return failure
        if self.all_asked or self.ledger.is_exhausted:
            return Failure(request_id=request.id, kind="stopped", message="the run was stopped")
        call: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.calls[document.key, index] = call
        if fingerprint in self.in_flight:
            self.in_flight[fingerprint].append((document, index))
        else:
            self.in_flight[fingerprint] = [(document, index)]
            await self.backlog.put_first([request])
        return await call

    def _stop_calls(self, why: str) -> None:
        """End the calls of external agents that no response will reach."""
        while self.calls:
            _, call = self.calls.popitem()
            if not call.done():
                call.set_result(Failure(request_id="", kind="stopped", message=why))

    async def _judge_when_ready(self, task: str, documents: list[OpenDocument]) -> None:
        """Judge documents now, or hold them until all documents of their task are complete."""
        if not documents:
            return
        if self.plan.tasks[task].is_judged_per_document:
            await self._judge(task, documents)
        else:
            if not self.plan.tasks[task].scorer.panels:  # judges see the prompts
                for document in documents:
                    document.release_prompts()
                    document.document = self._share_field_names(document.document)
            self.held.setdefault(task, []).extend(documents)
            await self.open_documents.remove(task, len(documents))  # they wait for each other

    def _share_field_names(self, document: Document) -> Document:
        """Return the document with the same name objects as others."""
        fields = document.fields
        if type(fields) is not dict:
            return document
        return replace(document, fields=share_names(fields, self.field_names))

    async def _judge(self, task: str, documents: list[OpenDocument]) -> None:
        documents.sort(key=lambda document: document.document.index)
        if self.dispatcher.runs_in_background(self.plan.tasks[task]):
            self.group.create_task(self._judge_now(task, documents))
        else:
            await self._judge_now(task, documents)

    async def _judge_together(self, task: str, documents: list[OpenDocument]) -> None:
        """Judge the documents of a task whose filters look across all of them; score and write them chunk by chunk."""
        if self.dispatcher.runs_in_background(self.plan.tasks[task]):
            await self._judge(task, documents)
            return
        documents.sort(key=lambda document: document.document.index)
        extraction = await self.dispatcher.extract(task, documents)
        for start in range(0, len(documents), CHUNK_SIZE):
            await self._judge_now(task, documents[start : start + CHUNK_SIZE], extraction)
            if len(self.writes) > MAX_PENDING_WRITES:
                await self._flush()

    async def _judge_now(
        self, task: str, documents: list[OpenDocument], extraction: TaskExtraction | None = None
    ) -> None:
        planned = self.plan.tasks[task]
        judged = await self.dispatcher.judge(task, documents, extraction)
        if planned.scorer.panels and not self.plan.spec.predict_only:
            await ask_judges(
                planned, documents, judged, self.services, self.executor, self.dispatcher.read_replies
            )
            for document in documents:
                self.media.release(document.key)
        self.writes.append(self._append_verdicts(task, judged))
        if task in self.stops:
            self.stops[task].add(judged.verdicts)
        counters = self.progress.tasks[task]
        counters.done += len(documents)
        counters.endings.update([ending for _, ending, _ in judged.outcomes])
        counters.add_scores(list_scores(judged, planned.scorer.pipelines[0].name, counters.metric))
        await self.open_documents.remove(task, len(documents))

    def _append_verdicts(self, task: str, judged: JudgedBatch) -> Future[None]:
        return self.journal.add_judged(
            task, judged.outcomes, judged.answers, judged.verdicts, judged.repeats, deferred=True
        )

    async def _flush(self, *, ignore_errors: bool = False) -> None:
        """Wait until everything handed to the journal is on disk, in one transaction."""
        writes, self.writes = self.writes, []
        if not writes:
            return
        try:
            await asyncio.wrap_future(self.journal.flush())
            for write in writes:
                write.result()
        except AssayError:
            if not ignore_errors:
                raise


def _strip_documents(documents: Sequence[OpenDocument]) -> None:
    """Release the media of documents that wait for responses."""
    for document in documents:
        document.requests = strip_media(document.requests)
