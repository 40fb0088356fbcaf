"""Agents: the settings of an agent task, the events of an agent in the journal, and its result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from assay.core.fingerprints import digest_json

__all__ = [
    "AGENT_METRICS",
    "AGENT_REPEATS",
    "EXTERNAL_SOLVER",
    "FAULT_ENDS",
    "AgentAnswer",
    "AgentEnd",
    "AgentEvent",
    "AgentLimits",
    "AgentResult",
    "AgentSpec",
    "StateChange",
    "UserSpec",
    "compare_states",
    "digest_state",
]

AgentEnd = Literal[
    "answered",
    "submitted",
    "tool-ended",
    "user-ended",
    "exited",
    "signal",
    "turn-limit",
    "token-limit",
    "cost-limit",
    "time-limit",
    "tool-error-limit",
    "workspace-limit",
    "sandbox-limit",
    "step-limit",
    "user-left",
    "user-failed",
    "in-doubt",
    "environment-failed",
]


EXTERNAL_SOLVER = "external"
"""The solver that starts a program per document. The program decides what happens next."""

AGENT_REPEATS = 3
"""How often an agent task runs each document if its file does not say so: single attempts of agents vary a lot."""

AGENT_METRICS = frozenset(("task_success", "state_match", "outputs_said", "milestones"))
"""Metrics that read the result of an agent. The target of the document plays no part."""

FAULT_ENDS: frozenset[str] = frozenset(("user-left", "user-failed", "in-doubt", "environment-failed"))
"""Ends that say nothing about the agent: its document is not scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    """When an agent is stopped. None: no limit."""

    max_turns: int | None = 30
    """Responses of the model."""

    max_tokens: int | None = None
    """Input and output tokens of all responses together."""

    max_cost: float | None = None
    """US dollars for the responses of the model."""

    max_seconds: float | None = None
    """Seconds in which the model or a tool worked. Time between a stop and a resume does not count."""

    max_tool_errors: int | None = 10
    """Failed calls: unknown tools, invalid arguments, exceptions, timeouts."""

    tool_seconds: float = 60.0
    """Seconds one tool call may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSpec:
    """The user that an agent talks to."""

    model: str = ""
    """The model that plays the user; empty: the model given by `--user`, or a scripted user."""

    model_args: Mapping[str, Any] = field(default_factory=dict)
    instructions: Any = None
    """What the model gets as its system prompt: a template, a column or a function."""

    script: Any = None
    """Replies of a scripted user: a list, a column or a function."""

    stop: str = "###STOP###"
    """The text with which the user ends the conversation."""

    starts: bool = True
    """Whether the user speaks first."""

    greeting: str = "Hi! How can I help you today?"
    """What the model that plays the user hears first."""

    generation_kwargs: Mapping[str, Any] = field(default_factory=dict)
    seeds: int | None = None
    """How many different users play the repeats of a document. Repeats with the same one get the same replies to the same
    conversation, so that the variance of the user can be told from that of the agent. None: one user per repeat."""

    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """The keys of a task file that make it an agent task."""

    solver: str | Callable[..., Any] = "tool_loop"
    solver_options: Mapping[str, Any] = field(default_factory=dict)
    limits: AgentLimits = field(default_factory=AgentLimits)
    environment: str | Callable[..., Any] | None = None
    environment_options: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Any, ...] = ()
    """Names of tools, and functions of the task."""

    user: UserSpec | None = None
    in_doubt: Literal["end", "report"] = "end"
    """What happens after the process died during a call with the effect `once`: the document ends as `in-doubt`, or the
    model is told that the result is unknown."""

    @property
    def is_external(self) -> bool:
        """Whether the agent is a program with a loop of its own, which reaches the model through a bridge."""
        return self.solver == EXTERNAL_SOLVER


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """One step of an agent in the journal. The steps of an agent are numbered from 0."""

    number: int
    kind: str
    """`opened`, `call` (before a tool runs), `result` (after it), `user`, or `end`."""

    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StateChange:
    """A difference between two states. `before` or `after` is None where the path does not exist."""

    path: str
    before: Any
    after: Any


def digest_state(state: Any) -> str:
    """Return the hash of a state."""
    return digest_json(state)


def compare_states(before: Any, after: Any, *, limit: int = 200) -> list[StateChange]:
    """Return the differences between two JSON values, at most `limit`.

    >>> compare_states({"stock": {"tea": 3}}, {"stock": {"tea": 2}})
    [StateChange(path='stock.tea', before=3, after=2)]
    """
    found: list[StateChange] = []
    _collect_changes(before, after, "", found, limit)
    return found


def _collect_changes(before: Any, after: Any, path: str, found: list[StateChange], limit: int) -> None:
    if len(found) >= limit or (before == after and type(before) is type(after)):
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            inner = f"{path}.{key}" if path else str(key)
            _collect_changes(before.get(key), after.get(key), inner, found, limit)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            _collect_changes(old, new, f"{path}[{index}]", found, limit)
    else:
        found.append(StateChange(path, before, after))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """What an agent did, as JSON values."""

    end: AgentEnd
    why: str = ""
    answer: str = ""
    """The final answer: what it submitted, else the last text."""

    said: tuple[str, ...] = ()
    """Every text of the agent that the user saw."""

    transcript: tuple[Mapping[str, Any], ...] = ()
    """Who said what, in order: `role`, `text`, `calls`, and for tool results `name` and `error`."""

    state_digest: str = ""
    """The hash of the final state."""

    expected_digest: str = ""
    """The hash of the expected state; empty if the environment does not know it."""

    expected_outputs: tuple[str, ...] = ()
    """Texts that the user must hear."""

    changes: tuple[Mapping[str, Any], ...] = ()
    """How the agent changed the state: `path`, `before`, `after`."""

    missing: tuple[Mapping[str, Any], ...] = ()
    """How the final state differs from the expected one: `path`, `before` (expected), `after`."""

    state: Any = None
    """The final state; None if it is too large to store."""

    checks: Mapping[str, float] = field(default_factory=dict)
    """The checks of the environment."""

    check_reports: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Why checks failed: `score`, `reason` and `output` by check, where the environment says so."""

    diff: str = ""
    """What the agent changed in the files of its sandbox, as a unified diff."""

    exit_code: int | None = None
    """The exit code of an external agent."""

    output: str = ""
    """Standard output and error of an external agent."""

    turns: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    tokens: int = 0
    cost_usd: float | None = None
    user_turns: int = 0
    user_cost_usd: float | None = None
    seconds: float = 0.0

    @property
    def is_fault(self) -> bool:
        """Whether the end says nothing about the agent."""
        return self.end in FAULT_ENDS

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> AgentResult:
        """Return the result that `to_json` described. Unknown keys are ignored."""
        known = {one.name for one in fields(cls)}
        values = {key: value for key, value in content.items() if key in known}
        for key in ("said", "transcript", "expected_outputs", "changes", "missing"):
            values[key] = tuple(values.get(key, ()))
        return cls(**values)


