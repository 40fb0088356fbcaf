"""`Services` for scoring: LLM judges and programs, scheduled and counted apart from the model.

    request -> (journal? cache?) -> the judge's window -> response -> journal -> caller

Each judge has its own windows, calls in flight and failures. Identical requests are sent once. A response is durable before the
caller gets it, so a resumed run sends no judge request twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from assay.core.errors import AssayError, UnsupportedRequest
from assay.core.fingerprints import digest_json
from assay.core.ports import Model, Traits
from assay.core.progress import JudgeProgress, RunProgress
from assay.core.records.programs import Execution, Program
from assay.core.records.requests import Generate, Request, compute_fingerprint
from assay.core.records.responses import Failure, Outcome, Response
from assay.core.secrets import redact
from assay.engine.planning.records import PlannedJudge
from assay.engine.running.cost_ledger import CostAccount, CostLedger
from assay.engine.running.model_queue import Backlog, UnsavedAnswerLimiter, ask
from assay.engine.running.probe_calls import ProbeCallRecorder
from assay.models.prices import PriceTable
from assay.sandboxes.program_runner import ProgramRunner
from assay.store.cache.response_cache import ResponseSource
from assay.store.journal.journal import Journal

__all__ = ["JudgeBacklog", "ModelServices", "first_error", "open_model"]

E = TypeVar("E", bound=Exception)

MAX_WINDOW_WAIT_S = 0.02
"""How long a window waits to become full: further requests may depend on its replies."""

MAX_QUEUED = 1 << 30
"""The queue of a judge has no limit of its own: the limit on open documents bounds it."""


class ModelServices:
    """Implements `Services` with the queues, windows, journal, cache and counters that the model uses."""

    def __init__(
        self,
        journal: Journal,
        cache: ResponseSource | None,
        progress: RunProgress,
        judges: Mapping[str, PlannedJudge],
        programs: ProgramRunner | None = None,
        ledger: CostLedger | None = None,
        *,
        model: Model | None = None,
    ) -> None:
        models = {"": model} if model is not None else {}
        self._ledger = ledger or CostLedger(PriceTable())
        self.probe_calls = ProbeCallRecorder(
            journal, {**models, **{name: judge.model for name, judge in judges.items()}}, self._ledger
        )
        self._programs = programs
        self._journal = journal
        self._cache = cache
        self._progress = progress
        self._clients: dict[str, _JudgeClient] = {}
        self._writes: set[asyncio.Task[None]] = set()
        self._closed = False
        self._needed = [name for name, judge in judges.items() if judge.needed]
        for name, judge in judges.items():
            self.add_judge(name, judge.model, judge.identity)

    def add_judge(self, name: str, model: Model, identity: Mapping[str, str]) -> str:
        """Add a judge and return its name. It is opened by its first request or by `open`."""
        digest, seat, number = digest_json(dict(identity)), name, 1
        while seat in self._clients and self._clients[seat].digest != digest:
            number += 1  # another judge has this name
            seat = f"{name} ({number})"
        if seat not in self._clients:
            self._clients[seat] = _JudgeClient(seat, model, digest, self, self._ledger.account(model))
            self.probe_calls.add(seat, model)
        return seat

    def traits(self, name: str) -> Traits:
        """Return the traits of a judge."""
        return self._clients[name].model.traits

    async def open(self) -> None:
        """Open the judges that metrics need, so that a judge that cannot be opened stops the run at the start."""
        for name in self._needed:
            await self._clients[name].open()

    async def ask(self, model: str, request: Request) -> Outcome:
        """Return the reply of a judge, from the journal, the cache or the judge itself."""
        if not isinstance(request, Generate):
            raise UnsupportedRequest(f"a judge answers Generate requests, not {type(request).__name__}")
        client = self._clients[model]
        counters = self._progress.judges.setdefault(model, JudgeProgress())
        mark = compute_fingerprint(client.digest, request.id)
        self.run_in_background(_await_write(self._journal.add_judge_request(request, mark, judge=model)))
        if (known := self._look_up(mark)) is not None:
            counters.cached += 1
            return known
        if self._closed:
            return Failure(request_id=request.id, kind="stopped", message="the run was stopped")
        waiting = client.waiting.get(mark) or client.send(request, mark, counters)
        return await asyncio.shield(waiting)

    async def execute(self, program: Program) -> Execution:
        """Execute a program in the run's sandbox.

        Raises:
            UnsupportedRequest: The run does not allow programs.
        """
        if self._programs is None:
            raise UnsupportedRequest("this run has no sandbox for programs")
        return await self._programs.execute(program)

    async def close(self) -> None:
        """Stop sending requests, write what arrived, close the judges."""
        self._closed = True
        for client in self._clients.values():
            await client.close()
        self.run_in_background(self.probe_calls.record())
        await asyncio.gather(*self._writes, return_exceptions=True)

    # --- for the judge clients ---------------------------------------------------------------------

    def _look_up(self, mark: str) -> Response | None:
        found = self._journal.find([mark])
        if not found and self._cache is not None and (found := self._cache.find([mark])):
            self.run_in_background(_await_write(self._journal.add_responses(found.items(), source="cache")))
        return found.get(mark)

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in the background and keep a reference until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._writes.add(task)
        task.add_done_callback(self._on_write_done)

    def _on_write_done(self, task: asyncio.Task[None]) -> None:
        self._writes.discard(task)
        if not task.cancelled():
            task.exception()  # the callers of `ask` get the error of the journal

    async def write_outcomes(self, client: _JudgeClient, arrived: Sequence[tuple[str, Outcome]]) -> None:
        """Write outcomes, then deliver them: durable first."""
        responses = [(mark, outcome) for mark, outcome in arrived if isinstance(outcome, Response)]
        failures = [(mark, outcome) for mark, outcome in arrived if isinstance(outcome, Failure)]
        try:
            if responses:
                await asyncio.wrap_future(
                    self._journal.add_responses(responses, source="judge", judge=client.name)
                )
                if self._cache is not None:
                    self._cache.add(responses, model=client.model.name)
            if failures:
                await asyncio.wrap_future(self._journal.add_failures(failures))
        except AssayError as error:
            client.fail_all(error)
            raise
        self._count(self._progress.judges[client.name], client, [outcome for _, outcome in arrived])
        for mark, outcome in arrived:
            client.deliver(mark, outcome)

    def _count(self, counters: JudgeProgress, client: _JudgeClient, outcomes: Sequence[Outcome]) -> None:
        counters.in_flight -= len(outcomes)
        for outcome in outcomes:
            if isinstance(outcome, Failure):
                counters.failed += 1
                continue
            counters.asked += 1
            counters.tokens.add(outcome.usage, billed=client.account.billed)


class _JudgeClient:
    """Sends the requests for one judge."""

    def __init__(
        self, name: str, model: Model, digest: str, services: ModelServices, account: CostAccount
    ) -> None:
        self.name = name
        self.account = account
        self.model = model
        self.digest = digest
        self.waiting: dict[str, asyncio.Future[Outcome]] = {}
        """Fingerprint -> the future of its outcome."""

        self._services = services
        self._fingerprints: dict[str, str] = {}
        """Request id -> fingerprint, for requests in flight."""

        self._sending: set[asyncio.Task[None]] = set()
        """Requests that wait for the budget or for the queue."""

        self._backlog = JudgeBacklog(MAX_QUEUED)
        self._arrived: list[tuple[str, Outcome]] = []
        self._unsaved = UnsavedAnswerLimiter(model)
        self._writing = False
        self._work: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._broken: AssayError | None = None

    async def open(self) -> None:
        """Open the judge once."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        await open_model(self.model)
        await self._services.probe_calls.record()

    def send(self, request: Generate, mark: str, counters: JudgeProgress) -> asyncio.Future[Outcome]:
        """Send a request as soon as the budget admits it, and return the future of its outcome.

        A task of its own does so, because other callers may wait for the same outcome if this one is cancelled.
        """
        loop = asyncio.get_running_loop()
        waiting = self.waiting[mark] = loop.create_future()
        task = loop.create_task(self._send(request, mark, waiting, counters))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        return waiting

    async def _send(
        self, request: Generate, mark: str, waiting: asyncio.Future[Outcome], counters: JudgeProgress
    ) -> None:
        try:
            admitted = await self.account.admit([request])
        except Exception as error:  # noqa: BLE001 - the adapter of the judge may be a plugin
            if not waiting.done():
                self.waiting.pop(mark, None)
                waiting.set_exception(error)
            return
        if waiting.done():  # all requests failed meanwhile
            self.account.release(request.id)
        elif not admitted:
            message = "the budget is exhausted (--max_cost)"
            self.deliver(mark, Failure(request_id=request.id, kind="cost limit", message=message))
        else:
            counters.in_flight += 1
            await self._put(request, mark)

    async def _put(self, request: Generate, mark: str) -> None:
        if self._broken is not None:
            self._fail_request(request.id, mark)
            return
        self._fingerprints[request.id] = mark
        if self._work is None:
            self._work = asyncio.get_running_loop().create_task(self._serve())
        await self._backlog.put([request])

    async def _serve(self) -> None:
        try:
            await self.open()
        except AssayError as error:
            self._broken = error
            await self._backlog.close()
            self.account.release_all()  # nothing was sent
            self.fail_all(error)
            return
        try:
            await ask(self.model, self._backlog, self._receive, self._unsaved)
        except* Exception as several:  # noqa: BLE001 - it failed too often: its documents wait for the next start
            first = first_error(several)
            message = redact(f"the model `{self.model.name}` failed: {type(first).__name__}: {first}")
            self._broken = first if isinstance(first, AssayError) else AssayError(message)
            await self._backlog.close()  # nothing reads the queue any more
            for request_id, mark in list(self._fingerprints.items()):
                self._fail_request(request_id, mark)

    def _receive(self, outcome: Outcome) -> None:
        charged = self.account.charge(outcome)
        if (mark := self._fingerprints.pop(outcome.request_id, None)) is not None:
            self._record(mark, charged)

    def _record(self, mark: str, outcome: Outcome) -> None:
        self._arrived.append((mark, outcome))
        self._unsaved.add()
        if not self._writing:
            self._writing = True
            self._services.run_in_background(self._write())

    async def _write(self) -> None:
        """Write the outcomes that arrived, and those that arrive meanwhile."""
        try:
            while self._arrived:
                batch, self._arrived = self._arrived, []
                await self._services.write_outcomes(self, batch)
                self._unsaved.remove(len(batch))
        finally:
            self._writing = False

    def _fail_request(self, request_id: str, mark: str) -> None:
        """Fail a request of a judge that failed too often in this start."""
        self._fingerprints.pop(request_id, None)
        message = str(self._broken.what if self._broken else "")
        failure = Failure(request_id=request_id, kind="model error", message=message)
        self._record(mark, self.account.charge(failure))

    def deliver(self, mark: str, outcome: Outcome) -> None:
        """Complete the future of an outcome."""
        waiting = self.waiting.pop(mark, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(outcome)

    def fail_all(self, error: AssayError) -> None:
        """Fail all requests: the run cannot continue."""
        for waiting in self.waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
                waiting.exception()  # marks it as retrieved: the caller raises it
        self.waiting.clear()

    async def close(self) -> None:
        """Close the judge."""
        await self._backlog.close()
        tasks = [task for task in (self._work, self._opening, *self._sending) if task is not None]
        for task in tasks:
            task.cancel()
        opened = self._opening is not None and self._opening.done() and not _has_failed(self._opening)
        await asyncio.gather(*tasks, return_exceptions=True)
        self.account.release_all()  # requests for other judges may wait for the budget
        self.fail_all(AssayError("the run was stopped", hint="repeat the command to resume"))
        if opened:
            await self.model.close()


class JudgeBacklog(Backlog):
    """The queue of a judge. Hands out windows that are not full after a short wait."""

    async def take(self, count: int) -> list[Request]:
        async with self._changed:
            while True:
                await self._changed.wait_for(lambda: bool(self._waiting) or self._closed)
                if len(self._waiting) < count and not self._closed:
                    await self._wait_for_full_window(count)
                if self._waiting or self._closed:
                    break
            window = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
            self._changed.notify_all()
            return window

    async def _wait_for_full_window(self, count: int) -> None:
        with suppress(TimeoutError):
            # not `wait_for`: its task would keep the lock if this one is cancelled
            async with asyncio.timeout(MAX_WINDOW_WAIT_S):
                await self._changed.wait_for(lambda: len(self._waiting) >= count or self._closed)


async def open_model(model: Model) -> None:
    """Open a model; an exception becomes an error with the model's name.

    Raises:
        AssayError: The model cannot be opened.
    """
    try:
        await model.open()
    except AssayError:
        raise
    except Exception as error:
        raise AssayError(
            redact(f"the model `{model.name}` cannot be opened: {type(error).__name__}: {error}"),
            hint="nothing was asked yet; fix it and repeat the command",
        ) from error


async def _await_write(write: Future[None]) -> None:
    await asyncio.wrap_future(write)


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.cancelled() or task.exception() is not None


def first_error(several: BaseExceptionGroup[E]) -> E:
    """Return the first error of an exception group: it stopped the others."""
    first = several.exceptions[0]
    return first_error(first) if isinstance(first, BaseExceptionGroup) else first
