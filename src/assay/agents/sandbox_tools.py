"""Tools that act on a sandbox session: `bash`, `python` and a file editor.

Their effect is `repeatable`: they change nothing but the workspace, which is restored before an interrupted call runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from assay.agents.tools import AgentTool, Effect, Environment, ToolOutput
from assay.core.records.tools import Tool
from assay.sandboxes.sessions import CommandResult, SandboxSession, WorkspaceError

__all__ = ["MAX_RESULT_CHARACTERS", "SANDBOX_TOOLS", "BashTool", "EditorTool", "PythonTool", "cut_text"]

MAX_RESULT_CHARACTERS = 30_000
"""Length of the longest result that a model gets; longer ones lose their middle."""

_MAX_FILE_BYTES = 1 << 20


def cut_text(text: str, limit: int = MAX_RESULT_CHARACTERS) -> str:
    """Return a text without its middle if it is too long, with a line that says so.

    >>> cut_text("abcdefgh", 4)
    'ab\\n[4 of 8 characters are not shown]\\ngh'
    """
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} of {len(text)} characters are not shown]\n{text[-half:]}"


class _SessionTool:
    """What the tools of a session have in common."""

    effect: Effect = "repeatable"
    in_thread = True
    definition: Tool

    def __init__(self, session: SandboxSession, *, timeout_s: float = 60.0) -> None:
        self._session, self._timeout_s = session, timeout_s

    def _choose_timeout(self, arguments: Mapping[str, Any]) -> float:
        """Return the time limit of a call: what the model wants, but not more than the limit of the environment."""
        wanted = arguments.get("timeout_s")
        return min(self._timeout_s, float(wanted)) if wanted else self._timeout_s


_TIMEOUT = {"type": "number", "exclusiveMinimum": 0, "description": "Time limit in seconds."}


class BashTool(_SessionTool):
    """Runs a shell command in the workspace."""

    definition = Tool(
        "bash",
        "Run a command with bash in /box. Files are kept between calls; processes, variables and the current folder are not. "
        "There is no terminal.",
        {
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The command."},
                "timeout_s": _TIMEOUT,
            },
            "required": ["command"],
        },
    )

    def call(self, arguments: Mapping[str, Any], environment: Environment) -> ToolOutput:
        """Run the command."""
        seconds = self._choose_timeout(arguments)
        command = ["bash", "-c", str(arguments["command"])]
        if "\0" in command[2]:
            return ToolOutput("the command contains a NUL character", error=True)
        done = self._session.run(command, timeout_s=seconds, merge_output=True)
        return describe_result(done, seconds)


class PythonTool(_SessionTool):
    """Runs a Python program in the workspace."""

    definition = Tool(
        "python",
        "Run a Python program in /box and return what it prints. Files are kept between calls; variables are not.",
        {
            "type": "object",
            "properties": {
                "code": {"type": "string", "description": "The program."},
                "timeout_s": _TIMEOUT,
            },
            "required": ["code"],
        },
    )

    def call(self, arguments: Mapping[str, Any], environment: Environment) -> ToolOutput:
        """Run the program from standard input, so that it leaves no file."""
        seconds = self._choose_timeout(arguments)
        code = str(arguments["code"]).encode("utf-8", "surrogatepass")
        done = self._session.run(["python", "-X", "utf8", "-"], code, seconds, merge_output=True)
        return describe_result(done, seconds)


def describe_result(done: CommandResult, seconds: float) -> ToolOutput:
    """Return the output of a command, with a line about how it ended unless it succeeded."""
    ends = {
        "time": f"[stopped after {seconds:g} s: time limit]",
        "memory": "[stopped: memory limit]",
        "processes": "[stopped: too many processes]",
        "files": "[stopped: too many files]",
        "stopped": "[stopped]",
        "signal": f"[killed by signal {done.signal}]",
        "exited": f"[exit code {done.exit_code}]" if done.exit_code else "",
    }
    end = ends[done.exit_reason]
    text = cut_text(done.stdout + done.stderr)
    parts = [part for part in (text.rstrip("\n") if end else text, end) if part]
    return ToolOutput("\n".join(parts) or "[no output]", error=done.exit_reason not in ("exited", "signal"))


class EditorTool(_SessionTool):
    """Views and edits files, with the commands that models know from other agents."""

    definition = Tool(
        "str_replace_based_edit_tool",
        "View, create and edit files. `view` shows a file with line numbers, or the names in a folder; `create` writes a file; "
        "`str_replace` replaces a text that occurs exactly once; `insert` inserts a text after a line.",
        {
            "type": "object",
            "properties": {
                "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
                "path": {"type": "string", "description": "A path in /box, absolute or relative to it."},
                "file_text": {"type": "string", "description": "`create`: the content of the file."},
                "old_str": {"type": "string", "description": "`str_replace`: the text to replace."},
                "new_str": {"type": "string", "description": "`str_replace`: what replaces it; default: nothing."},
                "insert_line": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "`insert`: the number of the line after which to insert; 0 for the start.",
                },
                "insert_text": {"type": "string", "description": "`insert`: the text."},
                "view_range": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "minItems": 2,
                    "maxItems": 2,
                    "description": "`view`: first and last line; -1 for the end of the file.",
                },
            },
            "required": ["command", "path"],
        },
    )  # fmt: skip

    def call(self, arguments: Mapping[str, Any], environment: Environment) -> ToolOutput:
        """Run one command of the editor."""
        commands: dict[str, Callable[[str, Mapping[str, Any]], str]] = {
            "view": self._view,
            "create": self._create,
            "str_replace": self._replace,
            "insert": self._insert,
        }
        try:
            return ToolOutput(cut_text(commands[arguments["command"]](str(arguments["path"]), arguments)))
        except WorkspaceError as problem:
            return ToolOutput(problem.what, error=True)

    def _view(self, path: str, arguments: Mapping[str, Any]) -> str:
        listing = self._session.run(["test", "-d", path])
        if listing.succeeded:
            done = self._session.run(["ls", "-Ap", "--", path])
            return done.stdout + done.stderr or "[empty folder]"
        lines = self._read_text(path).split("\n")
        first, last = arguments.get("view_range") or (1, -1)
        last = len(lines) if last == -1 else last
        if not 1 <= first <= last <= len(lines):
            raise WorkspaceError(f"`view_range` must be between 1 and {len(lines)}, got [{first}, {last}]")
        return "\n".join(f"{number:6}\t{lines[number - 1]}" for number in range(first, last + 1))

    def _create(self, path: str, arguments: Mapping[str, Any]) -> str:
        text = _get_text(arguments, "file_text")
        self._session.write_file(path, text.encode("utf-8", "surrogatepass"))
        return f"wrote `{path}` ({len(text)} characters)"

    def _replace(self, path: str, arguments: Mapping[str, Any]) -> str:
        old, new = _get_text(arguments, "old_str"), str(arguments.get("new_str", ""))
        text = self._read_text(path)
        count = text.count(old) if old else 0
        if count != 1:
            found = "is empty" if not old else "does not occur" if count == 0 else f"occurs {count} times"
            raise WorkspaceError(f"`old_str` {found} in `{path}`; it must occur exactly once")
        self._session.write_file(path, text.replace(old, new).encode("utf-8", "surrogateescape"))
        return f"replaced the text in `{path}` (line {text[: text.index(old)].count(chr(10)) + 1})"

    def _insert(self, path: str, arguments: Mapping[str, Any]) -> str:
        inserted = _get_text(arguments, "insert_text")
        if not isinstance(arguments.get("insert_line"), int):
            raise WorkspaceError("the command `insert` needs `insert_line`")
        at, lines = arguments["insert_line"], self._read_text(path).splitlines(keepends=True)
        if at > len(lines):
            raise WorkspaceError(f"`insert_line` is {at}, but `{path}` has {len(lines)} lines")
        if at and not lines[at - 1].endswith("\n"):
            lines[at - 1] += "\n"
        inserted += "" if inserted.endswith("\n") else "\n"
        text = "".join([*lines[:at], inserted, *lines[at:]])
        self._session.write_file(path, text.encode("utf-8", "surrogateescape"))
        return f"inserted the text in `{path}` after line {at}"

    def _read_text(self, path: str) -> str:
        content = self._session.read_file(path, _MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise WorkspaceError(f"`{path}` is larger than {_MAX_FILE_BYTES} bytes; use `bash`")
        if b"\0" in content:
            raise WorkspaceError(f"`{path}` is not a text file")
        return content.decode("utf-8", "surrogateescape")


def _get_text(arguments: Mapping[str, Any], name: str) -> str:
    if not isinstance(arguments.get(name), str):
        raise WorkspaceError(f"the command `{arguments['command']}` needs `{name}`")
    return str(arguments[name])


SANDBOX_TOOLS: Mapping[str, Callable[..., AgentTool]] = {
    "bash": BashTool,
    "python": PythonTool,
    "editor": EditorTool,
}
"""The tools of a sandbox environment by their name in task files."""
