"""An external agent at work on one document of a run: its program, its calls as requests of the run, and what it left.

    sandbox -> program -> bridge -> ask (queue, journal and budget of the run) -> answer -> program -> ... -> exit -> checks

The result is an event in the journal. A session without one starts the program again in a new workspace; calls that the
program repeats are answered from the journal.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from assay.agents.external.external_agent import (
    MODEL_FAULT,
    REJECTED_REQUEST_KINDS,
    AgentProgram,
    ExternalResult,
    run_external_agent,
)
from assay.agents.external.program_files import digest_files
from assay.agents.final_state import examine_environment, read_state
from assay.agents.prompts import adapt_request
from assay.agents.sandbox_environment import CheckError, DocumentSetupError, SandboxEnvironment
from assay.agents.session import EventLog
from assay.agents.solvers import ExternalSolver, make_solver
from assay.agents.tools import EnvironmentContext
from assay.core.errors import AssayError, TaskError
from assay.core.records.agents import AgentEnd, AgentEvent, AgentResult, AgentSpec, digest_state
from assay.core.records.messages import Message, Text
from assay.core.records.requests import Generate
from assay.core.records.responses import Outcome, Response
from assay.core.records.tools import ToolCall, ToolResult
from assay.core.secrets import redact
from assay.sandboxes.sessions import WorkspaceError

__all__ = ["DEFAULT_SECONDS", "ExternalSession", "Transcript", "build_program", "describe_program"]

T = TypeVar("T")

DEFAULT_SECONDS = 600.0
"""The time limit of a program if the task has no `max_seconds`: a program may never end by itself."""

_DEFAULT_LIMITS = {"memory_bytes": 4 << 30, "processes": 256, "open_files": 1024}
"""Limits of the sandbox if the task has none: an agent needs more than one command."""

MAX_TRANSCRIPT_CHARACTERS = 2_000_000
MAX_ENTRY_CHARACTERS = 100_000


def build_program(spec: AgentSpec, solver: ExternalSolver) -> AgentProgram:
    """Return the program of an agent task with its limits."""
    limits = spec.limits
    return AgentProgram(
        command=solver.command,
        environment=solver.env,
        timeout_s=limits.max_seconds or DEFAULT_SECONDS,
        max_turns=limits.max_turns,
        max_tokens=limits.max_tokens,
        max_cost_usd=limits.max_cost,
    )


def describe_program(spec: AgentSpec) -> dict[str, Any]:
    """Return the command of an external agent and a digest of its files, for the manifest."""
    solver = make_solver(spec.solver, spec.solver_options)
    assert isinstance(solver, ExternalSolver)
    options = spec.environment_options
    paths = [
        *options.get("readable", ()),
        *solver.readable,
        *([options["folder"]] if options.get("folder") else []),
    ]
    if solver.command[0].startswith("/"):
        paths.append(solver.command[0])
    files = digest_files([str(Path(path).expanduser()) for path in paths])
    return {"program": {"command": redact(" ".join(solver.command)), "files": files}}


class ExternalSession:
    """The work of one external agent on one document, in one repeat."""

    def __init__(
        self,
        spec: AgentSpec,
        first: Generate,
        context: EnvironmentContext,
        log: EventLog,
        ask: Callable[[Generate], Outcome],
        *,
        syntax: str = "",
        chat: bool = True,
        recorded: bool = False,
        pins: Mapping[str, Any] | None = None,
        where: str = "",
    ) -> None:
        """`syntax`: how the model writes calls as text; empty: in its own format. `chat`: whether the model gets messages.

        `recorded`: run nothing; the end must be in the log. `pins`: what the manifest says about the program. `ask` blocks.
        """
        self._spec, self._first, self._context, self._log, self._ask = spec, first, context, log, ask
        self._pins = dict(pins or {})
        self._syntax, self._chat, self._recorded, self._where = syntax, chat, recorded, where
        self._environment: SandboxEnvironment | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._failed = False
        self._transcript = Transcript()
        self.result: AgentResult | None = None

    def run(self) -> None:
        """Run the program and the checks, unless the log has the result. Blocks; for a worker thread.

        Raises:
            TaskError: The program cannot be run at all.
        """
        events = list(self._log.read())
        if events and events[-1].kind == "end":
            self.result = AgentResult.from_json(events[-1].content)
            return
        if self._recorded:
            why = "the run has no result of this program"
            self.result = AgentResult(end="environment-failed", why=why)
            return
        try:
            result = self._run_program(events)
        except TaskError as error:
            if not isinstance(error, (DocumentSetupError, CheckError)):
                raise
            result = AgentResult(end="environment-failed", why=redact(error.what))
        except AssayError as error:
            result = AgentResult(end="environment-failed", why=redact(error.what))
        finally:
            self._close_environment()
        if self._closed or self._failed:  # the run was stopped, or a request failed: it starts again
            return
        if result.end != "environment-failed":  # tried again when the run is resumed
            self._log.append(AgentEvent(events[-1].number + 1, "end", result.to_json()))
        self.result = result

    def close(self) -> None:
        """Stop the program. A thread in `run` returns soon after."""
        self._closed = True
        self._close_environment()

    def _close_environment(self) -> None:
        with self._lock:
            environment, self._environment = self._environment, None
        if environment is not None:
            environment.close()

    def _run_program(self, events: list[AgentEvent]) -> AgentResult:
        spec = self._spec
        solver = make_solver(spec.solver, spec.solver_options, where=self._where)
        assert isinstance(solver, ExternalSolver)
        environment = self._open_environment(solver)
        initial, snapshot = read_state(environment, _run_directly), environment.snapshot()
        if not events:
            content = {
                "state": initial,
                "snapshot": snapshot,
                "tools": [],
                "command": solver.command,
                "pins": self._pins,
            }
            events.append(AgentEvent(0, "opened", content))
            self._log.append(events[0], wait=False)
        fields = {**self._context.document, "prompt": _get_text(self._first.prompt.messages)}
        done = run_external_agent(
            environment.session, build_program(spec, solver), fields, self._first, self._answer
        )
        self._failed |= done.end == MODEL_FAULT
        result = self._build_result(done)
        if result.end == "environment-failed":
            return result
        try:
            result = examine_environment(environment, initial, snapshot, result, _run_directly)
        except WorkspaceError as error:
            return replace(result, end="workspace-limit", why=error.what)
        if solver.check_exit or not result.checks:
            passed = done.exit_code == 0
            report = {"score": float(passed), "reason": "" if passed else _describe_exit(done), "output": ""}
            result = replace(
                result,
                checks={**result.checks, "exit": float(passed)},
                check_reports={**result.check_reports, "exit": report},
            )
        return result

    def _open_environment(self, solver: ExternalSolver) -> SandboxEnvironment:
        context = self._context
        shutil.rmtree(context.folder, ignore_errors=True)
        given = context.options
        readable = [str(Path(path).expanduser()) for path in (*given.get("readable", ()), *solver.readable)]
        limits = {**_DEFAULT_LIMITS, **(given.get("limits") or {})}
        options = {**given, "tools": [], "readable": readable, "limits": limits}
        environment = SandboxEnvironment(replace(context, options=options))
        with self._lock:
            self._environment = environment
        if self._closed:
            raise AssayError("the run was stopped")
        return environment

    def _answer(self, request: Generate) -> Outcome:
        """Ask the model. A model without tools or chat gets the conversation as text."""
        outcome = self._ask(adapt_request(request, self._syntax, chat=self._chat))
        if isinstance(outcome, Response):
            self._transcript.add(request.prompt.messages, outcome)
        elif outcome.kind not in REJECTED_REQUEST_KINDS:
            self._failed = True
        return outcome

    def _build_result(self, done: ExternalResult) -> AgentResult:
        end: AgentEnd
        why = done.why
        match done.end:
            case "memory" | "processes" | "files":
                end, why = "sandbox-limit", why or f"limit of the sandbox: {done.end}"
            case "model-failed" | "not-started" | "environment-failed":
                end = "environment-failed"
            case "exited":
                end, why = "exited", "" if done.exit_code == 0 else _describe_exit(done)
            case other:
                end = other
        output = redact(done.output)
        self._transcript.add_output(output, _describe_exit(done))
        return AgentResult(
            end=end,
            why=redact(why),
            answer=output,
            said=(output,) if output else (),
            transcript=tuple(self._transcript.entries),
            turns=done.turns,
            tool_calls=self._transcript.tool_calls,
            tokens=done.tokens,
            cost_usd=done.cost_usd,
            seconds=done.seconds,
            exit_code=done.exit_code,
            output=output,
        )


class Transcript:
    """The conversation of a program with the model, put together from its calls.

    A call usually repeats the messages of an earlier one and adds some. Only the new ones are added. A program may lead
    several conversations, or rewrite one.
    """

    def __init__(self) -> None:
        self.entries: list[Mapping[str, Any]] = []
        self.tool_calls = 0
        self._known: list[list[str]] = []
        """Digests of the messages of each conversation so far, without those of the assistant."""

        self._characters = 0

    def add(self, messages: Sequence[Message], response: Response) -> None:
        """Add the new messages of a call, and its answer."""
        own = [_describe_message(message) for message in messages if message.role != "assistant"]
        digests = [digest_state(entry) for entry in own]
        known = max((one for one in self._known if digests[: len(one)] == one), key=len, default=None)
        if known is None:
            known = []
            self._known.append(known)
        for entry in own[len(known) :]:
            self._append(entry)
        known[:] = digests
        calls = [
            {"name": call.name, "arguments": call.arguments if call.values is None else call.values}
            for call in response.tool_calls
        ]
        self.tool_calls += len(calls)
        answer: dict[str, Any] = {"role": "assistant", "text": str(response.value)}
        if calls:
            answer["calls"] = calls
        if response.reasoning:
            answer["reasoning"] = response.reasoning
        self._append(answer)

    def add_output(self, output: str, end: str) -> None:
        """Add what the program printed and how it ended."""
        self._append({"role": "program", "text": f"{output}\n[{end}]".strip()})

    def _append(self, entry: Mapping[str, Any]) -> None:
        text = str(entry["text"])
        if self._characters > MAX_TRANSCRIPT_CHARACTERS:
            entry = {**entry, "text": "[left out: the transcript is too long]"}
        elif len(text) > MAX_ENTRY_CHARACTERS:
            entry = {**entry, "text": f"{text[:MAX_ENTRY_CHARACTERS]}\n[cut: {len(text)} characters]"}
        self._characters += len(entry["text"])
        self.entries.append(entry)


def _describe_message(message: Message) -> dict[str, Any]:
    texts: list[str] = []
    entry: dict[str, Any] = {"role": message.role}
    for part in message.parts:
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, ToolResult):
            texts.append(part.content)
            if part.name:
                entry["name"] = part.name
        elif not isinstance(part, ToolCall):
            texts.append("[media]")
    return {**entry, "text": redact("".join(texts))}


def _get_text(messages: Sequence[Message]) -> str:
    return "\n\n".join(message.text for message in messages if message.text)


def _describe_exit(done: ExternalResult) -> str:
    if done.end == "exited":
        return f"exit code {done.exit_code}"
    return done.end


def _run_directly(function: Callable[[], T], what: str) -> T:
    return function()
