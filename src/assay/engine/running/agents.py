"""Advance the agents of documents: sessions with their events in the journal, user models and worker threads.

    event loop:   responses -> AgentRuntime.advance(document)  (on the executor, one document at a time)
    executor:     AgentSession -> tools -> journal (waits, other documents continue) -> next request

The events of an agent are read from the journal when its document is opened. Requests and responses travel like those of
any dialogue.
"""

from __future__ import annotations

import asyncio
import os
import threading
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from assay.core.errors import AssayError, MissingPackage, TaskError
from assay.core.fingerprints import digest_text
from assay.core.records.agents import AgentAnswer, AgentEvent, AgentResult, AgentSpec, UserSpec
from assay.core.records.documents import Document
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Outcome, Response
from assay.core.secrets import redact
from assay.engine.planning.records import PlannedTask
from assay.engine.running.services import ModelServices
from assay.store.journal.journal import Journal
from assay.tasks.prompts.field_compilers import compile_text, copy_fields
from assay.tasks.task import Task
from assay.user_code.executor import Executor
from assay.user_code.random_state import TaskRandomState
from assay.user_code.timeouts import UserCodeTimeout, current_timer

if TYPE_CHECKING:  # loaded with the first agent: most runs have none
    from assay.agents.external.external_session import ExternalSession
    from assay.agents.session import AgentSession
    from assay.agents.tools import EnvironmentContext
    from assay.agents.users import SimulatedUser

__all__ = ["MAX_OPEN_AGENTS", "AgentRuntime", "DocumentAgents"]

T = TypeVar("T")

MAX_OPEN_AGENTS = 64
"""Documents whose environments are open at the same time."""

MAX_PROGRAMS = max(2, os.cpu_count() or 1)
"""Programs of external agents that run at the same time."""

ABANDON_AFTER_S = 5.0
"""Time for a tool in a thread to end after its limit. Code that does not return to Python cannot be stopped."""

AGENT_FOLDER = "agents"
"""The folder inside the folder of a run where environments keep files."""

ReadEvents = Callable[[str, int], Mapping[int, Sequence[AgentEvent]]]


class DocumentAgents:
    """The agents of one document, one per repeat. They advance together, turn by turn."""

    def __init__(self, task: Task, document: Document, first: Sequence[Request]) -> None:
        self.task, self.document = task, document
        self.first: list[Generate] = [request for request in first if isinstance(request, Generate)]
        self.sessions: list[AgentSession] = []
        self.programs: list[ExternalSession] = []
        """The sessions of external agents, instead of `sessions`."""

        self.responses: list[list[Response]] = [[] for _ in self.first]
        self.processed = 0
        self.events: Mapping[int, Sequence[AgentEvent]] | None = None

    @property
    def results(self) -> list[AgentResult]:
        """The results of the agents that ended."""
        sessions: list[AgentSession | ExternalSession] = [*self.sessions, *self.programs]
        return [session.result for session in sessions if session.result is not None]

    @property
    def answers(self) -> list[AgentAnswer]:
        """The answers of the agents that ended, with their results."""
        return [AgentAnswer.from_result(result) for result in self.results]

    def close(self) -> None:
        """Close the environments."""
        for session in self.sessions:
            session.close()
        for program in self.programs:
            program.close()


