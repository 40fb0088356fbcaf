"""Solvers: what an agent does next.

    class Solver(Protocol):
        def next(self, state: AgentState) -> Step: ...

The loop calls `next` after every event. A solver decides from the state alone: a resumed run gives it the same states and
expects the same steps.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from assay.core.errors import TaskError
from assay.core.records.agents import EXTERNAL_SOLVER, AgentEnd
from assay.core.records.responses import Response
from assay.core.records.tools import Tool, ToolCall
from assay.core.registry import Registry

__all__ = [
    "SOLVERS",
    "AgentState",
    "AskModel",
    "AskUser",
    "CallTools",
    "Entry",
    "ExternalSolver",
    "Finished",
    "ReactSolver",
    "Solver",
    "Step",
    "ToolLoop",
    "make_solver",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the conversation."""

    role: str
    """`system`, `user`, `assistant` or `tool`."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    """The calls of the assistant."""

    name: str = ""
    """The tool of a result."""

    call_id: str = ""
    error: bool = False
    reasoning: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON without empty values."""
        shown: dict[str, Any] = {"role": self.role, "text": self.text}
        if self.calls:
            shown["calls"] = [
                {"name": call.name, "arguments": call.arguments if call.values is None else call.values}
                for call in self.calls
            ]
        if self.name:
            shown["name"] = self.name
        if self.error:
            shown["error"] = True
        if self.reasoning:
            shown["reasoning"] = self.reasoning
        return shown


