"""External agents: a program with an agent loop of its own, in the sandbox of a document, whose model is behind a bridge.

The bridge listens inside the sandbox, which needs no network. Every call becomes a request with a number, so a run that is resumed
starts the program again and answers its calls from the journal, as long as the program sends the same calls again.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from assay.agents.bridge_protocols import BridgeCall
from assay.agents.bridge_server import BridgeServer
from assay.core.errors import TaskError
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Failure, Outcome, Response
from assay.sandboxes.sessions import SandboxSession

__all__ = [
    "EXTERNAL_FAULT_ENDS",
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

_MAX_OUTPUT_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProgram:
    """The program under test and its limits."""

    command: tuple[str, ...]
    """The command line. `{field}` is replaced by a field of the document."""

    environment: Mapping[str, str]
    timeout_s: float = 600.0
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


class _Caller:
    """Turns calls into requests, asks for their answers one after the other, and stops the program at a limit."""

    def __init__(self, program: AgentProgram, first: Generate, ask: Callable[[Generate], Outcome]) -> None:
        self._program, self._first, self._ask = program, first, ask
        self._lock = threading.Lock()
        self.turns = self.tokens = 0
        self.cost_usd: float | None = None
        self.end: ExternalEnd | None = None
        self.why = ""
        self.stop: Callable[[], None] = lambda: None

    def answer(self, call: BridgeCall) -> Response | Failure:
        with self._lock:
            if self.end is None and (end := self._find_limit()) is not None:
                self._finish(end, "")
            if self.end is not None:
                message = f"the agent was stopped: {self.end}"
                return Failure(request_id="", kind=self.end, message=message)
            outcome = self._ask(self._build_request(call))
            if isinstance(outcome, Failure):
                self._finish(MODEL_FAULT, f"{outcome.kind}: {outcome.message}")
                return outcome
            self.turns += 1
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
        with session.start(command, environment=variables, max_seconds=program.timeout_s) as process:
            os.close(process.stdin)
            process.stdin = -1
            caller.stop = process.stop
            out, err, report = process.collect(_MAX_OUTPUT_BYTES, program.timeout_s + 15.0)
    finally:
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
    )
