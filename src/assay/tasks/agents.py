"""Read the keys of an agent task: `solver`, `limits`, `environment`, `tools`, `user`, `in_doubt`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, TaskError
from assay.core.records.agents import AgentLimits, AgentSpec, UserSpec

__all__ = ["AGENT_KEYS", "parse_agent"]

AGENT_KEYS = ("solver", "limits", "environment", "user", "in_doubt")
_WHOLE = ("max_turns", "max_tokens", "max_tool_errors")


def parse_agent(
    config: Mapping[str, Any], where: Callable[[str], str], folder: Path
) -> tuple[AgentSpec | None, list[AssayError]]:
    """Return the agent of a task file in `folder` and the problems of its keys."""
    reader = _AgentReader(config, where, folder)
    spec = reader.read()
    return (None if reader.problems else spec), reader.problems


class _AgentReader:
    def __init__(self, config: Mapping[str, Any], where: Callable[[str], str], folder: Path) -> None:
        self._config, self._where, self._folder = config, where, folder
        self.problems: list[AssayError] = []

    def read(self) -> AgentSpec:
        solver, solver_options = self._read_named("solver", "name", "tool_loop")
        environment, environment_options = self._read_named("environment", "class", None)
        if environment is not None and not isinstance(environment, str) and not callable(environment):
            self._add(
                f"`environment` must be a name or a class, not {environment!r:.60}",
                "environment",
                "`environment: !function environment.Shop`",
            )
        if environment == "sandbox" and environment_options.get("folder") is not None:
            environment_options["folder"] = self._find_folder(environment_options["folder"])
        if solver is not None and not isinstance(solver, str) and not callable(solver):
            self._add(f"`solver` must be a name or a class, not {solver!r:.60}", "solver")
        in_doubt = self._config.get("in_doubt", "end")
        if in_doubt not in ("end", "report"):
            self._add(f"invalid value for `in_doubt`: {in_doubt!r}", "in_doubt", "end or report")
        return AgentSpec(
            solver=solver or "tool_loop",
            solver_options=solver_options,
            limits=self._read_limits(),
            environment=environment,
            environment_options=environment_options,
            tools=self._read_tools(),
            user=self._read_user(),
            in_doubt="report" if in_doubt == "report" else "end",
        )

    def _read_named(self, key: str, name: str, default: Any) -> tuple[Any, dict[str, Any]]:
        """Return a name or class and its options: `solver: react`, or `solver: {name: react, …}`."""
        value = self._config.get(key, default)
        if not isinstance(value, Mapping):
            return value, {}
        if value.get(name) is None:
            self._add(f"`{key}` needs a `{name}`", key)
        return value.get(name), {str(one): given for one, given in value.items() if one != name}

    def _find_folder(self, given: Any) -> str:
        """Return the path of the folder with which a workspace starts: beside the task file, or in the working directory."""
        path = Path(str(given)).expanduser()
        for found in (self._folder / path, path):
            if isinstance(given, str) and found.is_dir():
                return str(found.absolute())
        self._add(f"folder not found: {given!r:.80}", "environment.folder", f"expected {self._folder / path}")
        return str(given)

    def _read_limits(self) -> AgentLimits:
        given = self._config.get("limits") or {}
        if not isinstance(given, Mapping):
            self._add(f"`limits` must be a mapping, not {given!r:.60}", "limits")
            return AgentLimits()
        known = [one.name for one in fields(AgentLimits)]
        values: dict[str, Any] = {}
        for key, value in given.items():
            if key not in known:
                close = get_close_matches(str(key), known, n=1)
                hint = f"did you mean `{close[0]}`?" if close else f"limits: {', '.join(known)}"
                self._add(f"there is no limit `{key}`", f"limits.{key}", hint)
                continue
            if value is None and key != "tool_seconds":
                values[key] = None
                continue
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or value <= 0 or (key in _WHOLE and value != int(value)):
                kind = "a whole number" if key in _WHOLE else "a number"
                self._add(f"`{key}` must be {kind} above 0, not {value!r}", f"limits.{key}")
                continue
            values[key] = int(value) if key in _WHOLE else float(value)
        return AgentLimits(**values)

    def _read_tools(self) -> tuple[Any, ...]:
        given = self._config.get("tools")
        listed = [] if given is None else given if isinstance(given, list) else [given]
        for index, value in enumerate(listed):
            is_function = callable(value) or (isinstance(value, Mapping) and callable(value.get("function")))
            if not isinstance(value, str) and not is_function:
                self._add(
                    f"not a tool of an agent: {value!r:.60}",
                    f"tools[{index}]",
                    "a name, `!function file.function`, or `{function: !function …, effect: once}`",
                )
        return tuple(listed)

    def _read_user(self) -> UserSpec | None:
        given = self._config.get("user")
        if given is None:
            return None
        if not isinstance(given, Mapping):
            self._add(f"`user` must be a mapping, not {given!r:.60}", "user", "keys: model, instructions, …")
            return None
        known = [one.name for one in fields(UserSpec) if one.name != "where"]
        for key in given:
            if key not in known:
                close = get_close_matches(str(key), known, n=1)
                hint = f"did you mean `{close[0]}`?" if close else f"keys: {', '.join(known)}"
                self._add(f"`user` has no key `{key}`", f"user.{key}", hint)
        if given.get("script") is not None and (given.get("model") or given.get("instructions") is not None):
            self._add("a user has a `script` or a model with `instructions`, not both", "user")
        if given.get("script") is None and given.get("instructions") is None:
            self._add("`user` needs `instructions` (for a model) or a `script`", "user")
        for key, kind in (("model_args", Mapping), ("generation_kwargs", Mapping), ("stop", str)):
            if given.get(key) is not None and not isinstance(given[key], kind):
                meaning = "a mapping" if kind is Mapping else "a text"
                self._add(f"`user.{key}` must be {meaning}, not {given[key]!r:.60}", f"user.{key}")
        seeds = given.get("seeds")
        if seeds is not None and (not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1):
            self._add(f"`user.seeds` must be a whole number above 0, not {seeds!r:.60}", "user.seeds")
        values = {key: value for key, value in given.items() if key in known and value is not None}
        return UserSpec(**values, where=self._where("user"))

    def _add(self, what: str, key: str, hint: str = "") -> None:
        self.problems.append(TaskError(what, where=self._where(key), hint=hint))
