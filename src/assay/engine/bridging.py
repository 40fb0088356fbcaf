"""Run external agents on documents: a sandbox, a bridge and checks for each, with the queue, journal and budget of a run.

    document -> sandbox session -> program -> bridge -> ModelServices -> model
                                      |                     |
                                      +-> files -> checks   +-> journal (durable before the program gets the answer)

A finished document is a file in the folder. A document that was interrupted starts again; calls that the program repeats are
answered from the journal.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from assay.agents.external.bridge_protocols import BridgeCall
from assay.agents.external.bridge_server import BridgeServer
from assay.agents.external.external_agent import (
    EXTERNAL_FAULT_ENDS,
    AgentProgram,
    ExternalResult,
    run_external_agent,
)
from assay.agents.external.program_files import digest_files
from assay.agents.prompts import adapt_request
from assay.agents.sandbox_environment import CheckError, DocumentSetupError, SandboxEnvironment
from assay.agents.tools import EnvironmentContext
from assay.core.errors import AssayError, OutputError, UnsupportedRequest
from assay.core.fingerprints import digest_json
from assay.core.ports import Model
from assay.core.progress import RunProgress
from assay.core.records.messages import Prompt
from assay.core.records.programs import SandboxError
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Failure, Outcome
from assay.core.records.tools import CALL_SYNTAXES
from assay.engine.planning.records import PlannedJudge
from assay.engine.running.cost_ledger import CostLedger
from assay.engine.running.services import ModelServices
from assay.models.prices import load_prices
from assay.sandboxes.sessions import WorkspaceError
from assay.sandboxes.snapshots import SnapshotError
from assay.store.journal.journal import Journal

__all__ = ["BridgeDocument", "BridgeRun", "run_bridge", "serve_bridge"]

_TASK = "bridge"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeRun:
    """What to run."""

    model: Model
    program: AgentProgram
    folder: Path
    """Where the journal, the snapshots and the results are. The same folder continues the run."""

    documents: Sequence[Mapping[str, Any]] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Options of the environment `sandbox`."""

    concurrency: int = 1
    max_cost_usd: float | None = None
    tool_calls: str = "auto"
    """How the model gets the tools of a request: `native`, or as text with calls in `json`, `python` or `xml`; `auto`:
    native if it supports tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeDocument:
    """The result of one document."""

    name: str
    result: ExternalResult
    checks: Mapping[str, float]
    changes: str
    """What the program changed in the workspace, as a diff."""

    check_reports: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Score, reason and output of each check."""

    @property
    def score(self) -> float | None:
        """The mean of the checks; without checks, whether the program exited with 0; None after a fault."""
        if self.result.end in EXTERNAL_FAULT_ENDS:
            return None
        if not self.checks:
            return float(self.result.exit_code == 0)
        return sum(self.checks.values()) / len(self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "document": self.name,
            "score": self.score,
            "checks": dict(self.checks),
            "check_reports": dict(self.check_reports),
            **self.result.to_json(),
            "changes": self.changes,
        }


def run_bridge(run: BridgeRun, on_document: Callable[[BridgeDocument], None]) -> list[BridgeDocument]:
    """Run the program on every document that has no result yet; return all results in order.

    Raises:
        AssayError: The model or the sandbox does not work, or the folder is in use.
    """
    return asyncio.run(_BridgeRunner(run).run(on_document))


def serve_bridge(run: BridgeRun, announce: Callable[[BridgeServer], None], port: int = 0) -> None:
    """Serve the model on the loopback address until `announce` returns. Every call is journalled.

    Raises:
        KeyboardInterrupt: The user pressed Ctrl-C. `announce` may still be running in a daemon thread.
    """
    asyncio.run(_BridgeRunner(run).serve(announce, port))


