"""The environment `sandbox`: a workspace per document, with tools that act on it and programs that check it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.agents.mcp_servers import McpConnection, McpError, McpServer, check_names
from assay.agents.sandbox_tools import SANDBOX_TOOLS, cut_text
from assay.agents.tools import AgentTool, EnvironmentContext
from assay.core.errors import AssayError, TaskError
from assay.core.fingerprints import digest_json
from assay.core.records.programs import ResourceLimits
from assay.sandboxes.sessions import SandboxSession, WorkspaceError
from assay.sandboxes.snapshots import FileEntry, SnapshotStore

__all__ = ["DocumentSetupError", "SandboxEnvironment"]

_MAX_STATE_FILES = 200
_MAX_STATE_TEXT_BYTES = 4000
"""Larger files are a hash in the state."""

_COMMAND_S = 50.0
"""Default time limit of a command: less than that of a tool call, so that the command ends before the call is abandoned."""

_OPTIONS = ("checks", "files", "folder", "limits", "mcp", "network", "readable", "sandbox", "setup", "tools")


class DocumentSetupError(TaskError):
    """The workspace of one document cannot be prepared: its fields, files or `setup` do not work. Others may."""


class SandboxEnvironment:
    """A sandbox session as the environment of an agent.

    The document may have `files`, `setup` and `checks`, which are added to those of the task.
    """

    def __init__(self, context: EnvironmentContext) -> None:
        options, document = context.options, context.document
        for name in options:
            if name not in _OPTIONS:
                raise TaskError(
                    f"unknown option `{name}` of the environment `sandbox`",
                    where="environment",
                    hint=f"known: {', '.join(_OPTIONS)}",
                )
        self._checks = {**_get_mapping(options, "checks"), **_get_document_mapping(document, "checks")}
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
        for name in names:
            if name not in SANDBOX_TOOLS:
                known = ", ".join(SANDBOX_TOOLS)
                raise TaskError(
                    f"no sandbox tool is called `{name}`", where="environment", hint=f"known: {known}"
                )
        self._tools: list[AgentTool] = [
            SANDBOX_TOOLS[name](self.session, timeout_s=self._timeout_s) for name in names
        ]
        self.servers = [
            McpConnection(McpServer.from_options(str(name), entry), self.session)
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

    def tools(self) -> Sequence[AgentTool]:
        """Return the tools of the session."""
        return self._tools

    def state(self) -> Any:
        """Return the files: the text of small ones, the hash of others."""
        entries = self.session.store.read_snapshot(self.session.snapshot())
        files = {entry.path: self._describe(entry) for entry in entries[:_MAX_STATE_FILES]}
        more = len(entries) - len(files)
        return {"files": files, **({"more_files": more} if more else {})}

    def checks(self) -> Mapping[str, float]:
        """Run the check programs: 1 for each that exits with 0."""
        scores = {}
        for name, command in self._checks.items():
            done = self.session.run(["bash", "-c", str(command)], timeout_s=self._timeout_s)
            scores[str(name)] = 1.0 if done.succeeded else 0.0
        return scores

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

    def close(self) -> None:
        """End the MCP servers and the session."""
        for connection in self.servers:
            connection.close()
        self.session.close()

    def _digest_definitions(self) -> str:
        return digest_json([connection.digests for connection in self.servers])

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
    defaults = {"time_s": _COMMAND_S, "output_bytes": 64 << 10}
    try:
        return ResourceLimits(**{**defaults, **values})
    except TypeError:
        known = ", ".join(ResourceLimits.__slots__)
        raise TaskError(
            f"unknown limit in {sorted(values)}", where="environment.limits", hint=f"known: {known}"
        ) from None