class AgentRuntime:
    """What the agents of a run share."""

    def __init__(
        self,
        journal: Journal,
        folder: Path,
        services: ModelServices,
        executor: Executor,
        seed: int,
        read_recorded: ReadEvents | None = None,
    ) -> None:
        """`read_recorded`: reads the events of another run, whose agents are scored again. No tool runs then."""
        self._journal, self._folder, self._services = journal, folder, services
        self._executor, self._seed = executor, seed
        self._read_recorded = read_recorded
        self._loop = asyncio.get_running_loop()
        self._is_repaired: bool | None = None
        """Whether events may be missing from the journal; None before the first document is opened."""

        self._slots = asyncio.Semaphore(MAX_OPEN_AGENTS)
        self._program_slots = asyncio.Semaphore(MAX_PROGRAMS)
        self._open: list[DocumentAgents] = []
        self._pin_lock = asyncio.Lock()
        self._program_pins: dict[str, dict[str, Any]] = {}
        self._pins: dict[str, dict[str, Any]] = {}
        """Task -> what its environments pinned. The context of every agent of the task has the same mapping."""

    async def open(self, agents: DocumentAgents) -> None:
        """Wait until another document may be open, and read its events."""
        if agents.events is not None:
            return
        await self._slots.acquire()
        self._open.append(agents)
        if self._is_repaired is None:
            self._is_repaired = "repaired" in self._journal.read_facts()
        name, index = agents.task.name, agents.document.index
        if name not in self._pins:  # read here: only the thread of the event loop reads the journal
            known = self._journal.read_agent_pins(name) if self._read_recorded is None else []
            self._pins[name] = dict(known[0]) if known else {}
        if self._read_recorded is None:
            agents.events = self._journal.read_agent_events(name, index)
            return
        agents.events = self._read_recorded(name, index)
        for repeat, events in agents.events.items():
            self._journal.add_agent_events(name, index, repeat, events)

    async def release(self, agents: DocumentAgents) -> None:
        """Close the environments of a document, and let another document open its own."""
        if len(agents.results) < len(agents.sessions) + len(
            agents.programs
        ):  # a request failed; agents that ended are closed
            await self._executor.run(agents.close)
        self._open.remove(agents)
        self._slots.release()

    def close(self) -> None:
        """Close the environments of a run that stops early."""
        while self._open:
            self._open.pop().close()

    def advance(
        self,
        planned: PlannedTask,
        agents: DocumentAgents,
        requests: Sequence[Request],
        outcomes: Sequence[Outcome | None],
        random_state: TaskRandomState,
    ) -> list[Generate] | Failure:
        """Return the next requests of a document; none at the end; a failure if it cannot continue. On the executor."""
        for request, outcome in zip(requests[agents.processed :], outcomes[agents.processed :], strict=True):
            if isinstance(outcome, Failure):
                agents.close()
                return outcome
            assert outcome is not None
            agents.responses[request.repeat].append(outcome)
        agents.processed = len(requests)
        following: list[Generate] = []
        try:
            if not agents.sessions:
                agents.sessions = [self._make_session(planned, agents, first) for first in agents.first]
            for first, session in zip(agents.first, agents.sessions, strict=True):
                if session.result is not None:
                    continue
                answered = agents.responses[first.repeat]
                random_state.seed_for_turn(agents.document.index, first.repeat, len(answered))
                step = session.advance(answered)
                if isinstance(step, Generate):
                    following.append(step)
        except MissingPackage:
            agents.close()
            raise
        except Exception as error:  # noqa: BLE001 - code of the task: a solver, a user function
            agents.close()
            why = str(error) if isinstance(error, AssayError) else traceback.format_exc(limit=-3)
            return Failure(request_id="", kind="agent error", message=redact(why))
        return following

    # --- external agents ---------------------------------------------------------------------------

    async def run_programs(
        self, agents: DocumentAgents, ask: Callable[[Generate], Awaitable[Outcome]]
    ) -> None:
        """Run the programs of a document, one per repeat, until all have ended. `ask` sends a request of the run.

        Raises:
            TaskError: The program cannot be run.
        """
        await self._pin_program(agents.task)
        agents.programs = [self._make_external_session(agents, first, ask) for first in agents.first]
        async with asyncio.TaskGroup() as group:
            for session in agents.programs:
                group.create_task(self._run_program(session))

    async def _pin_program(self, task: Task) -> None:
        """Digest the files of the program once per run.

        Raises:
            AssayError: They changed since the run was started.
        """
        from assay.agents.external.external_session import describe_program

        async with self._pin_lock:
            if task.name in self._program_pins or self._read_recorded is not None:
                return
            assert task.spec.agent is not None
            pins = await asyncio.to_thread(describe_program, task.spec.agent)
            known = self._pins[task.name]
            if known and known != pins:
                raise AssayError(
                    f"{task.name}: the files of the external agent changed since the run was started",
                    where=task.spec.place("solver"),
                    hint="start a new run with another `--name`, or restore the files",
                )
            self._program_pins[task.name] = pins

    async def _run_program(self, session: ExternalSession) -> None:
        async with self._program_slots:
            try:
                await asyncio.wrap_future(_start_thread(session.run, 0.0))
            except asyncio.CancelledError:
                session.close()
                raise

    def _make_external_session(
        self, agents: DocumentAgents, first: Generate, ask: Callable[[Generate], Awaitable[Outcome]]
    ) -> ExternalSession:
        from assay.agents.external.external_session import ExternalSession

        task, loop = agents.task, self._loop
        spec = task.spec.agent
        assert spec is not None
        context, log = self._make_context(agents, first.repeat)

        async def send(request: Generate) -> Outcome:
            return await ask(request)

        def ask_from_thread(request: Generate) -> Outcome:
            try:
                return asyncio.run_coroutine_threadsafe(send(request), loop).result()
            except (AssayError, RuntimeError, CancelledError) as problem:  # the run stops
                return Failure(request_id=request.id, kind="stopped", message=str(problem))

        return ExternalSession(
            spec,
            first,
            context,
            log,
            ask_from_thread,
            syntax=task.tool_syntax,
            chat=task.rendering.chat_messages,
            recorded=self._read_recorded is not None,
            pins=self._program_pins.get(task.name),
            where=task.spec.place("solver"),
        )

    # --- sessions ----------------------------------------------------------------------------------

    def _make_context(self, agents: DocumentAgents, repeat: int) -> tuple[EnvironmentContext, _JournalLog]:
        """Return what the environment of an agent gets, and its events."""
        from assay.agents.tools import EnvironmentContext

        task, document = agents.task, agents.document
        spec = task.spec.agent
        assert spec is not None and agents.events is not None
        seed = self._make_seed(task, document, repeat)
        name = f"{document.index}-{repeat}"
        context = EnvironmentContext(
            document=copy_fields(document.fields),
            repeat=repeat,
            seed=seed,
            folder=self._folder / AGENT_FOLDER / task.name.replace("/", "_") / name,
            options=spec.environment_options,
            pins=self._pins[task.name],
        )
        log = _JournalLog(
            agents.events.get(repeat, ()),
            lambda event: self._journal.add_agent_events(task.name, document.index, repeat, [event]),
            self._executor.wait,
        )
        return context, log

    def _make_seed(self, task: Task, document: Document, repeat: int) -> int:
        return int(digest_text(str(self._seed), task.name, str(document.index), str(repeat))[:8], 16)

    def _make_session(self, planned: PlannedTask, agents: DocumentAgents, first: Generate) -> AgentSession:
        from assay.agents.session import AgentSession

        task, document, repeat = agents.task, agents.document, first.repeat
        spec = task.spec.agent
        assert spec is not None
        context, log = self._make_context(agents, repeat)
        return AgentSession(
            spec,
            first,
            context,
            log,
            self,
            self._make_user(planned, spec, document, repeat, context.seed),
            syntax=task.tool_syntax,
            chat=task.rendering.chat_messages,
            parallel=task.spec.parallel_tool_calls,
            recorded=self._read_recorded is not None,
            repaired=bool(self._is_repaired),
            where=task.spec.place("solver"),
        )

    def _make_user(
        self, planned: PlannedTask, spec: AgentSpec, document: Document, repeat: int, seed: int
    ) -> SimulatedUser | None:
        user = spec.user
        if user is None:
            return None
        from assay.agents.users import ModelUser, ScriptedUser

        task, fields = planned.task, copy_fields(document.fields)
        if user.script is not None:
            return ScriptedUser(self.run_code(lambda: _read_script(user, fields), None), user.stop)
        if callable(user.instructions):
            instructions = str(self.run_code(lambda: user.instructions(fields), None))
        else:
            render = compile_text(
                user.instructions, task.columns, has_choices=False, where=f"{user.where}.instructions"
            )
            instructions = str(render(fields))
        if user.seeds:
            repeat %= user.seeds
            seed = self._make_seed(task, document, repeat)
        return ModelUser(
            user,
            instructions,
            self._ask_user(planned.user_model),
            name=planned.user_model,
            chat="chat" in self._services.traits(planned.user_model).abilities,
            seed=seed,
            task=task.name,
            document=document.index,
            repeat=repeat,
        )

    def _ask_user(self, model: str) -> Callable[[Generate], Outcome]:
        def ask(request: Generate) -> Outcome:
            call = asyncio.run_coroutine_threadsafe(self._services.ask(model, request), self._loop)
            return self._executor.wait(call)

        return ask

    # --- SessionServices ---------------------------------------------------------------------------

    def add_pins(self, context: EnvironmentContext, pins: Mapping[str, Any]) -> None:
        """Keep what the first environment of a task pinned. Later ones must agree, also when the run is resumed."""
        if isinstance(context.pins, dict) and not context.pins:
            context.pins.update(pins)

    def run_code(self, function: Callable[[], T], limit_s: float | None) -> T:
        """Run code of the task in this thread; None: with the time limit of the run."""
        return _run_timed(function, limit_s)

    def run_in_thread(self, function: Callable[[], T], limit_s: float) -> T:
        """Run a tool in a thread; other documents continue meanwhile. A thread that cannot be stopped is abandoned."""
        return self._executor.wait(_start_thread(function, limit_s))