class _BridgeRunner:
    def __init__(self, run: BridgeRun) -> None:
        self._run = run
        self._syntax = _choose_syntax(run)
        """How the model writes calls as text; empty: natively; None: it can call no tools."""

        self._loop: asyncio.AbstractEventLoop | None = None
        self._services: ModelServices | None = None
        self._journal: Journal | None = None
        self._digest = self._files_digest = ""
        self._open: set[SandboxEnvironment] = set()
        self._lock = threading.Lock()
        self._stopped = False
        self._sandbox_works = False
        """Whether a sandbox of this run has started, so that one that does not start is no problem of the machine."""

    async def run(self, on_document: Callable[[BridgeDocument], None]) -> list[BridgeDocument]:
        readable = [*self._run.environment.get("readable", ()), self._run.environment.get("folder") or ""]
        self._files_digest = await asyncio.to_thread(digest_files, [path for path in readable if path])
        await self._start()
        results: list[BridgeDocument] = []
        threads = ThreadPoolExecutor(self._run.concurrency, thread_name_prefix="assay-agent")
        loop = asyncio.get_running_loop()
        work: list[asyncio.Future[BridgeDocument]] = []
        try:
            names = _name_documents(self._run.documents)
            work = [
                loop.run_in_executor(threads, self._run_unless_stopped, index, name, document)
                for index, (name, document) in enumerate(zip(names, self._run.documents, strict=True))
            ]
            for future in work:
                results.append(await future)
                on_document(results[-1])
            return results
        finally:
            self._stop_agents()
            await asyncio.to_thread(threads.shutdown, wait=True, cancel_futures=True)
            await asyncio.gather(*work, return_exceptions=True)
            await self._stop()

    async def serve(self, announce: Callable[[BridgeServer], None], port: int) -> None:
        await self._start()
        try:
            first = self._build_first(0)
            lock = threading.Lock()

            def answer(call: BridgeCall) -> Outcome:
                with lock:
                    request = Generate(
                        task=_TASK,
                        document=0,
                        prompt=call.prompt,
                        settings=Settings({**first.settings.values, **call.settings}),
                        tools=call.tools,
                        response_format=call.response_format,
                        index=call.number,
                        round=call.number,
                    )
                    return self._ask(request)

            server = BridgeServer(
                answer, socket.create_server(("127.0.0.1", port)), model=self._run.model.name
            )
            try:
                await _run_in_daemon_thread(announce, server)
            finally:
                await asyncio.to_thread(server.close)
        finally:
            await self._stop()

    # --- the model ---------------------------------------------------------------------------------

    async def _start(self) -> None:
        run, self._loop = self._run, asyncio.get_running_loop()
        if not {"generate", "chat"} <= run.model.traits.abilities:
            raise UnsupportedRequest(f"the model `{run.model.name}` does not chat, so it cannot serve agents")
        identity = dict(await run.model.identify())
        self._digest = digest_json(identity)
        self._journal = Journal.open_for_writing(run.folder)
        try:
            spent, requests = self._journal.sum_costs() if run.max_cost_usd is not None else (0.0, 0)
            usual = spent / requests if requests else 0.0
            ledger = CostLedger(load_prices(), limit_usd=run.max_cost_usd, spent_usd=spent, usual_usd=usual)
            judge = PlannedJudge(name=_TASK, model=run.model, identity=identity, needed=True)
            services = ModelServices(self._journal, None, RunProgress(), {_TASK: judge}, None, ledger)
            self._services = services
            await services.open()
        except BaseException:
            await self._stop()
            raise

    async def _stop(self) -> None:
        if self._services is not None:
            await self._services.close()
        if self._journal is not None:
            self._journal.close()

    def _build_first(self, index: int) -> Generate:
        """Return the pattern of the requests of a document. Its number is part of their ids: documents share no samples."""
        return Generate(
            task=_TASK,
            document=index,
            prompt=Prompt.of_text(""),
            settings=Settings({"max_gen_toks": 4096}),
            repeat=index,
        )

    def _ask(self, request: Generate) -> Outcome:
        """Ask the model from a thread."""
        assert self._loop is not None and self._services is not None
        if request.tools is not None and self._syntax is None:
            message = f"the model `{self._run.model.name}` does not call tools"
            return Failure(request_id=request.id, kind="unsupported", message=message)
        request = adapt_request(request, self._syntax or "")
        if request.prompt.media and "image" not in self._run.model.traits.abilities:
            message = f"the model `{self._run.model.name}` accepts no images"
            return Failure(request_id=request.id, kind="unsupported", message=message)
        try:
            return asyncio.run_coroutine_threadsafe(self._services.ask(_TASK, request), self._loop).result()
        except (AssayError, RuntimeError) as problem:
            return Failure(request_id=request.id, kind="stopped", message=str(problem))

    # --- a document --------------------------------------------------------------------------------

    def _run_unless_stopped(self, index: int, name: str, document: Mapping[str, Any]) -> BridgeDocument:
        if self._stopped:
            raise AssayError("the run was stopped")
        try:
            return self._run_document(index, name, document)
        except BaseException:
            self._stopped = True  # before this thread takes the next document
            raise

    def _run_document(self, index: int, name: str, document: Mapping[str, Any]) -> BridgeDocument:
        run = self._run
        program = asdict(run.program)
        key = digest_json(
            [
                self._digest,
                program,
                index,
                dict(document),
                dict(run.environment),
                self._files_digest,
                *([self._syntax] if self._syntax else []),
            ]
        )
        path = run.folder / "documents" / f"{key}.json"
        if (known := _read_result(path, name)) is not None:
            return known
        context = EnvironmentContext(
            document=document,
            repeat=0,
            seed=0,
            folder=run.folder / "agents" / str(index),
            options={"tools": [], **run.environment},
        )
        try:
            environment = SandboxEnvironment(context)
        except DocumentSetupError as problem:
            return _fail_document(name, problem)
        except SandboxError as problem:
            if not self._sandbox_works:
                raise
            return _fail_document(name, problem)
        with self._lock:
            self._open.add(environment)
            self._sandbox_works = True
            stopped = self._stopped
        try:
            if stopped:
                raise AssayError("the run was stopped")
            done = self._run_program(environment, index, name, document)
        finally:
            with self._lock:
                self._open.discard(environment)
            environment.close()
        if done.score is not None and not self._stopped:  # a document that is not scored runs again
            _write_result(path, done)
        return done

    def _run_program(
        self, environment: SandboxEnvironment, index: int, name: str, document: Mapping[str, Any]
    ) -> BridgeDocument:
        """Run the program and the checks. Whatever goes wrong in this sandbox concerns this document only."""
        session, result = environment.session, None
        try:
            before = environment.snapshot()
            first = self._build_first(index)
            result = run_external_agent(session, self._run.program, document, first, self._ask)
            changes = environment.describe_changes(before)
            found = environment.checks()
            checks = {check: report.score for check, report in found.items()}
            reports = {check: asdict(report) for check, report in found.items()}
            return BridgeDocument(
                name=name, result=result, checks=checks, changes=changes, check_reports=reports
            )
        except (SandboxError, WorkspaceError, SnapshotError, CheckError) as problem:
            return _fail_document(name, problem, result)

    def _stop_agents(self) -> None:
        with self._lock:
            self._stopped = True
            left = list(self._open)
        for environment in left:
            with suppress(AssayError):
                environment.close()


