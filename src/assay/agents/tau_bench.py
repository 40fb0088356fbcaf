"""Run the environments of a tau-bench checkout: its tools, policies, tasks and rewards.

The checkout is named by the environment variable `TAU_BENCH` or by `path` in the task file. Its code is imported from there;
Assay contains none of it. Its own agents and users are not used: they need `litellm`, which is replaced while it is imported
if it is not installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from assay.agents.tools import Effect, Environment, EnvironmentContext, ToolOutput
from assay.core.errors import MissingPackage, TaskError
from assay.core.records.tools import Tool

__all__ = ["TauBenchEnvironment", "build_user_instructions", "list_documents"]

CHECKOUT_VARIABLE = "TAU_BENCH"
_PURE_PREFIXES = ("get_", "search_", "list_", "find_", "calculate", "think")
_ENDING_TOOLS = ("transfer_to_human_agents",)
_RESPOND = "respond"


@dataclass(frozen=True, slots=True)
class _Domain:
    """One domain of a checkout."""

    load_data: Callable[[], dict[str, Any]]
    tools: Mapping[str, Any]
    tasks: Sequence[Any]
    policy: str
    pristine: Mapping[str, Any]
    """The data before any change; never changed."""


class TauBenchEnvironment:
    """The data of one task, and the tools of the domain."""

    def __init__(self, context: EnvironmentContext) -> None:
        self._domain = _load_domain(
            find_checkout(context.options.get("path")),
            str(context.options.get("domain", "airline")),
            str(context.options.get("split", "test")),
        )
        self._task = self._domain.tasks[int(context.document["task"])]
        self._data = self._domain.load_data()

    def instructions(self) -> str:
        """Return the policy of the domain."""
        return self._domain.policy

    def tools(self) -> Sequence[Any]:
        """Return the tools of the domain."""
        return [_TauBenchTool(name, tool) for name, tool in self._domain.tools.items()]

    def invoke(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool as tau-bench does: without a check of the arguments."""
        return str(self._domain.tools[name].invoke(data=self._data, **arguments))

    def state(self) -> Any:
        """Return the records that differ from the data at the start; None for removed ones."""
        changed: dict[str, Any] = {}
        for table, before in self._domain.pristine.items():
            after = self._data.get(table, {})
            records = {key: value for key, value in after.items() if before.get(key) != value}
            records |= {key: None for key in before if key not in after}
            if records:
                changed[table] = records
        return changed

    def snapshot(self) -> str:
        """Return the changed records."""
        return json.dumps(self.state())

    def restore(self, snapshot: str) -> None:
        """Load the data and apply the changed records."""
        self._data = self._domain.load_data()
        for table, records in json.loads(snapshot).items():
            for key, record in records.items():
                if record is None:
                    self._data[table].pop(key, None)
                else:
                    self._data[table][key] = record

    def expected_state(self) -> Any:
        """Replay the expected actions on fresh data, as tau-bench does; failing actions change nothing."""
        self._data = self._domain.load_data()
        for action in self._task.actions:
            if action.name == _RESPOND or action.name in _ENDING_TOOLS:
                continue
            try:
                self.invoke(action.name, action.kwargs)
            except Exception:  # noqa: BLE001 - an expected action may be refused, too
                continue
        return self.state()

    def expected_outputs(self) -> Sequence[str]:
        """Return what the user must hear."""
        return list(self._task.outputs)

    def close(self) -> None:
        """Nothing to close."""