@dataclass(slots=True)
class AgentState:
    """Everything a solver knows. Only the loop changes it."""

    document: Mapping[str, Any]
    entries: list[Entry] = field(default_factory=list)
    """The conversation so far."""

    has_user: bool = False
    tools: tuple[Tool, ...] = ()
    turns: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    user_turns: int = 0
    last_response: Response | None = None
    ends: bool = False
    """Whether a tool ended the conversation."""

    user_ended: bool = False

    @property
    def last(self) -> Entry | None:
        """The last entry of the conversation."""
        return self.entries[-1] if self.entries else None

    @property
    def pending_calls(self) -> tuple[ToolCall, ...]:
        """The calls of the last response that have no result yet."""
        for results, entry in enumerate(reversed(self.entries)):
            if entry.role == "assistant":
                return entry.calls[results:]
            if entry.role != "tool":
                return ()
        return ()

    @property
    def last_text(self) -> str:
        """The last text of the agent."""
        return next((one.text for one in reversed(self.entries) if one.role == "assistant" and one.text), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskModel:
    """Send the conversation to the model."""

    note: str = ""
    """A message that is added to the conversation first, as the user."""


@dataclass(frozen=True, slots=True)
class CallTools:
    """Run these calls, in order."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class AskUser:
    """Say a text to the user and wait for the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The agent is done."""

    answer: str = ""
    end: AgentEnd = "answered"


Step = AskModel | CallTools | AskUser | Finished


class Solver(Protocol):
    """Decides what an agent does next. It may offer tools of its own, which it handles itself."""

    tools: Sequence[Tool]
    instructions: str
    """Text for the end of the system message; empty for none."""

    max_calls: int | None
    """How many calls of a response count; the others are dropped. None: all."""

    def next(self, state: AgentState) -> Step:
        """Return the next step. Calls with equal states return equal steps."""
        ...


class ToolLoop:
    """Calls tools until the model answers without a call. With a user, texts go to the user until the user ends it."""

    tools: Sequence[Tool] = ()
    instructions = ""

    def __init__(self, *, first_call_only: bool = False) -> None:
        """`first_call_only`: run only the first call of each response, as tau-bench does."""
        self.max_calls = 1 if first_call_only else None

    def next(self, state: AgentState) -> Step:
        """Return the next step."""
        if (step := _begin_or_end(state)) is not None:
            return step
        if pending := state.pending_calls:
            return CallTools(pending)
        last = state.last
        if last is None or last.role != "assistant":
            return AskModel()
        return AskUser(last.text) if state.has_user else Finished(last.text)


def _begin_or_end(state: AgentState) -> Step | None:
    """Return the first step of a conversation that the user begins, or the end if a tool or the user ended it."""
    if state.ends:
        return Finished(state.last_text, "tool-ended")
    if state.user_ended:
        return Finished(state.last_text, "user-ended")
    is_new = state.last is None or state.last.role == "system"
    return AskUser("") if is_new and state.has_user else None


_SUBMIT = Tool(
    "submit",
    "Submit the final answer and finish.",
    {
        "type": "object",
        "properties": {"answer": {"type": "string", "description": "The final answer."}},
        "required": ["answer"],
    },
)
_REACT = (
    "Work step by step: reason about what to do next, call a tool, and look at its result. "
    "When you are done, call `submit` with the final answer."
)
_CONTINUE = "Continue. Call `submit` with the final answer when you are done."


class ReactSolver:
    """Asks for reasoning before each call, and continues until the model calls `submit`."""

    def __init__(self, *, instructions: str = _REACT, continue_message: str = _CONTINUE) -> None:
        self.tools: Sequence[Tool] = (_SUBMIT,)
        self.instructions = instructions
        self.max_calls: int | None = None
        self._continue = continue_message

    def next(self, state: AgentState) -> Step:
        """Return the next step."""
        if (step := _begin_or_end(state)) is not None:
            return step
        pending = state.pending_calls
        submitted = next(
            (i for i, one in enumerate(pending) if one.name == "submit" and not one.problem), None
        )
        if submitted == 0:
            answer = (pending[0].values or {}).get("answer", "")
            return Finished(
                answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False), "submitted"
            )
        if pending:
            return CallTools(pending[:submitted])
        last = state.last
        if last is None or last.role != "assistant":
            return AskModel()
        return AskUser(last.text) if state.has_user else AskModel(note=self._continue)


class ExternalSolver:
    """A program with a loop of its own. The session starts it and answers its calls; there are no steps to decide."""

    tools: Sequence[Tool] = ()
    instructions = ""
    max_calls: int | None = None

    def __init__(
        self,
        *,
        command: str | Sequence[str],
        env: Mapping[str, Any] | None = None,
        readable: Sequence[str] = (),
        check_exit: bool = False,
    ) -> None:
        """`command`: words, or a text that is split like a shell does; `{field}` is a field of the document, `{prompt}` the prompt.

        `env`: more environment variables. `readable`: more files that the program may read. `check_exit`: whether the exit code
        0 is a check of its own. It always is if the task has no other check.
        """
        words = shlex.split(command) if isinstance(command, str) else command
        if not isinstance(words, (list, tuple)) or not words:
            raise TaskError(f"`command` must be a text or a list of words, not {command!r:.60}")
        if not isinstance(env or {}, Mapping):
            raise TaskError(f"`env` must be a mapping, not {env!r:.60}")
        if isinstance(readable, str) or not isinstance(readable, Sequence):
            raise TaskError(f"`readable` must be a list of paths, not {readable!r:.60}")
        program, *arguments = (str(word) for word in words)
        if program.startswith("~"):
            program = str(Path(program).expanduser())
        self.command = (program, *arguments)
        self.env = {str(name): str(value) for name, value in (env or {}).items()}
        self.readable = tuple(str(path) for path in readable)
        self.check_exit = bool(check_exit)

    def next(self, state: AgentState) -> Step:
        """Raise an error: the program decides."""
        raise TaskError("an external agent decides by itself what happens next")


SOLVERS: Registry[Callable[..., Solver]] = Registry("solver")
"""The solvers that `solver:` can name."""

SOLVERS.add("tool_loop", ToolLoop)
SOLVERS.add("react", ReactSolver)
SOLVERS.add(EXTERNAL_SOLVER, ExternalSolver)


def make_solver(source: str | Callable[..., Any], options: Mapping[str, Any], *, where: str = "") -> Solver:
    """Return a solver by its name, or by a class or function of the task.

    Raises:
        TaskError: It cannot be made with these options.
        UnknownName: There is no solver of this name.
    """
    factory: Any = SOLVERS.get(source, where=where) if isinstance(source, str) else source
    try:
        made = factory(**options)
    except TypeError as error:
        raise TaskError(f"the solver cannot be made: {error}", where=where) from None
    except (TaskError, ValueError) as error:
        if not isinstance(source, str):
            raise
        what = error.what if isinstance(error, TaskError) else str(error)
        raise TaskError(f"the solver `{source}` cannot be made: {what}", where=where) from None
    if not callable(getattr(made, "next", None)):
        raise TaskError("a solver needs a method `next(state)`", where=where)
    for name, default in (("tools", ()), ("instructions", ""), ("max_calls", None)):
        if not hasattr(made, name):
            setattr(made, name, default)
    solver: Solver = made
    return solver