async def _run_in_daemon_thread(function: Callable[[T], None], argument: T) -> None:
    """Await a function that may block for ever. Unlike `asyncio.to_thread`, Ctrl-C does not wait for it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish(problem: Exception | None) -> None:
        if not done.done():
            done.set_exception(problem) if problem else done.set_result(None)

    def work() -> None:
        problem: Exception | None = None
        try:
            function(argument)
        except Exception as raised:  # noqa: BLE001 - the border of the thread
            problem = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, problem)

    threading.Thread(target=work, name="assay-bridge-wait", daemon=True).start()
    await done


def _choose_syntax(run: BridgeRun) -> str | None:
    supported = "tools" in run.model.traits.abilities
    if run.tool_calls == "auto":
        return "" if supported else CALL_SYNTAXES[0]
    if run.tool_calls == "native":
        return "" if supported else None
    return run.tool_calls


def _fail_document(name: str, problem: AssayError, result: ExternalResult | None = None) -> BridgeDocument:
    """Return the result of a document that says nothing about the agent, because its sandbox did not work."""
    if result is None:
        result = ExternalResult(
            end="environment-failed", exit_code=None, output="", turns=0, tokens=0, cost_usd=None
        )
    if result.end not in EXTERNAL_FAULT_ENDS:
        result = replace(result, end="environment-failed", exit_code=None, why=problem.what)
    return BridgeDocument(
        name=name, result=replace(result, why=result.why or problem.what), checks={}, changes=""
    )


def _name_documents(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(document.get("id", index)) for index, document in enumerate(documents)]


def _read_result(path: Path, name: str) -> BridgeDocument | None:
    try:
        values = json.loads(path.read_text("utf-8"))
        result = ExternalResult(**{key: values[key] for key in ExternalResult.__slots__})
        return BridgeDocument(
            name=name,
            result=result,
            checks=values["checks"],
            changes=values["changes"],
            check_reports=values["check_reports"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_result(path: Path, done: BridgeDocument) -> None:
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(fresh, "w", encoding="utf-8") as file:
            json.dump(done.to_json(), file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as problem:
        raise OutputError(f"cannot write a result: {problem}", where=str(path.parent)) from None
