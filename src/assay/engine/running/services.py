"""What scoring may ask of the world: judges, asked as the model is, and counted apart from it.

    request -> (journal? cache?) -> the judge's window -> response -> journal -> whoever asked

A judge has its own windows, its own calls in flight and its own failures. Identical requests are asked once. A response
is durable before anybody hears of it, so a run that is stopped and continued asks no judge twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from assay.core.errors import AssayError, UnsupportedRequest
from assay.core.fingerprints import digest_json
from assay.core.ports import Model, Traits
from assay.core.programs import Execution, Program
from assay.core.progress import JudgeProgress, RunProgress
from assay.core.requests import Generate, Request, compute_fingerprint
from assay.core.responses import Failure, Outcome, Response
from assay.core.secrets import redact
from assay.engine.planning.records import PlannedJudge
from assay.engine.running.cost_ledger import CostAccount, CostLedger
from assay.engine.running.model_queue import Backlog, ask
from assay.models.prices import PriceTable
from assay.sandboxes.program_runner import ProgramRunner
from assay.store.cache.response_cache import ResponseSource
from assay.store.journal.journal import Journal

__all__ = ["ModelServices", "first_error", "open_model"]

MAX_WINDOW_WAIT_S = 0.02
"""How long a window waits to become full. The rest of it may depend on its own answers."""

MAX_QUEUED = 1 << 30
"""Requests that may wait for a judge: whoever asks holds its document open, so the run itself bounds them."""


class ModelServices:
    """`Services` over the same machinery as the model: backlog, windows, journal, cache, counters."""

    def __init__(
        self,
        journal: Journal,
        cache: ResponseSource | None,
        progress: RunProgress,
        judges: Mapping[str, PlannedJudge],
        programs: ProgramRunner | None = None,
        ledger: CostLedger | None = None,
    ) -> None:
        self._programs = programs
        self._ledger = ledger or CostLedger(PriceTable())
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
        """Make a model known as a judge, and say under which name. It is opened when first asked, or by `open`."""
        digest, seat, number = digest_json(dict(identity)), name, 1
        while seat in self._clients and self._clients[seat].digest != digest:
            number += 1  # another judge is called that
            seat = f"{name} ({number})"
        if seat not in self._clients:
            self._clients[seat] = _JudgeClient(seat, model, digest, self, self._ledger.account(model))
        return seat

    def traits(self, name: str) -> Traits:
        """What a judge can do."""
        return self._clients[name].model.traits

    async def open(self) -> None:
        """Open the judges that will be asked, so that one that cannot be opened is known before the first request."""
        for name in self._needed:
            await self._clients[name].open()

    async def ask(self, model: str, request: Request) -> Outcome:
        """What the judge of this name says to a request: remembered, or asked."""
        if not isinstance(request, Generate):
            raise UnsupportedRequest(f"a judge is asked for texts, not for a {type(request).__name__}")
        desk = self._clients[model]
        counters = self._progress.judges.setdefault(model, JudgeProgress())
        mark = compute_fingerprint(desk.digest, request.id)
        self.run_in_background(_await_write(self._journal.add_judge_request(request, mark, judge=model)))
        if (known := self._look_up(mark)) is not None:
            counters.cached += 1
            return known
        if self._closed:
            return Failure(request_id=request.id, kind="stopped", message="the run was stopped")
        waiting = desk.waiting.get(mark)
        if waiting is None:
            if not await desk.account.admit([request]):
                message = "the run may spend no more (--max_cost)"
                return Failure(request_id=request.id, kind="cost limit", message=message)
            waiting = desk.waiting[mark] = asyncio.get_running_loop().create_future()
            counters.in_flight += 1
            await desk.put(request, mark)
        return await asyncio.shield(waiting)

    async def execute(self, program: Program) -> Execution:
        """What becomes of a program in the run's sandbox.

        Raises:
            UnsupportedRequest: The run does not allow programs.
        """
        if self._programs is None:
            raise UnsupportedRequest("this run has no sandbox to execute programs in")
        return await self._programs.execute(program)

    async def close(self) -> None:
        """Stop asking; what has arrived is written; judges that were opened are closed."""
        self._closed = True
        for desk in self._clients.values():
            await desk.close()
        await asyncio.gather(*self._writes, return_exceptions=True)

    # --- for the desks -----------------------------------------------------------------------------

    def _look_up(self, mark: str) -> Response | None:
        found = self._journal.find([mark])
        if not found and self._cache is not None and (found := self._cache.find([mark])):
            self.run_in_background(_await_write(self._journal.add_responses(found.items(), source="cache")))
        return found.get(mark)

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Let it be done beside the rest, and hold on to it until it is."""
        task = asyncio.get_running_loop().create_task(work)
        self._writes.add(task)
        task.add_done_callback(self._on_write_done)

    def _on_write_done(self, task: asyncio.Task[None]) -> None:
        self._writes.discard(task)
        if not task.cancelled():
            task.exception()  # a journal that cannot be written says so to whoever waits for a response

    async def write_outcomes(self, desk: _JudgeClient, arrived: Sequence[tuple[str, Outcome]]) -> None:
        """Durable first, then told to whoever waits."""
        responses = [(mark, outcome) for mark, outcome in arrived if isinstance(outcome, Response)]
        failures = [(mark, outcome) for mark, outcome in arrived if isinstance(outcome, Failure)]
        try:
            if responses:
                await asyncio.wrap_future(
                    self._journal.add_responses(responses, source="judge", judge=desk.name)
                )
                if self._cache is not None:
                    self._cache.add(responses, model=desk.model.name)
            if failures:
                await asyncio.wrap_future(self._journal.add_failures(failures))
        except AssayError as error:
            desk.fail_all(error)
            raise
        self._count(self._progress.judges[desk.name], desk, [outcome for _, outcome in arrived])
        for mark, outcome in arrived:
            desk.deliver(mark, outcome)

    def _count(self, counters: JudgeProgress, desk: _JudgeClient, outcomes: Sequence[Outcome]) -> None:
        counters.in_flight -= len(outcomes)
        for outcome in outcomes:
            if isinstance(outcome, Failure):
                counters.failed += 1
                continue
            counters.asked += 1
            counters.tokens.add(outcome.usage, billed=desk.account.billed)