class _TauBenchTool:
    """A tool of the checkout. It checks its arguments itself."""

    in_thread = False
    checks_arguments = True

    def __init__(self, name: str, tool: Any) -> None:
        self._name = name
        about = tool.get_info()["function"]
        self.definition = Tool(name, str(about.get("description", "")), about["parameters"])
        self.effect: Effect = "pure" if name.startswith(_PURE_PREFIXES) else "repeatable"

    def call(self, arguments: Mapping[str, Any], environment: Environment) -> ToolOutput:
        """Call the tool; an exception is the result `Error: …`, as in tau-bench."""
        assert isinstance(environment, TauBenchEnvironment)
        try:
            text, failed = environment.invoke(self._name, arguments), False
        except Exception as error:  # noqa: BLE001 - code of the checkout
            text, failed = f"Error: {error}", True
        return ToolOutput(text, error=failed, ends=self._name in _ENDING_TOOLS)


def list_documents(
    *, domain: str, path: str | None = None, split: str = "test", **_: Any
) -> dict[str, list[dict[str, Any]]]:
    """Return the tasks of a domain as documents, for `custom_dataset`."""
    found = _load_domain(find_checkout(path), domain, split)
    rows = [
        {
            "task": index,
            "user_id": task.user_id,
            "instruction": task.instruction,
            "actions": [{"name": one.name, "arguments": one.kwargs} for one in task.actions],
            "outputs": list(task.outputs),
        }
        for index, task in enumerate(found.tasks)
    ]
    return {"test": rows}


def build_user_instructions(document: Mapping[str, Any]) -> str:
    """Return the system prompt of the user that the checkout builds for a task."""
    with _importing(find_checkout(None)):
        users = importlib.import_module("tau_bench.envs.user")
    simulation: Any = users.LLMUserSimulationEnv
    return str(simulation.build_system_prompt(None, instruction=document["instruction"]))


def find_checkout(path: str | None) -> Path:
    """Return the folder of the checkout.

    Raises:
        TaskError: It is not named, or it is no checkout of tau-bench.
    """
    named = path or os.environ.get(CHECKOUT_VARIABLE)
    if not named:
        raise TaskError(
            "the checkout of tau-bench is not named",
            where=CHECKOUT_VARIABLE,
            hint=f"git clone https://github.com/sierra-research/tau-bench and set {CHECKOUT_VARIABLE} to its folder",
        )
    folder = Path(named).expanduser().resolve()
    if not (folder / "tau_bench" / "envs" / "base.py").is_file():
        raise TaskError(
            f"`{folder}` is no checkout of tau-bench: it has no tau_bench/envs/base.py",
            where=CHECKOUT_VARIABLE,
        )
    return folder


@lru_cache(maxsize=4)
def _load_domain(checkout: Path, domain: str, split: str) -> _Domain:
    package = f"tau_bench.envs.{domain}"
    if not (checkout / "tau_bench" / "envs" / domain).is_dir():
        raise TaskError(f"tau-bench has no domain `{domain}`", hint="airline or retail")
    with _importing(checkout):
        try:
            load_data = importlib.import_module(f"{package}.data").load_data
            tools = importlib.import_module(f"{package}.tools").ALL_TOOLS
            policy = importlib.import_module(f"{package}.wiki").WIKI
            listed = vars(importlib.import_module(f"{package}.tasks_{split}"))
        except ModuleNotFoundError as error:
            raise MissingPackage.of(error.name or "pydantic", "tau-bench", where=str(checkout)) from None
    tasks = listed["TASKS"] if "TASKS" in listed else listed[f"TASKS_{split.upper()}"]
    names = {tool.get_info()["function"]["name"]: tool for tool in tools}
    return _Domain(load_data, names, tasks, str(policy), load_data())


@contextmanager
def _importing(checkout: Path) -> Iterator[None]:
    """Import from the checkout, without `litellm` if it is not installed: only the parts that Assay does not use need it."""
    stand_in = None
    if importlib.util.find_spec("litellm") is None:
        stand_in = ModuleType("litellm")
        stand_in.completion = None  # type: ignore[attr-defined]
        sys.modules["litellm"] = stand_in
    sys.path.insert(0, str(checkout))
    try:
        yield
    finally:
        sys.path.remove(str(checkout))
        if stand_in is not None:
            del sys.modules["litellm"]
