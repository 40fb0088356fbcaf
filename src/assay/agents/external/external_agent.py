"""External agents: a program with an agent loop of its own, in the sandbox of a document, whose model is behind a bridge.

The bridge listens inside the sandbox, which needs no network. Every call becomes a request with a number, so a run that is resumed
starts the program again and answers its calls from the journal, as long as the program sends the same calls again.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from assay.agents.external.bridge_protocols import BridgeCall
from assay.agents.external.bridge_server import BridgeServer
from assay.core.errors import TaskError
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Failure, Outcome, Response
from assay.sandboxes.sessions import SandboxSession

__all__ = [
    "EXTERNAL_FAULT_ENDS",
    "MODEL_FAULT",
    "REJECTED_REQUEST_KINDS",
    "AgentProgram",
    "ExternalEnd",
    "ExternalResult",
    "fill_command",
    "run_external_agent",
]

ExternalEnd = Literal[
    "exited", "signal", "time-limit", "turn-limit", "token-limit", "cost-limit", "memory", "processes", "files",
    "not-started", "model-failed", "environment-failed",
]  # fmt: skip
"""How an external agent ended: by itself, by a limit of the agent or of its sandbox, or by a fault that is not its own."""

MODEL_FAULT: ExternalEnd = "model-failed"

EXTERNAL_FAULT_ENDS: frozenset[ExternalEnd] = frozenset((MODEL_FAULT, "not-started", "environment-failed"))
"""The ends that say nothing about the agent: its document is not scored, and runs again at the next start."""

REJECTED_REQUEST_KINDS = frozenset(("too long", "too large", "bad request", "bad media"))
"""Failures that the request itself causes. The program gets the error and continues: it may shorten its conversation."""

_SIZE_KINDS = frozenset(("too long", "too large"))

_MAX_OUTPUT_BYTES = 64 << 10
_MAX_WALL_S = 7 * 24 * 3600.0
"""The time limit of the sandbox, which also counts while the program waits for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProgram:
    """The program under test and its limits."""

    command: tuple[str, ...]
    """The command line. `{field}` is replaced by a field of the document."""

    environment: Mapping[str, str]
    timeout_s: float = 600.0
    """Seconds in which the program or the model works. Waiting for a free slot of the model does not count."""

    max_turns: int | None = 50
    """Calls of the model."""

    max_tokens: int | None = None
    max_cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalResult:
    """How the program ended. Its files are still in the sandbox session."""

    end: ExternalEnd
    exit_code: int | None
    output: str
    """Standard output and error; a long one loses its middle."""

    turns: int
    tokens: int
    cost_usd: float | None
    why: str = ""
    seconds: float = field(default=0.0, compare=False)
    """How long the program and the model worked."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def fill_command(command: Sequence[str], document: Mapping[str, Any]) -> list[str]:
    """Replace `{field}` in each word by the field of the document; other braces stay.

    >>> fill_command(["agent", "--task={text}", "{}"], {"text": "{x}"})
    ['agent', '--task={x}', '{}']
    """
    filled = []
    for word in command:
        parts, rest = [], word
        while True:
            before, opening, rest = rest.partition("{")
            parts.append(before)
            if not opening:
                break
            name, closing, after = rest.partition("}")
            if closing and name in document:
                parts.append(str(document[name]))
                rest = after
            else:
                parts.append(opening)
        filled.append("".join(parts))
    return filled


class _WorkClock:
    """Measures how long the program works, and calls a function when its time is over. Stands still during calls."""

    def __init__(self, limit_s: float, on_end: Callable[[], None]) -> None:
        self._limit_s, self._on_end = limit_s, on_end
        self._lock = threading.Lock()
        self._used_s = 0.0
        self._since: float | None = None
        self._calls = 0
        self._timer: threading.Timer | None = None
        self._closed = False

    @property
    def used_s(self) -> float:
        """The seconds so far."""
        with self._lock:
            return self._used_s + (0.0 if self._since is None else time.monotonic() - self._since)

    def start(self) -> None:
        """Start measuring."""
        with self._lock:
            self._run()

    def begin_call(self) -> None:
        """Stop measuring while a call is answered."""
        with self._lock:
            self._calls += 1
            self._halt()

    def end_call(self, seconds: float) -> None:
        """Count the seconds that the model needed, and continue measuring if no other call is open."""
        with self._lock:
            self._calls -= 1
            self._used_s += seconds
            if not self._calls:
                self._run()

    def close(self) -> None:
        """Stop measuring. The clock cannot be started again."""
        with self._lock:
            self._halt()
            self._closed = True

    def _run(self) -> None:
        if self._closed:
            return
        self._since = time.monotonic()
        self._timer = threading.Timer(max(0.0, self._limit_s - self._used_s), self._on_end)
        self._timer.daemon = True
        self._timer.start()

    def _halt(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._since is not None:
            self._used_s += time.monotonic() - self._since
            self._since = None


class _Caller:
    """Turns calls into requests, asks for their answers one after the other, and stops the program at a limit."""

    def __init__(self, program: AgentProgram, first: Generate, ask: Callable[[Generate], Outcome]) -> None:
        self._program, self._first, self._ask = program, first, ask
        self._lock = threading.Lock()
        self.turns = self.tokens = self.answered = 0
        self.invalid_request = ""
        """The first request that the model rejected for another reason than its size."""

        self.cost_usd: float | None = None
        self.end: ExternalEnd | None = None
        self.why = ""
        self.stop: Callable[[], None] = lambda: None
        self.clock = _WorkClock(program.timeout_s, lambda: self._finish("time-limit", ""))

    def answer(self, call: BridgeCall) -> Response | Failure:
        self.clock.begin_call()
        seconds = 0.0
        try:
            outcome = self._answer(call)
            if isinstance(outcome, Response):
                seconds = outcome.seconds or 0.0
            return outcome
        finally:
            self.clock.end_call(seconds)

    def _answer(self, call: BridgeCall) -> Response | Failure:
        with self._lock:
            if self.end is None and (end := self._find_limit()) is not None:
                self._finish(end, "")
            if self.end is not None:
                message = f"the agent was stopped: {self.end}"
                return Failure(request_id="", kind=self.end, message=message)
            outcome = self._ask(self._build_request(call))
            if isinstance(outcome, Failure):
                why = f"{outcome.kind}: {outcome.message}"
                if outcome.kind not in REJECTED_REQUEST_KINDS:
                    self._finish(MODEL_FAULT, why)
                    return outcome
                self.turns += 1  # a program that repeats the request reaches its limit
                if outcome.kind not in _SIZE_KINDS:
                    self.invalid_request = self.invalid_request or why
                return outcome
            self.turns += 1
            self.answered += 1
            usage = outcome.usage
            if usage is not None:
                self.tokens += usage.input_tokens + usage.output_tokens
                if usage.cost_usd is not None:
                    self.cost_usd = (self.cost_usd or 0.0) + usage.cost_usd
            return outcome

    def _build_request(self, call: BridgeCall) -> Generate:
        settings = {**self._first.settings.values, **call.settings}
        return replace(
            self._first,
            prompt=call.prompt,
            settings=Settings(settings),
            tools=call.tools,
            response_format=call.response_format,
            index=self.turns,
            round=self.turns,
        )

    def _find_limit(self) -> ExternalEnd | None:
        program = self._program
        if program.max_turns is not None and self.turns >= program.max_turns:
            return "turn-limit"
        if program.max_tokens is not None and self.tokens >= program.max_tokens:
            return "token-limit"
        if program.max_cost_usd is not None and (self.cost_usd or 0.0) >= program.max_cost_usd:
            return "cost-limit"
        return None

    def _finish(self, end: ExternalEnd, why: str) -> None:
        if self.end is None:
            self.end, self.why = end, why
        self.stop()


def run_external_agent(
    session: SandboxSession,
    program: AgentProgram,
    document: Mapping[str, Any],
    first: Generate,
    ask: Callable[[Generate], Outcome],
) -> ExternalResult:
    """Run the program in a session until it ends or reaches a limit. `first` is the pattern of its requests.

    `ask` returns the outcome of a request; it blocks.

    Raises:
        SandboxError: The session does not work.
        TaskError: The program cannot be run.
    """
    command = fill_command(program.command, document)
    if any("\0" in word for word in command):
        why = "a field of the document that the command uses contains a NUL character"
        return ExternalResult(
            end="not-started", exit_code=None, output="", turns=0, tokens=0, cost_usd=None, why=why
        )
    caller = _Caller(program, first, ask)
    server = BridgeServer(caller.answer, session.listen())
    try:
        variables = {**server.environment, **program.environment}
        with session.start(command, environment=variables, max_seconds=_MAX_WALL_S) as process:
            os.close(process.stdin)
            process.stdin = -1
            caller.stop = process.stop
            caller.clock.start()
            out, err, report = process.collect(_MAX_OUTPUT_BYTES, _MAX_WALL_S + 15.0)
    finally:
        caller.clock.close()
        server.close()
    ends: dict[str, ExternalEnd] = {
        "time": "time-limit",
        "memory": "memory",
        "processes": "processes",
        "files": "files",
    }
    end: ExternalEnd = "exited" if "exit" in report else "signal"
    end = caller.end or ends.get(str(report.get("ended")), end)
    why = caller.why
    if (
        caller.invalid_request and not caller.answered
    ):  # the settings of the run may be wrong: no call can succeed
        end, why = MODEL_FAULT, caller.invalid_request
    if "failed" in report:
        why = f"cannot run `{command[0]}`: {report['failed']}"
        if (
            report.get("errno") != errno.E2BIG
        ):  # a field of one document can be too long; all else concerns every document
            raise TaskError(
                why, where="the command of the agent", hint="the sandbox shows only what is readable in it"
            )
        end = "not-started"
    return ExternalResult(
        end=end,
        exit_code=report.get("exit") if end == "exited" else None,
        output=out.text + err.text,
        turns=caller.turns,
        tokens=caller.tokens,
        cost_usd=caller.cost_usd,
        why=why,
        seconds=round(caller.clock.used_s, 3),
    )