class _JournalLog:
    """The events of one agent."""

    def __init__(
        self,
        events: Sequence[AgentEvent],
        write: Callable[[AgentEvent], Future[None]],
        wait: Callable[[Future[None]], None],
    ) -> None:
        self._events, self._write, self._wait = events, write, wait

    def read(self) -> Sequence[AgentEvent]:
        return self._events

    def append(self, event: AgentEvent, *, wait: bool = True) -> None:
        written = self._write(event)
        if wait:
            self._wait(written)


def _run_timed(function: Callable[[], T], limit_s: float | None) -> T:
    timer = current_timer()
    if limit_s is None:
        with timer:
            return function()
    with timer.override_limit(limit_s), timer:
        return function()


def _start_thread(function: Callable[[], T], limit_s: float) -> Future[T]:
    """Run a function in a daemon thread. The future is done soon after the limit, also if the function never returns."""
    result: Future[T] = Future()

    def abandon() -> None:
        with suppress(InvalidStateError):
            result.set_exception(UserCodeTimeout(f"the code did not stop after its limit of {limit_s:g} s"))

    def run() -> None:
        try:
            value = _run_timed(function, limit_s)
        except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
            with suppress(InvalidStateError):
                result.set_exception(error)
        else:
            with suppress(InvalidStateError):
                result.set_result(value)

    if limit_s > 0:
        timer = threading.Timer(limit_s + ABANDON_AFTER_S, abandon)
        timer.daemon = True
        result.add_done_callback(lambda _: timer.cancel())
        timer.start()
    threading.Thread(target=run, name="assay-tool", daemon=True).start()
    return result


def _read_script(user: UserSpec, fields: Mapping[str, Any]) -> list[str]:
    """Return the lines of a scripted user: a list, a column or a function of the document."""
    script = user.script
    if callable(script):
        script = script(fields)
    elif isinstance(script, str):
        script = fields.get(script)
    if not isinstance(script, (list, tuple)):
        raise TaskError(
            f"the script of the user must be a list of texts, not {script!r:.60}",
            where=f"{user.where}.script",
        )
    return [str(line) for line in script]
