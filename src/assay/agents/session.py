"""One agent at work on one document: the loop, its events in the journal, and how it continues after the process died.

    solver -> model -> response -> tool calls -> results -> solver -> ... -> end

Every event is durable before the next one happens. When a run is resumed, a new session goes through the same steps: the
responses of the model and the results of completed calls come from the journal, and no tool runs. The environment is
restored when the first call without a result is reached.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, TypeVar

from assay.agents.environments import ENVIRONMENTS
from assay.agents.final_state import examine_environment, read_state
from assay.agents.functions import TOOLS, to_output, to_tool
from assay.agents.prompts import build_prompt, entries_from_prompt
from assay.agents.solvers import (
    AgentState,
    AskModel,
    AskUser,
    CallTools,
    Entry,
    Finished,
    Solver,
    make_solver,
)
from assay.agents.tools import (
    AgentTool,
    Environment,
    EnvironmentContext,
    SupportsInstructions,
    SupportsPins,
    SupportsSnapshots,
    ToolOutput,
)
from assay.agents.users import SimulatedUser, UserReply
from assay.core.errors import AssayError, TaskError
from assay.core.json_schema import describe_invalid_value
from assay.core.records.agents import AgentEnd, AgentEvent, AgentResult, AgentSpec
from assay.core.records.requests import Generate
from assay.core.records.responses import Response
from assay.core.records.tools import Tool, ToolCall, Tools
from assay.core.secrets import redact
from assay.sandboxes.sessions import WorkspaceError
from assay.user_code.timeouts import UserCodeTimeout

__all__ = ["MAX_OUTPUT_CHARACTERS", "AgentSession", "EventLog", "NoEnvironment", "SessionServices"]

T = TypeVar("T")

MAX_OUTPUT_CHARACTERS = 100_000
"""Longer results of tools are cut; the model is told how much is missing."""

MAX_STEPS_WITHOUT_RESPONSE = 200
"""A solver that takes more steps after a response of the model is stopped: it would never end."""

_UNKNOWN_RESULT = "The process was interrupted during this call. It is unknown whether it took effect; it was not run again."


class EventLog(Protocol):
    """The events of one agent in the journal."""

    def read(self) -> Sequence[AgentEvent]:
        """Return the events of earlier starts of the run, in order."""
        ...

    def append(self, event: AgentEvent, *, wait: bool = True) -> None:
        """Write an event after all earlier ones; it is durable when the call returns, unless `wait` is false."""
        ...


class SessionServices(Protocol):
    """What a session needs from the engine."""

    def run_code(self, function: Callable[[], T], limit_s: float | None) -> T:
        """Run code of the task with a time limit (None: that of the run); raise what it raises."""
        ...

    def run_in_thread(self, function: Callable[[], T], limit_s: float) -> T:
        """Run a tool in a worker thread while other documents continue."""
        ...

    def add_pins(self, context: EnvironmentContext, pins: Mapping[str, Any]) -> None:
        """Keep what an environment pins, for the later agents of its task."""
        ...


class NoEnvironment:
    """The environment of a task without one: its tools keep no state."""

    def tools(self) -> Sequence[Any]:
        """Return no tools."""
        return ()

    def state(self) -> Any:
        """Return no state."""
        return None

    def snapshot(self) -> str:
        """Return an empty snapshot."""
        return ""

    def restore(self, snapshot: str) -> None:
        """Do nothing: there is no state."""

    def close(self) -> None:
        """Do nothing."""


@dataclass(slots=True)
class _Counters:
    tokens: int = 0
    cost_usd: float | None = None
    user_cost_usd: float | None = None
    seconds: float = 0.0

    def add(self, response: Response) -> None:
        usage = response.usage
        if usage is not None:
            self.tokens += usage.input_tokens + usage.output_tokens
            if usage.cost_usd is not None:
                self.cost_usd = (self.cost_usd or 0.0) + usage.cost_usd
        self.seconds += response.seconds or 0.0


class _EnvironmentError(Exception):
    """The environment raised; the message says where."""


class _WorkspaceLimit(_EnvironmentError):
    """The files that the agent left are more than the environment can store."""


class AgentSession:
    """The work of one agent on one document, in one repeat."""

    def __init__(
        self,
        spec: AgentSpec,
        first: Generate,
        context: EnvironmentContext,
        log: EventLog,
        services: SessionServices,
        user: SimulatedUser | None,
        *,
        syntax: str = "",
        chat: bool = True,
        parallel: bool | None = None,
        recorded: bool = False,
        repaired: bool = False,
        where: str = "",
    ) -> None:
        """`syntax`: how calls are written as text; empty: in the model's own format. `chat`: whether the model gets messages.

        `recorded`: run nothing; everything must be in the log. `repaired`: the last events may be missing from the log.
        """
        self._spec, self._first, self._context = spec, first, context
        source = spec.environment
        self._factory: Callable[..., Any] | None = (
            ENVIRONMENTS.get(source) if isinstance(source, str) else source
        )
        self._log, self._services, self._user = log, services, user
        self._syntax, self._chat, self._parallel = syntax, chat, parallel
        self._recorded, self._repaired, self._where = recorded, repaired, where
        self._events = list(log.read())
        self._position = 0
        self._has_gaps = [event.number for event in self._events] != list(range(len(self._events)))
        self._environment: Environment | None = None
        self._tools: dict[str, AgentTool] = {}
        self._definitions: tuple[Tool, ...] = ()
        self._unchecked: frozenset[str] = frozenset()
        """Tools that check their arguments themselves."""

        self._completed: list[tuple[ToolCall, Mapping[str, Any]]] = []
        """Calls whose results come from the log and are not in the environment yet."""

        self._may_call_once = True
        self._snapshot: str | None = None
        self._first_snapshot: str | None = None
        self._initial_state: Any = None
        self._solver: Solver | None = None
        self._steps = 0
        """Steps of the solver since the last response of the model."""

        self._counters = _Counters()
        self._state = AgentState(document=context.document, has_user=user is not None)
        self._said: list[str] = []
        self.result: AgentResult | None = None

    def advance(self, responses: Sequence[Response]) -> Generate | AgentResult:
        """Return the next request after these responses, or the result."""
        try:
            return self._advance(responses)
        except _EnvironmentError as error:
            return self._finish("environment-failed", str(error))
        finally:
            if self.result is not None:
                self.close()

    def close(self) -> None:
        """Close the environment."""
        environment, self._environment = self._environment, None
        if environment is not None:
            try:
                self._services.run_code(environment.close, self._spec.limits.tool_seconds)
            except Exception:  # noqa: BLE001 - task code; the result is known already
                return

    # --- the loop ----------------------------------------------------------------------------------

    def _advance(self, responses: Sequence[Response]) -> Generate | AgentResult:
        if self.result is not None:
            return self.result
        if self._has_gaps:
            self.result = AgentResult(
                end="in-doubt", why="events of this agent are missing from the journal, which was repaired"
            )
            return self.result
        if self._events and self._events[-1].content.get("repaired"):
            self.result = AgentResult.from_json(self._events[-1].content)
            return self.result
        if self._solver is None:
            spec, where = self._spec, self._where
            self._solver = self._services.run_code(
                lambda: make_solver(spec.solver, spec.solver_options, where=where), None
            )
            self._open()
            if (lost := self._end_if_calls_may_be_lost()) is not None:
                return lost
        solver, state = self._solver, self._state
        while True:
            if limit := self._find_limit(about_to_ask=False):
                return self._finish(*limit)
            if self._steps >= MAX_STEPS_WITHOUT_RESPONSE:
                return self._finish("step-limit", f"{self._steps} steps without a response of the model")
            self._steps += 1
            step = self._services.run_code(lambda: solver.next(state), None)
            match step:
                case Finished(answer=answer, end=end):
                    return self._finish(end, answer=answer)
                case AskModel(note=note):
                    if note:
                        state.entries.append(Entry(role="user", text=note))
                    if limit := self._find_limit(about_to_ask=True):
                        return self._finish(*limit)
                    if state.turns >= len(responses):
                        if note:
                            state.entries.pop()  # added again when the response is here
                        self._steps -= 1  # taken again when the response is here
                        return self._build_request(note)
                    self._receive(responses[state.turns])
                case CallTools(calls=calls):
                    for call in calls:
                        if (result := self._call(call)) is not None:
                            return result
                        if limit := self._find_limit(about_to_ask=False):
                            return self._finish(*limit)
                case AskUser(text=text):
                    if (result := self._ask_user(text)) is not None:
                        return result
                case _:
                    raise TaskError(
                        f"the solver returned {step!r:.80}",
                        where=self._where,
                        hint="`next` returns AskModel, CallTools, AskUser or Finished",
                    )

    def _find_limit(self, *, about_to_ask: bool) -> tuple[AgentEnd, str] | None:
        limits, state, counters = self._spec.limits, self._state, self._counters
        if limits.max_tool_errors is not None and state.tool_errors >= limits.max_tool_errors:
            return "tool-error-limit", f"{state.tool_errors} tool calls failed (max_tool_errors)"
        if limits.max_tokens is not None and counters.tokens >= limits.max_tokens and about_to_ask:
            return "token-limit", f"{counters.tokens} tokens (max_tokens: {limits.max_tokens})"
        if limits.max_cost is not None and (counters.cost_usd or 0.0) >= limits.max_cost and about_to_ask:
            return "cost-limit", f"${counters.cost_usd or 0.0:.4f} (max_cost: {limits.max_cost:g})"
        if limits.max_seconds is not None and counters.seconds >= limits.max_seconds:
            return "time-limit", f"{counters.seconds:.1f} s (max_seconds: {limits.max_seconds:g})"
        if about_to_ask and limits.max_turns is not None and state.turns >= limits.max_turns:
            return "turn-limit", f"{state.turns} turns (max_turns)"
        return None

    def _receive(self, response: Response) -> None:
        """Add a response of the model to the conversation."""
        state, solver = self._state, self._solver
        assert solver is not None
        self._counters.add(response)
        calls = response.tool_calls if solver.max_calls is None else response.tool_calls[: solver.max_calls]
        named = tuple(
            call if call.id else replace(call, id=f"call_{state.turns}_{index}")
            for index, call in enumerate(calls)
        )
        text = str(response.value)
        state.entries.append(
            Entry(role="assistant", text=text, calls=named, reasoning=response.reasoning or None)
        )
        if not named and text:
            self._said.append(text)
        state.turns += 1
        state.last_response = response
        self._steps = 0

    def _build_request(self, note: str) -> Generate:
        state = self._state
        entries = [*state.entries, Entry(role="user", text=note)] if note else state.entries
        tools = None
        if state.tools:
            tools = Tools(tools=state.tools, parallel=self._parallel, syntax=self._syntax)
        prompt = build_prompt(entries, self._first.prompt, tools, chat=self._chat)
        return replace(self._first, prompt=prompt, tools=tools, index=state.turns, round=state.turns)

    # --- events ------------------------------------------------------------------------------------

    def _take_event(self, *kinds: str) -> AgentEvent | None:
        """Return the next recorded event if it has one of these kinds; None at the end of the log."""
        if self._position >= len(self._events):
            if self._recorded:
                raise AssayError(f"the run was not continued after its event {self._position}")
            return None
        event = self._events[self._position]
        if event.kind not in kinds:
            raise AssayError(
                f"event {event.number} in the journal is `{event.kind}`, but the agent expects {' or '.join(kinds)}",
                where=self._where,
                hint="the code of the task changed, or its solver depends on more than the state: start a new run",
            )
        self._position += 1
        return event

    def _append(self, kind: str, content: Mapping[str, Any], *, wait: bool = True) -> None:
        event = AgentEvent(self._position, kind, content)
        self._log.append(event, wait=wait)
        self._events.append(event)
        self._position += 1

    # --- environment -------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the environment, or read from the log what it offers."""
        event = self._take_event("opened")
        if event is None:
            environment = self._open_environment()
            text = ""
            if isinstance(environment, SupportsInstructions):
                text = str(self._run_environment(environment.instructions, "instructions"))
            content = {
                "instructions": text,
                "tools": [tool.definition.to_json() for tool in self._tools.values()],
                "unchecked": [
                    name for name, tool in self._tools.items() if getattr(tool, "checks_arguments", False)
                ],
                "once": [name for name, tool in self._tools.items() if tool.effect == "once"],
                "state": read_state(environment, self._run_environment),
                "snapshot": self._take_snapshot(environment),
            }
            if isinstance(environment, SupportsPins):
                pins = self._run_environment(environment.describe_pins, "describe_pins")
                if pins:
                    content["pins"] = pins
                    self._services.add_pins(self._context, pins)
            self._append("opened", content)
        else:
            content = dict(event.content)
        self._first_snapshot = self._snapshot = content["snapshot"]
        self._initial_state = content["state"]
        own = tuple(
            Tool(one["name"], one.get("description", ""), one["parameters"]) for one in content["tools"]
        )
        assert self._solver is not None
        self._definitions = own
        self._unchecked = frozenset(content["unchecked"])
        self._may_call_once = bool(content.get("once", True))
        self._state.tools = (*own, *self._solver.tools)
        texts = [text for text in (content["instructions"], self._solver.instructions) if text]
        self._state.entries = entries_from_prompt(self._first.prompt, texts)

    def _end_if_calls_may_be_lost(self) -> AgentResult | None:
        """End an agent in a repaired journal that has no end: a call with the effect `once` could run twice."""
        has_end = any(event.kind == "end" for event in self._events)
        if not self._repaired or not self._may_call_once or has_end:
            return None
        why = "the journal was repaired, and calls with the effect `once` may be missing from it"
        self.result = AgentResult(end="in-doubt", why=why)
        self._position = len(self._events)
        self._append("end", {**self.result.to_json(), "repaired": True})
        return self.result

    def _open_environment(self) -> Environment:
        """Open the environment anew, in an empty folder."""
        if self._recorded:
            raise AssayError("the environment of a recorded agent cannot be opened")
        factory = self._factory
        if factory is None:
            environment: Any = NoEnvironment()
        else:
            shutil.rmtree(self._context.folder, ignore_errors=True)
            environment = self._run_environment(lambda: factory(self._context), "opening it")
        self._environment = environment
        self._tools = self._collect_tools(environment)
        once = [name for name, tool in self._tools.items() if tool.effect == "once"]
        if once and not isinstance(environment, SupportsSnapshots):
            raise _EnvironmentError(
                f"the tool `{once[0]}` has the effect `once`, but the environment has no `snapshot` and `restore`"
            )
        return self._environment

    def _collect_tools(self, environment: Environment) -> dict[str, AgentTool]:
        found: dict[str, AgentTool] = {}
        listed = self._run_environment(environment.tools, "tools")
        for value in (*listed, *self._spec.tools):
            if isinstance(value, str):
                value = TOOLS.get(value, where=self._where)(self._context)
            tool = to_tool(value, where=self._where)
            if tool.definition.name in found:
                raise TaskError(f"two tools are called `{tool.definition.name}`", where=self._where)
            found[tool.definition.name] = tool
        return found

    def _restore_environment(self) -> Environment:
        """Return the environment in the state after the last completed call."""
        if self._environment is not None:
            return self._environment
        if self._spec.environment is None:
            return self._open_environment()
        if self._snapshot is None:
            environment = self._open_environment()
            for call, _ in self._completed:
                tool = self._tools[call.name]
                if tool.effect == "repeatable":
                    self._run_tool(tool, call.values or {}, environment)
            self._completed.clear()
            return environment
        factory, snapshot = self._factory, self._snapshot
        assert factory is not None
        restored: Any = self._run_environment(lambda: factory(self._context), "opening it")
        self._environment = restored
        self._tools = self._collect_tools(restored)
        self._run_environment(lambda: restored.restore(snapshot), "restore")
        return self._environment

    def _take_snapshot(self, environment: Environment) -> str | None:
        if not isinstance(environment, SupportsSnapshots):
            return None
        return str(self._run_environment(environment.snapshot, "snapshot"))

    def _run_environment(self, function: Callable[[], T], what: str) -> T:
        try:
            return self._services.run_code(function, self._spec.limits.tool_seconds)
        except WorkspaceError as error:
            raise _WorkspaceLimit(f"{what}: {redact(error.what)}") from error
        except Exception as error:
            raise _EnvironmentError(f"{what}: {type(error).__name__}: {redact(str(error))}") from error

    # --- tools -------------------------------------------------------------------------------------

    def _call(self, call: ToolCall) -> AgentResult | None:
        """Run a call, or take its result from the log; return the result of the agent if the call ends it."""
        state = self._state
        state.tool_calls += 1
        problem = self._find_problem(call)
        if problem:
            self._add_output(call, ToolOutput(problem, error=True))
            return None
        started = self._take_event("call")
        if started is not None:
            self._check_same_call(started, call)
            finished = self._events[self._position] if self._position < len(self._events) else None
            if finished is not None and finished.kind == "end":  # an earlier start ended it as in doubt
                return self._finish("in-doubt")
            if finished is not None:
                finished = self._take_event("result")
                assert finished is not None
                content = finished.content
                self._counters.seconds += content["seconds"]
                self._completed.append((call, content))
                self._snapshot = content.get("snapshot", self._snapshot)
                self._add_output(
                    call, ToolOutput(content["text"], error=content["error"], ends=content["ends"])
                )
                if "not_stored" in content:
                    return self._finish("workspace-limit", content["not_stored"])
                return None
            if self._recorded:
                raise AssayError("the run stopped during a tool call")
            if started.content["effect"] == "once":
                if self._spec.in_doubt == "end":
                    why = f"the process died during the call of `{call.name}`, which was not run again"
                    return self._finish("in-doubt", why)
                environment = self._restore_environment()
                return self._complete_call(call, ToolOutput(_UNKNOWN_RESULT, error=True), 0.0, environment)
        environment = self._restore_environment()
        tool = self._tools[call.name]
        if started is None:
            content = {"name": call.name, "arguments": call.arguments, "effect": tool.effect}
            self._append("call", content, wait=tool.effect == "once")  # the others would run again anyway
        began = time.monotonic()
        output = self._run_tool(tool, call.values or {}, environment)
        return self._complete_call(call, output, time.monotonic() - began, environment)

    def _complete_call(
        self, call: ToolCall, output: ToolOutput, seconds: float, environment: Environment
    ) -> AgentResult | None:
        content: dict[str, Any] = {
            "text": output.text,
            "error": output.error,
            "ends": output.ends,
            "seconds": round(seconds, 3),
        }
        if self._tools[call.name].effect != "pure":  # else the last snapshot stays valid
            try:
                content["snapshot"] = self._snapshot = self._take_snapshot(environment)
            except _WorkspaceLimit as error:
                content["not_stored"] = str(error)
        self._append("result", content)
        self._counters.seconds += content["seconds"]
        self._add_output(call, output)
        if "not_stored" in content:
            return self._finish("workspace-limit", content["not_stored"])
        return None

    def _find_problem(self, call: ToolCall) -> str:
        """Return what is wrong with a call; empty if it can run."""
        if problem := call.problem:
            return f"Error: {problem}"
        definition = next((one for one in self._definitions if one.name == call.name), None)
        if definition is None:
            names = ", ".join(one.name for one in self._state.tools)
            return f"Error: there is no tool `{call.name[:80]}`. Tools: {names}"
        if call.name in self._unchecked:
            return ""
        if problem := describe_invalid_value(call.values, definition.parameters):
            return f"Error: invalid arguments of `{call.name}`: {problem}"
        return ""

    def _run_tool(
        self, tool: AgentTool, arguments: Mapping[str, Any], environment: Environment
    ) -> ToolOutput:
        """Run a tool; whatever it raises or returns becomes text."""
        run = self._services.run_in_thread if tool.in_thread else self._services.run_code
        limit_s = self._spec.limits.tool_seconds
        try:
            output = to_output(run(lambda: tool.call(arguments, environment), limit_s))
        except UserCodeTimeout:
            unknown = "; it is unknown whether it took effect" if tool.effect == "once" else ""
            output = ToolOutput(f"Error: the tool did not finish within {limit_s:g} s{unknown}", error=True)
        except AssayError as error:
            output = ToolOutput(f"Error: {error.what}", error=True)
        except Exception as error:  # noqa: BLE001 - task code: the model gets the message, as it would from a service
            output = ToolOutput(f"Error: {type(error).__name__}: {error}", error=True)
        text = redact(output.text).encode("utf-8", "replace").decode()
        if len(text) > MAX_OUTPUT_CHARACTERS:
            cut = (
                f"\n[cut: the result has {len(text)} characters, the first {MAX_OUTPUT_CHARACTERS} are shown]"
            )
            text = text[:MAX_OUTPUT_CHARACTERS] + cut
        return replace(output, text=text)

    def _add_output(self, call: ToolCall, output: ToolOutput) -> None:
        state = self._state
        state.tool_errors += output.error
        state.ends = state.ends or output.ends
        state.entries.append(
            Entry(
                role="tool",
                text=output.text,
                name=call.name or "unknown",
                call_id=call.id,
                error=output.error,
            )
        )

    def _check_same_call(self, event: AgentEvent, call: ToolCall) -> None:
        if (event.content["name"], event.content["arguments"]) != (call.name, call.arguments):
            raise AssayError(
                f"event {event.number} in the journal is a call of `{event.content['name']}`, not of `{call.name}`",
                where=self._where,
                hint="the solver depends on more than the state: start a new run",
            )

    # --- user --------------------------------------------------------------------------------------

    def _ask_user(self, text: str) -> AgentResult | None:
        """Get the next message of the user; return the result of the agent if the user ends or fails."""
        state, user = self._state, self._user
        if user is None:
            raise TaskError(
                "the solver asks the user, but the task has no `user:`", where=self._where, hint="add `user:`"
            )
        event = self._take_event("user")
        if event is None:
            reply = user.reply([one for one in state.entries if one.role != "system"], state.user_turns)
            if reply.failure:
                return self._finish("user-failed", f"{reply.speaker}: {reply.failure}")
            self._append("user", asdict(reply))
        else:
            reply = UserReply(**event.content)
        state.user_turns += 1
        if reply.cost_usd is not None:
            self._counters.user_cost_usd = (self._counters.user_cost_usd or 0.0) + reply.cost_usd
        if reply.text:
            state.entries.append(Entry(role="user", text=reply.text))
        state.user_ended = reply.ended
        if reply.ended and state.turns == 0:
            return self._finish("user-left", "the user ended the conversation before the agent spoke")
        return None

    # --- the end -----------------------------------------------------------------------------------

    def _finish(self, end: AgentEnd, why: str = "", *, answer: str | None = None) -> AgentResult:
        """Return the result of the agent, from the log if it is complete."""
        state = self._state
        result = AgentResult(
            end=end,
            why=why,
            answer=state.last_text if answer is None else answer,
            said=tuple(self._said),
            transcript=tuple(entry.to_json() for entry in state.entries),
            turns=state.turns,
            tool_calls=state.tool_calls,
            tool_errors=state.tool_errors,
            tokens=self._counters.tokens,
            cost_usd=self._counters.cost_usd,
            user_turns=state.user_turns,
            user_cost_usd=self._counters.user_cost_usd,
            seconds=round(self._counters.seconds, 3),
        )
        if end in ("user-failed", "environment-failed"):  # tried again when the run is resumed
            self.result = result
            return result
        event = self._take_event("end")
        if event is None:
            if end != "in-doubt":
                try:
                    result = self._examine_stored(result)
                except _EnvironmentError as error:
                    result = replace(result, end="environment-failed", why=str(error))
                    self.result = result
                    return result
            self._append(
                "end", {key: value for key, value in result.to_json().items() if key != "transcript"}
            )
        else:
            result = AgentResult.from_json({**event.content, "transcript": result.transcript})
        self.result = result
        return result

    def _examine_stored(self, result: AgentResult) -> AgentResult:
        """Examine the environment; if what the agent left cannot be stored, that of the last snapshot."""
        if result.end != "workspace-limit":
            try:
                return self._examine(result)
            except _WorkspaceLimit as error:  # a process that the agent left behind wrote more files
                result = replace(result, end="workspace-limit", why=str(error))
        self.close()  # opened again from the last snapshot, as after a kill
        try:
            return self._examine(result)
        except _WorkspaceLimit:
            return result

    def _examine(self, result: AgentResult) -> AgentResult:
        """Add the final state, the expected state and the checks."""
        environment = self._restore_environment()
        before = self._first_snapshot
        return examine_environment(environment, self._initial_state, before, result, self._run_environment)