class _JudgeClient:
    """One judge at work."""

    def __init__(
        self, name: str, model: Model, digest: str, services: ModelServices, account: CostAccount
    ) -> None:
        self.name = name
        self.account = account
        self.model = model
        self.digest = digest
        self.waiting: dict[str, asyncio.Future[Outcome]] = {}
        """Fingerprint -> who waits for it."""

        self._services = services
        self._fingerprints: dict[str, str] = {}
        """Request id -> fingerprint, of requests on their way."""

        self._backlog = _JudgeBacklog(MAX_QUEUED)
        self._arrived: list[tuple[str, Outcome]] = []
        self._writing = False
        self._work: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._broken: AssayError | None = None

    async def open(self) -> None:
        """Load or connect, once, however many ask for it."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(open_model(self.model))
        await asyncio.shield(self._opening)

    async def put(self, request: Generate, mark: str) -> None:
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
            self.fail_all(error)
            return
        try:
            await ask(self.model, self._backlog, self._receive)
        except* AssayError as several:  # it broke again and again: its documents wait for the next start
            self._broken = first_error(several)
            await self._backlog.close()  # nobody takes from it any more, so nobody may wait for room in it
            for request_id, mark in list(self._fingerprints.items()):
                self._fail_request(request_id, mark)

    def _receive(self, outcome: Outcome) -> None:
        self._record(self._fingerprints.pop(outcome.request_id), self.account.charge(outcome))

    def _record(self, mark: str, outcome: Outcome) -> None:
        self._arrived.append((mark, outcome))
        if not self._writing:
            self._writing = True
            self._services.run_in_background(self._write())

    async def _write(self) -> None:
        """Write what has arrived, and what arrives meanwhile."""
        try:
            while self._arrived:
                batch, self._arrived = self._arrived, []
                await self._services.write_outcomes(self, batch)
        finally:
            self._writing = False

    def _fail_request(self, request_id: str, mark: str) -> None:
        """A judge that was given up is asked nothing more in this start."""
        self._fingerprints.pop(request_id, None)
        message = str(self._broken.what if self._broken else "")
        failure = Failure(request_id=request_id, kind="model error", message=message)
        self._record(mark, failure)

    def deliver(self, mark: str, outcome: Outcome) -> None:
        """Hand an outcome to whoever waits for it."""
        waiting = self.waiting.pop(mark, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(outcome)

    def fail_all(self, error: AssayError) -> None:
        """Nobody will get an answer: the run cannot go on."""
        for waiting in self.waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
                waiting.exception()  # whoever waits hears of it; nobody else has to
        self.waiting.clear()

    async def close(self) -> None:
        """Let go of the judge."""
        await self._backlog.close()
        tasks = [task for task in (self._work, self._opening) if task is not None]
        for task in tasks:
            task.cancel()
        opened = self._opening is not None and self._opening.done() and not _has_failed(self._opening)
        await asyncio.gather(*tasks, return_exceptions=True)
        self.fail_all(AssayError("the run was stopped", hint="repeat the command to go on"))
        if opened:
            await self.model.close()


class _JudgeBacklog(Backlog):
    """Requests for a judge. A window that does not fill up goes as it is: more may only come once it is answered."""

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
            # not `wait_for`: that waits in a task of its own, which would keep the lock if this one is cancelled
            async with asyncio.timeout(MAX_WINDOW_WAIT_S):
                await self._changed.wait_for(lambda: len(self._waiting) >= count or self._closed)


async def open_model(model: Model) -> None:
    """Open a model; what it raises is an error with the model's name.

    Raises:
        AssayError: It cannot be opened.
    """
    try:
        await model.open()
    except AssayError:
        raise
    except Exception as error:
        raise AssayError(
            redact(f"the model `{model.name}` cannot be opened: {type(error).__name__}: {error}"),
            hint="nothing was asked; put it right and repeat the command",
        ) from error


async def _await_write(write: Future[None]) -> None:
    await asyncio.wrap_future(write)


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.cancelled() or task.exception() is not None


def first_error(several: BaseExceptionGroup[AssayError]) -> AssayError:
    """The error behind a group of them: one mistake stops everything, so the first one is the reason."""
    first = several.exceptions[0]
    return first_error(first) if isinstance(first, BaseExceptionGroup) else first
