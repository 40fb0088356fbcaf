"""A small environment for tests of agents: files in a folder, a counter, and a letter box outside that must not get doubles."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from assay.agents import EnvironmentContext, tool
from assay.agents.session import AgentSession
from assay.agents.solvers import Entry
from assay.agents.users import SimulatedUser
from assay.core.records.agents import AgentEvent, AgentResult, AgentSpec
from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Response
from assay.core.records.tools import ToolCall

T = TypeVar("T")


class Notebook:
    """Files that `write` changes, copied for each snapshot."""

    def __init__(self, context: EnvironmentContext) -> None:
        self.folder = context.folder
        self.files = context.folder / "files"
        self.files.mkdir(parents=True, exist_ok=True)
        self.box = Path(str(context.document["box"]))
        self.counter = 0
        self.closed = False

    def tools(self) -> Sequence[Any]:
        return [self.write, self.count, self.read, self.post]

    def state(self) -> Any:
        texts = {path.name: path.read_text() for path in sorted(self.files.iterdir())}
        return {"files": texts, "counter": self.counter}

    def snapshot(self) -> str:
        number = len(list(self.folder.glob("snapshot-*")))
        while (self.folder / f"snapshot-{number}").exists():
            number += 1
        shutil.copytree(self.files, self.folder / f"snapshot-{number}")
        return json.dumps([number, self.counter])

    def restore(self, snapshot: str) -> None:
        number, self.counter = json.loads(snapshot)
        shutil.rmtree(self.files)
        shutil.copytree(self.folder / f"snapshot-{number}", self.files)

    def close(self) -> None:
        self.closed = True

    def expected_state(self) -> Any:
        return {"files": {"a.txt": "one\ntwo\n"}, "counter": 2}

    @tool()
    def write(self, name: str, text: str) -> str:
        """Append a line to a file."""
        with (self.files / name).open("a") as file:
            file.write(text + "\n")
        return "written"

    @tool()
    def count(self) -> int:
        """Add one to the counter."""
        self.counter += 1
        return self.counter

    @tool(effect="pure")
    def read(self, name: str) -> str:
        """Read a file."""
        return (self.files / name).read_text()

    @tool(effect="once")
    def post(self, text: str) -> str:
        """Post a letter."""
        descriptor = os.open(self.box, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(descriptor, f"{text}\n".encode())
        os.close(descriptor)
        return "posted"


class MemoryLog:
    """The events of one agent in memory. Raises `Killed` at a chosen point."""

    def __init__(self, events: Sequence[AgentEvent] = (), kill_at: int = -1, *, after: bool = True) -> None:
        self.events = list(events)
        self._kill_at, self._after = kill_at, after

    def read(self) -> Sequence[AgentEvent]:
        return list(self.events)

    def append(self, event: AgentEvent, *, wait: bool = True) -> None:
        event = AgentEvent(event.number, event.kind, json.loads(json.dumps(event.content)))
        if event.number == self._kill_at and not self._after:
            raise Killed
        self.events.append(event)
        if event.number == self._kill_at:
            raise Killed


class Killed(BaseException):
    """The process died here."""


class DirectServices:
    """Runs tools at once."""

    def add_pins(self, context: EnvironmentContext, pins: Mapping[str, Any]) -> None:
        """Pin nothing: there is one document."""

    def run_code(self, function: Callable[[], T], limit_s: float | None) -> T:
        return function()

    def run_in_thread(self, function: Callable[[], T], limit_s: float) -> T:
        return function()


def call(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(name, json.dumps(arguments))


def respond(text: str = "", *calls: ToolCall, **details: Any) -> Response:
    return Response(request_id="", value=text, tool_calls=calls, **details)


def open_session(
    spec: AgentSpec,
    folder: Path,
    *,
    log: MemoryLog | None = None,
    document: Mapping[str, Any] | None = None,
    user: SimulatedUser | None = None,
    system: str = "",
    question: str = "Go.",
    **options: Any,
) -> AgentSession:
    messages = [Message("system", (Text(system),))] if system else []
    messages.append(Message("user", (Text(question),)))
    first = Generate(
        task="t", document=0, prompt=Prompt(tuple(messages), chat=True), settings=Settings({"until": []})
    )
    context = EnvironmentContext(
        document={"box": str(folder / "box.txt"), **(document or {})},
        repeat=0,
        seed=1,
        folder=folder / "agent",
        options=spec.environment_options,
    )
    return AgentSession(spec, first, context, log or MemoryLog(), DirectServices(), user, **options)


def play(session: AgentSession, responses: Sequence[Response]) -> AgentResult:
    """Give a session one response after the other until it ends."""
    for number in range(len(responses) + 1):
        step = session.advance(responses[:number])
        if isinstance(step, AgentResult):
            return step
    raise AssertionError("the agent did not end")


def texts(result: AgentResult, role: str) -> list[str]:
    return [entry["text"] for entry in result.transcript if entry["role"] == role]


__all__ = [
    "DirectServices",
    "Entry",
    "Killed",
    "MemoryLog",
    "Notebook",
    "call",
    "open_session",
    "play",
    "respond",
    "texts",
]