class AgentAnswer(str):
    """The answer of an agent, with everything it did. As text, it is the final answer.

    Filters, metrics and task code that expect text work with it; `result` has the rest.
    """

    result: AgentResult

    @classmethod
    def from_result(cls, result: AgentResult) -> AgentAnswer:
        """Return the answer of an agent."""
        answer = cls(result.answer)
        answer.result = result
        return answer

    @property
    def transcript_text(self) -> str:
        """The whole conversation as text, for judges."""
        return format_transcript(self.result.transcript)

    def __reduce__(self) -> Any:
        return AgentAnswer.from_result, (self.result,)


def format_transcript(transcript: Sequence[Mapping[str, Any]]) -> str:
    """Return a conversation as text.

    >>> format_transcript([{"role": "user", "text": "hi"}, {"role": "tool", "name": "add", "text": "3"}])
    'USER: hi\\n\\nTOOL add: 3'
    """
    blocks = []
    for entry in transcript:
        lines = [entry["text"]] if entry.get("text") else []
        lines += [
            f"-> {call['name']}({call['arguments'] if isinstance(call['arguments'], str) else json.dumps(call['arguments'], ensure_ascii=False)})"
            for call in entry.get("calls", ())
        ]
        name = f" {entry['name']}" if entry.get("name") else ""
        blocks.append(f"{str(entry['role']).upper()}{name}: " + "\n".join(lines))
    return "\n\n".join(blocks)
