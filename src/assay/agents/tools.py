"""The interfaces between the agent loop, its tools and its environment.

A tool declares the kind of its effect. The loop writes every call to the journal before and after it runs, and uses the kind
if the process dies in between:

    pure         no effect: run again
    repeatable   changes only the environment, which is restored first: run again
    once         has an effect outside the environment: never run again
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from assay.core.records.tools import Tool

__all__ = [
    "EFFECTS",
    "AgentTool",
    "CheckReport",
    "Effect",
    "Environment",
    "EnvironmentContext",
    "SupportsChanges",
    "SupportsChecks",
    "SupportsExpectedOutputs",
    "SupportsExpectedState",
    "SupportsInstructions",
    "SupportsPins",
    "SupportsSnapshots",
    "ToolOutput",
]

Effect = Literal["pure", "repeatable", "once"]
EFFECTS: tuple[Effect, ...] = ("pure", "repeatable", "once")


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a call returns to the model."""

    text: str
    error: bool = False
    """Whether the call failed. Failed calls count towards `max_tool_errors`."""

    ends: bool = False
    """Whether the agent stops after this call."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """How a check ended."""

    score: float
    reason: str = ""
    """Why the score is not 1."""

    output: str = ""
    """What the check printed, shortened."""


class AgentTool(Protocol):
    """A tool that the loop can call."""

    @property
    def definition(self) -> Tool:
        """The name, description and JSON schema, as the model gets them."""
        ...

    @property
    def effect(self) -> Effect:
        """What the loop may do with a call that was interrupted."""
        ...

    @property
    def in_thread(self) -> bool:
        """Whether calls run in a worker thread, so that other documents continue meanwhile.

        False for the code of a task, which runs in the main thread.
        """
        ...

    def call(self, arguments: Mapping[str, Any], environment: Environment) -> ToolOutput | str:
        """Run the tool. The arguments match the schema, unless it has an attribute `checks_arguments = True`. An exception becomes a failed call with its message."""
        ...


class Environment(Protocol):
    """What the tools of one agent act on. One environment is opened per document and repeat."""

    def tools(self) -> Sequence[Any]:
        """Return the tools of the environment: `AgentTool` objects, functions or methods."""
        ...

    def state(self) -> Any:
        """Return the state as a JSON value. It is stored, hashed, compared and shown."""
        ...

    def close(self) -> None:
        """Release resources. Called once, also after errors."""
        ...


@runtime_checkable
class SupportsSnapshots(Protocol):
    """An environment that can be restored after the process died.

    Other environments are opened again, and the calls with the effect `repeatable` run again in the same order. They cannot
    have tools with the effect `once`.
    """

    def snapshot(self) -> str:
        """Return a snapshot of the environment: the content, or the name of what `context.folder` holds."""
        ...

    def restore(self, snapshot: str) -> None:
        """Make the environment what it was when `snapshot` returned this text."""
        ...


@runtime_checkable
class SupportsExpectedState(Protocol):
    """An environment that knows the state that a perfect agent reaches."""

    def expected_state(self) -> Any:
        """Return the expected state. Called once, at the end; it may change the environment."""
        ...


@runtime_checkable
class SupportsExpectedOutputs(Protocol):
    """An environment that knows what the user must hear."""

    def expected_outputs(self) -> Sequence[str]:
        """Return texts that must occur in what the agent says. Called once, at the end."""
        ...


@runtime_checkable
class SupportsChecks(Protocol):
    """An environment that checks what the agent did: milestones, or programs that test its files."""

    def checks(self) -> Mapping[str, float | CheckReport]:
        """Return a score between 0 and 1 by name, or a `CheckReport` that also says why. Called once, at the end."""
        ...


@runtime_checkable
class SupportsChanges(Protocol):
    """An environment that shows what changed in it as a text, such as a diff of files."""

    def describe_changes(self, before: str) -> str:
        """Return the changes since a snapshot of its own. Called once, at the end, before the checks."""
        ...


@runtime_checkable
class SupportsPins(Protocol):
    """An environment that uses what is not part of the task and must not change during a run, such as MCP servers."""

    def describe_pins(self) -> Mapping[str, Any]:
        """Return names, versions and digests as JSON: for the manifest, and for `context.pins` of later agents."""
        ...


@runtime_checkable
class SupportsInstructions(Protocol):
    """An environment with text for the system message of the agent: a policy, the time, the user's name."""

    def instructions(self) -> str:
        """Return the text. Called once, after the environment was opened."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentContext:
    """What an environment may know about its agent. The class of an environment is called with it."""

    document: Mapping[str, Any]
    """The fields of the document."""

    repeat: int
    seed: int
    """A seed for this document and repeat; the same when the run is resumed."""

    folder: Path
    """A folder of its own inside the folder of the run. It is kept when the run is resumed. Not created yet."""

    options: Mapping[str, Any]
    """The entries below `environment:` in the task file, other than `class`."""

    pins: Mapping[str, Any] = field(default_factory=dict)
    """What `describe_pins` returned for an earlier agent of the task; empty for the first one."""
