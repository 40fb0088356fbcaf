"""The environment `sandbox`: a workspace per document, with tools that act on it and programs that check it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from assay.agents.mcp_servers import McpConnection, McpError, McpServer, check_names
from assay.agents.sandbox_tools import SANDBOX_TOOLS, cut_text
from assay.agents.tools import AgentTool, CheckReport, EnvironmentContext
from assay.core.errors import AssayError, TaskError
from assay.core.fingerprints import digest_json
from assay.core.records.programs import ResourceLimits
from assay.sandboxes.sessions import SandboxSession, WorkspaceError
from assay.sandboxes.snapshots import FileEntry, SnapshotError, SnapshotStore

__all__ = ["CheckError", "DocumentSetupError", "SandboxEnvironment"]

_MAX_STATE_FILES = 200
_MAX_STATE_TEXT_BYTES = 4000
"""Larger files are a hash in the state."""

_COMMAND_S = 50.0
"""Default time limit of a command: less than that of a tool call, so that the command ends before the call is abandoned."""

_MAX_CHECK_OUTPUT = 2000
_FIND_MISSING = 'for name; do command -v -- "$name" > /dev/null || { printf %s "$name"; exit 1; }; done'
_ASSIGNMENT = re.compile(r"\w+=")
_PROGRAM_NAME = re.compile(r"(/(usr|bin|opt)/[\w./+-]+)|[\w.+-]+|\[+")
_BEFORE_COMMAND = frozenset(("!", "{", "do", "elif", "else", "if", "then", "time", "until", "while"))

_OPTIONS = (
    "check_files",
    "checks",
    "files",
    "folder",
    "limits",
    "mcp",
    "network",
    "readable",
    "sandbox",
    "setup",
    "tools",
)
_MAPPINGS = ("check_files", "checks", "files", "limits", "mcp")
_SANDBOXES = ("auto", "namespaces", "bubblewrap")


class DocumentSetupError(TaskError):
    """The workspace of one document cannot be prepared: its fields, files or `setup` do not work. Others may."""


class CheckError(TaskError):
    """A check cannot be run, so it says nothing about the agent."""


class SandboxEnvironment:
    """A sandbox session as the environment of an agent.

    The document may have `files`, `setup`, `checks` and `check_files`, which are added to those of the task.
    """

    def __init__(self, context: EnvironmentContext) -> None:
        options, document = context.options, context.document
        if problems := self.check_options(options):
            raise problems[0]
        self._checks = {**_get_mapping(options, "checks"), **_get_document_mapping(document, "checks")}
        self._check_files = {
            **_get_mapping(options, "check_files"),
            **_get_document_mapping(document, "check_files"),
        }
        for path in self._check_files:
            if Path(path).is_absolute() or ".." in Path(path).parts or "\0" in path:
                raise DocumentSetupError(f"`{path}` is not a path in the workspace", where="check_files")
        self.session = SandboxSession(
            SnapshotStore(context.folder / "snapshots"),
            files=Path(options["folder"]) if options.get("folder") else None,
            limits=_read_limits(_get_mapping(options, "limits")),
            network=bool(options.get("network", False)),
            sandbox=str(options.get("sandbox", "auto")),
            readable=[str(path) for path in options.get("readable", ())],
        )
        self._timeout_s = self.session.limits.time_s
        names = options.get("tools", list(SANDBOX_TOOLS))
        self._tools: list[AgentTool] = [
            SANDBOX_TOOLS[name](self.session, timeout_s=self._timeout_s) for name in names
        ]
        self.servers = [
            McpConnection(_pin_server(McpServer.from_options(str(name), entry), context.pins), self.session)
            for name, entry in _get_mapping(options, "mcp").items()
        ]
        """The connections to MCP servers; `digests` of each are for the manifest."""

        files = {**_get_mapping(options, "files"), **_get_document_mapping(document, "files")}
        self.session.open()
        try:
            self._write_files(files)
            for command in (options.get("setup"), document.get("setup")):
                self._set_up(command)
            for connection in self.servers:
                self._tools += connection.open().tools()
            check_names(self._tools)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> list[AssayError]:
        """Return what is wrong with the entries below `environment` in a task file."""
        problems: list[AssayError] = []
        for name in options:
            if name not in _OPTIONS:
                what = f"unknown option `{name}` of the environment `sandbox`"
                hint = _suggest_name(name, _OPTIONS)
                problems.append(TaskError(what, where=f"environment.{name}", hint=hint))
        tools = options.get("tools", [])
        if not isinstance(tools, list):
            what = f"`tools` must be a list, not {tools!r:.60}"
            problems.append(TaskError(what, where="environment.tools", hint="`tools: [bash]`"))
            tools = []
        for name in tools:
            if name not in SANDBOX_TOOLS:
                what, hint = f"no sandbox tool is called `{name}`", _suggest_name(name, SANDBOX_TOOLS)
                problems.append(TaskError(what, where="environment.tools", hint=hint))
        if options.get("sandbox", "auto") not in _SANDBOXES:
            what = f"the sandbox `{options['sandbox']}` has no sessions"
            hint = f"one of {', '.join(_SANDBOXES)}"
            problems.append(TaskError(what, where="environment.sandbox", hint=hint))
        for name in _MAPPINGS:
            try:
                values = _get_mapping(options, name)
                if name == "limits":
                    _read_limits(values)
            except AssayError as problem:
                problems.append(problem)
                continue
            for server, entry in values.items() if name == "mcp" else ():
                try:
                    McpServer.from_options(str(server), entry)
                except AssayError as problem:
                    problems.append(problem)
        return problems

    def tools(self) -> Sequence[AgentTool]:
        """Return the tools of the session."""
        return self._tools

    def state(self) -> Any:
        """Return the files: the text of small ones, the hash of others. The snapshot id stands for files that are left out."""
        snapshot = self.session.snapshot()
        entries = self.session.store.read_snapshot(snapshot)
        files = {entry.path: self._describe(entry) for entry in entries[:_MAX_STATE_FILES]}
        more = len(entries) - len(files)
        return {"files": files, **({"more_files": more, "snapshot": snapshot} if more else {})}

    def checks(self) -> Mapping[str, CheckReport]:
        """Write the check files and run the check programs: 1 for each that exits with 0.

        Raises:
            CheckError: The program of a check does not exist, or the sandbox stopped it.
            SandboxError: The session does not work.
        """
        if self._checks and (problem := self._write_check_files()):
            return {str(name): CheckReport(0.0, problem) for name in self._checks}
        return {str(name): self._run_check(str(name), str(command)) for name, command in self._checks.items()}

    def describe_changes(self, before: str) -> str:
        """Return how the files differ from those of a snapshot, as a diff."""
        try:
            return self.session.diff(before.partition("-")[0], self.session.snapshot())
        except (WorkspaceError, SnapshotError) as problem:  # more than a snapshot can hold: the checks decide
            return f"[the changes cannot be shown: {problem.what}]\n"

    def snapshot(self) -> str:
        """Store the files; return the id of the snapshot and the digest of the definitions of MCP servers."""
        name = self.session.snapshot()
        return f"{name}-{self._digest_definitions()}" if self.servers else name

    def restore(self, snapshot: str) -> None:
        """Replace the files with those of a snapshot. MCP servers start again and must list the same tools."""
        name, _, definitions = snapshot.partition("-")
        for connection in self.servers:
            connection.close()
        self.session.restore(name)
        for connection in self.servers:
            connection.open()
        if definitions and definitions != self._digest_definitions():
            raise McpError(
                "mcp-schema-changed", "the servers list other tools than before the run was interrupted"
            )

    def describe_pins(self) -> Mapping[str, Any]:
        """Return the versions of the MCP servers and the digests of their definitions."""
        if not self.servers:
            return {}
        return {
            "mcp": {
                one.server.name: {"version": one.version, "tools": dict(sorted(one.digests.items()))}
                for one in self.servers
            }
        }

    def close(self) -> None:
        """End the MCP servers and the session."""
        for connection in self.servers:
            connection.close()
        self.session.close()

    def _digest_definitions(self) -> str:
        return digest_json([connection.digests for connection in self.servers])

    def _run_check(self, name: str, command: str) -> CheckReport:
        done = self.session.run(["bash", "-c", command], timeout_s=self._timeout_s, merge_output=True)
        output = cut_text(done.stdout + done.stderr, _MAX_CHECK_OUTPUT)
        if done.succeeded:
            return CheckReport(1.0, output=output)
        if done.exit_reason == "stopped":
            raise CheckError(f"the check `{name}` was stopped by the sandbox", where="checks")
        if done.exit_code in (126, 127) and (missing := self._find_missing_program(command)):
            raise CheckError(
                f"the check `{name}` needs `{missing}`, which the sandbox does not have", where="checks"
            )
        if done.exit_reason == "exited":
            reason = f"exit code {done.exit_code}"
        elif done.exit_reason == "time":
            reason = f"time limit of {self._timeout_s:g} s"
        elif done.exit_reason == "signal":
            reason = f"signal {done.signal}"
        else:
            reason = f"limit of the sandbox: {done.exit_reason}"
        return CheckReport(0.0, reason, output)

    def _find_missing_program(self, command: str) -> str:
        """Return a program of a check that is not installed. The agent cannot change the result: it sees only the workspace."""
        names = _list_programs(command)
        done = self.session.run(["bash", "-c", _FIND_MISSING, "bash", *names], timeout_s=self._timeout_s)
        return "bash" if done.exit_code == 127 else done.stdout

    def _write_check_files(self) -> str:
        """Replace the check files, which the agent may have changed; return why the agent made this impossible."""
        for path, text in self._check_files.items():
            self.session.run(["rm", "-rf", "--", f"./{path}"], timeout_s=self._timeout_s)
            try:
                self.session.write_file(str(path), str(text).encode("utf-8", "surrogatepass"))
            except WorkspaceError as problem:
                return problem.what
        return ""

    def _write_files(self, files: Mapping[str, Any]) -> None:
        for path, text in files.items():
            try:
                self.session.write_file(str(path), str(text).encode("utf-8", "surrogatepass"))
            except (WorkspaceError, ValueError) as problem:
                what = problem.what if isinstance(problem, AssayError) else str(problem)
                raise DocumentSetupError(what, where="environment.files") from None

    def _set_up(self, command: Any) -> None:
        if not command:
            return
        done = self.session.run(["bash", "-c", str(command)], timeout_s=self._timeout_s, merge_output=True)
        if not done.succeeded:
            raise DocumentSetupError(
                f"the command `setup` failed ({done.exit_reason} {done.exit_code or done.signal or ''}): "
                f"{cut_text(done.stdout, 500)}",
                where="environment.setup",
            )

    def _describe(self, entry: FileEntry) -> Any:
        if entry.kind != "file":
            return {"kind": entry.kind, **({"target": entry.target} if entry.target else {})}
        if entry.size <= _MAX_STATE_TEXT_BYTES:
            content = self.session.store.read_content(entry)
            try:
                return content.decode()
            except UnicodeDecodeError:
                pass
        return {"sha256": entry.sha256, "size": entry.size}


def _pin_server(server: McpServer, pins: Mapping[str, Any]) -> McpServer:
    """Return a server whose definitions must be those of an earlier document of the run."""
    known = pins.get("mcp", {}).get(server.name, {}).get("tools", {})
    return replace(server, pinned={**known, **server.pinned})


def _list_programs(command: str) -> list[str]:
    """Return the programs that a shell command names, without those in the workspace. Finds the plain cases only.

    >>> _list_programs("cd src && A=1 pytest -q | ./filter; ! grep x")
    ['cd', 'pytest', 'grep']
    """
    if "()" in command:  # functions
        return []
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    names, starts = [], True
    try:
        for word in words:
            if set(word) <= set("();|&"):
                starts = True
            elif starts and word not in _BEFORE_COMMAND and not _ASSIGNMENT.match(word):
                starts = False
                if _PROGRAM_NAME.fullmatch(word):
                    names.append(word)
    except ValueError:  # a quote that does not end
        return []
    return names


def _get_mapping(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = values.get(name) or {}
    if not isinstance(value, Mapping):
        raise TaskError(f"`{name}` must be a mapping, not {value!r:.60}", where=f"environment.{name}")
    return value


def _get_document_mapping(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name) or {}
    if not isinstance(value, Mapping):
        raise DocumentSetupError(
            f"`{name}` must be a mapping, not {value!r:.60}", where=f"field `{name}` of the document"
        )
    return value


def _read_limits(values: Mapping[str, Any]) -> ResourceLimits:
    for name, value in values.items():
        where = f"environment.limits.{name}"
        if name not in ResourceLimits.__slots__:
            hint = _suggest_name(name, ResourceLimits.__slots__)
            raise TaskError(f"unknown limit `{name}` of the environment `sandbox`", where=where, hint=hint)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
            raise TaskError(f"`{name}` must be a number above 0, not {value!r:.60}", where=where)
    return ResourceLimits(**{"time_s": _COMMAND_S, "output_bytes": 64 << 10, **values})


def _suggest_name(name: Any, known: Iterable[str]) -> str:
    listed = list(known)
    close = get_close_matches(str(name), listed, n=1)
    return f"did you mean `{close[0]}`?" if close else f"known: {', '.join(listed)}"
