"""MCP servers as tools of an agent, with the official package `mcp` (extra `mcp`).

A server is listed once, and its definitions are pinned: the digest of each is recorded, and a definition that differs before a call
is an error. Servers are not trusted. One that dies, hangs, sends too much or violates its own schema ends the call with an error
that names what happened; it never stops the run.

    mcp-server-failed     the server does not start, or ended
    mcp-timeout           no answer in time
    mcp-schema-changed    a definition is not the pinned one
    mcp-invalid-result    the answer violates the protocol or the schema of the tool
    mcp-result-too-large  the answer exceeds the size limit
    mcp-error             the server refused the call
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from assay.agents.sandbox_tools import cut_text
from assay.agents.tools import EFFECTS, Effect, Environment, ToolOutput
from assay.core.errors import AssayError, MissingPackage, TaskError
from assay.core.fingerprints import digest_json
from assay.core.json_schema import describe_invalid_schema
from assay.core.records.tools import Tool
from assay.sandboxes.sessions import SandboxSession

__all__ = ["MAX_MESSAGE_BYTES", "McpConnection", "McpError", "McpServer", "McpTool", "check_names"]

MAX_MESSAGE_BYTES = 4 << 20
"""Size of the largest message that is accepted from a server."""

_MAX_TOOLS = 500
_MAX_PAGES = 100
"""Pages of a list of tools."""

_CLOSE_S = 5.0

McpOutcome = Literal[
    "mcp-server-failed",
    "mcp-timeout",
    "mcp-schema-changed",
    "mcp-invalid-result",
    "mcp-result-too-large",
    "mcp-error",
]
T = TypeVar("T")


class McpError(AssayError):
    """An MCP server did not do what it should. `outcome` names what happened."""

    def __init__(self, outcome: McpOutcome, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(f"{outcome}: {what}", where=where, hint=hint)
        self.outcome = outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """How to reach a server: a command that speaks MCP on standard input and output, or the URL of a streamable HTTP server."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    sandboxed: bool = True
    """Whether the command runs inside the sandbox session of the document."""

    timeout_s: float = 30.0
    """Time limit of the start and of each call."""

    effects: Mapping[str, Effect] = field(default_factory=dict)
    """The effect of each tool; the default is `once`, because the state of a server is not restored."""

    pinned: Mapping[str, str] = field(default_factory=dict)
    """The expected digests of definitions, by tool. Other tools are pinned when they are listed."""

    tools: tuple[str, ...] = ()
    """The tools that the agent gets; empty: all."""

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, Any]) -> McpServer:
        """Read a server from a task file.

        Raises:
            TaskError: An entry is unknown or has the wrong type.
        """
        where = f"environment.mcp.{name}"
        if not isinstance(options, Mapping):
            raise TaskError(f"an MCP server is a mapping, not {options!r:.60}", where=where)
        if unknown := sorted({*options} - {*cls.__slots__} | ({*options} & {"name"})):
            known = ", ".join(slot for slot in cls.__slots__ if slot != "name")
            raise TaskError(
                f"unknown entry `{unknown[0]}` of an MCP server", where=where, hint=f"known: {known}"
            )
        if bool(options.get("command")) == bool(options.get("url")):
            raise TaskError("an MCP server has either a `command` or a `url`", where=where)
        command = options.get("command", ())
        if isinstance(command, str):
            raise TaskError("`command` must be a list of words", where=where, hint="`[python, server.py]`")
        for key, kind in (("environment", dict), ("effects", dict), ("pinned", dict), ("tools", list)):
            if not isinstance(given := options.get(key) or kind(), kind):
                meaning = "a list" if kind is list else "a mapping"
                raise TaskError(f"`{key}` must be {meaning}, not {given!r:.60}", where=f"{where}.{key}")
        timeout_s = options.get("timeout_s", 30.0)
        if not isinstance(timeout_s, (int, float)) or isinstance(timeout_s, bool) or not timeout_s > 0:
            what = f"`timeout_s` must be a number above 0, not {timeout_s!r:.60}"
            raise TaskError(what, where=f"{where}.timeout_s")
        effects = dict(options.get("effects") or {})
        for tool, effect in effects.items():
            if effect not in EFFECTS:
                raise TaskError(
                    f"the effect of `{tool}` is `{effect}`", where=where, hint=f"one of {', '.join(EFFECTS)}"
                )
        return cls(
            name=name,
            command=tuple(map(str, command)),
            url=str(options.get("url", "")),
            environment={str(key): str(value) for key, value in (options.get("environment") or {}).items()},
            sandboxed=bool(options.get("sandboxed", True)),
            timeout_s=float(timeout_s),
            effects=effects,
            pinned={str(key): str(value) for key, value in (options.get("pinned") or {}).items()},
            tools=tuple(map(str, options.get("tools") or ())),
        )


class McpConnection:
    """A connection to one server, in an event loop of its own. Its methods may be called from any thread."""

    def __init__(self, server: McpServer, session: SandboxSession | None = None) -> None:
        self.server = server
        self.digests: dict[str, str] = {}
        """The digests of the listed definitions, by tool: for the manifest."""

        self.version = ""
        """The name and the version that the server gives itself."""

        self._session = session
        self._definitions: dict[str, Tool] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: Any = None
        self._closing: asyncio.Event | None = None
        self._oversize: asyncio.Event | None = None
        self._stderr = bytearray()
        self._stop_server: Callable[[], None] = lambda: None

    # --- life --------------------------------------------------------------------------------------

    def open(self) -> McpConnection:
        """Start the server, list its tools and pin their definitions.

        Raises:
            McpError: The server does not work, or a definition is not the pinned one.
            MissingPackage: `mcp` is not installed.
        """
        if importlib.util.find_spec("mcp") is None:
            raise MissingPackage.of("mcp", "an MCP server", extra="mcp")
        ready: Future[None] = Future()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run_loop, args=(ready,), name=f"assay-mcp-{self.server.name}", daemon=True
        )
        self._thread.start()
        try:
            ready.result(2 * self.server.timeout_s + _CLOSE_S)
            listed = self._list_tools()
        except TimeoutError:
            self.close()
            raise self._error("mcp-timeout", "the server did not start in time") from None
        except BaseException:
            self.close()
            raise
        expected = {**self.server.pinned, **self.digests}  # pinned by the task, or when it was open before
        self._definitions = {name: tool for name, (tool, _) in listed.items()}
        self.digests = {name: digest for name, (_, digest) in listed.items()}
        for name, digest in expected.items():
            if self.digests.get(name) != digest:
                self.close()
                found = self.digests.get(name, "absent")
                raise self._error("mcp-schema-changed", f"the tool `{name}` is not the pinned one: {found}")
        return self

    def close(self) -> None:
        """End the connection and the server."""
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            closing = self._closing
            if closing is not None:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(closing.set)
            thread.join(_CLOSE_S)
            self._stop_server()  # a server that ignores the end of its input
            thread.join(_CLOSE_S)
        self._stop_server()

    def tools(self) -> list[McpTool]:
        """Return the tools for the agent.

        Raises:
            McpError: The task names a tool that the server does not have.
        """
        names = self.server.tools or tuple(self._definitions)
        for name in names:
            if name not in self._definitions:
                raise self._error("mcp-error", f"the server has no tool `{name}`")
        return [
            McpTool(self, self._definitions[name], self.server.effects.get(name, "once")) for name in names
        ]

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolOutput:
        """Call a tool, after checking that its definition is still the pinned one.

        Raises:
            McpError: The server does not work, or the definition changed.
        """
        with self._lock:
            _, fresh = self._list_tools().get(name, (None, ""))
            if fresh != self.digests[name]:
                what = "is gone" if not fresh else "has another definition than when it was listed"
                raise self._error("mcp-schema-changed", f"the tool `{name}` {what}")
            result = self._submit(self._client_call("call_tool", name, dict(arguments)))
        return _to_output(result)

    # --- on the loop -------------------------------------------------------------------------------

    def _run_loop(self, ready: Future[None]) -> None:
        loop = self._loop
        assert loop is not None
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._serve(ready))
        except BaseException as problem:  # noqa: BLE001 - the border of the thread
            if not ready.done():
                ready.set_exception(self._translate(problem))
        finally:
            with suppress(RuntimeError):
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
            asyncio.set_event_loop(None)
            loop.close()

    async def _serve(self, ready: Future[None]) -> None:
        from mcp.client.session import ClientSession

        self._closing, self._oversize = asyncio.Event(), asyncio.Event()
        async with AsyncExitStack() as stack:
            reader, writer = await stack.enter_async_context(self._connect())
            client = await stack.enter_async_context(
                ClientSession(reader, writer, read_timeout_seconds=self.server.timeout_s)
            )
            known = await asyncio.wait_for(client.initialize(), self.server.timeout_s)
            self.version = _describe_version(known)
            self._client = client
            ready.set_result(None)
            await self._closing.wait()
            self._client = None

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[Any]:
        if not self.server.url:
            async with self._connect_pipes() as streams:
                yield streams
            return
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        timeout = httpx2.Timeout(self.server.timeout_s)
        transport = _limit_responses(self._report_oversize)
        async with (
            httpx2.AsyncClient(transport=transport, timeout=timeout) as client,
            streamable_http_client(self.server.url, http_client=client, max_sse_event_size=None) as streams,
        ):
            yield streams

    @asynccontextmanager
    async def _connect_pipes(self) -> AsyncIterator[Any]:
        """Yield the streams of a server that is a process."""
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        stdin, stdout, stderr = self._start_process()
        loop = asyncio.get_running_loop()
        to_session, from_server = anyio.create_memory_object_stream[Any](16)
        to_server, from_session = anyio.create_memory_object_stream[Any](16)

        async def read_output() -> None:
            try:
                async for line in self._read_lines(stdout):
                    try:
                        message: Any = SessionMessage(
                            jsonrpc_message_adapter.validate_json(line, by_name=False)
                        )
                    except ValueError as problem:
                        message = problem
                    await to_session.send(message)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                pass
            finally:
                await to_session.aclose()

        async def write_input() -> None:
            try:
                async for message in from_session:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await loop.run_in_executor(None, _write_all, stdin, text.encode() + b"\n")
            except (anyio.ClosedResourceError, OSError):
                await to_session.aclose()

        tasks = [asyncio.ensure_future(work()) for work in (read_output, write_input)]
        tasks.append(asyncio.ensure_future(self._read_stderr(stderr)))
        try:
            yield from_server, to_server
        finally:
            self._stop_server()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (to_session, from_server, to_server, from_session):
                await stream.aclose()
            os.close(stdin)

    def _start_process(self) -> tuple[int, int, int]:
        command, environment = self.server.command, self.server.environment
        if self.server.sandboxed:
            if self._session is None:
                raise self._error("mcp-server-failed", "there is no sandbox session for the server")
            process = self._session.start(command, environment=environment)
            self._stop_server = process.close
            # the loop closes its own copies
            return os.dup(process.stdin), os.dup(process.stdout), os.dup(process.stderr)
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"PATH": os.environ.get("PATH", os.defpath), **environment},
                start_new_session=True,
            )
        except OSError as problem:
            raise self._error("mcp-server-failed", f"cannot start `{command[0]}`: {problem}") from None
        assert child.stdin and child.stdout and child.stderr
        numbers = os.dup(child.stdin.fileno()), os.dup(child.stdout.fileno()), os.dup(child.stderr.fileno())
        for stream in (child.stdin, child.stdout, child.stderr):
            stream.close()

        lock = threading.Lock()

        def kill() -> None:
            with lock:
                if child.returncode is not None:  # reaped: the number may belong to another process
                    return
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()

        self._stop_server = kill
        return numbers

    async def _read_lines(self, descriptor: int) -> AsyncIterator[bytes]:
        """Yield the lines of a pipe. Lines that are too long are dropped and reported."""
        buffer, dropping = bytearray(), False
        async for piece in _read_pipe(descriptor):
            *lines, rest = piece.split(b"\n")
            for line in lines:
                buffer += line
                if not dropping and len(buffer) <= MAX_MESSAGE_BYTES:
                    if buffer.strip():
                        yield bytes(buffer)
                elif not dropping:
                    self._report_oversize()
                buffer, dropping = bytearray(), False
            if not dropping:
                buffer += rest
                if len(buffer) > MAX_MESSAGE_BYTES:
                    self._report_oversize()
                    buffer, dropping = bytearray(), True

    async def _read_stderr(self, descriptor: int) -> None:
        async for piece in _read_pipe(descriptor):
            self._stderr = (self._stderr + piece)[-2000:]

    def _report_oversize(self) -> None:
        if self._oversize is not None:
            self._oversize.set()

    # --- requests ----------------------------------------------------------------------------------

    def _list_tools(self) -> dict[str, tuple[Tool, str]]:
        """Return all tools with the digests of their definitions. The time limit is for the whole list."""
        found: dict[str, tuple[Tool, str]] = {}
        cursor: str | None = None
        cursors: set[str] = set()
        deadline = time.monotonic() + self.server.timeout_s
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._error(
                    "mcp-timeout", f"the list of tools is not complete after {self.server.timeout_s:g} s"
                )
            page = self._submit(self._client_list(cursor, left))
            for tool in page.tools:
                problem = describe_invalid_schema(tool.input_schema)
                if problem or tool.input_schema.get("type") != "object":
                    why = problem or "it is not an object"
                    raise self._error(
                        "mcp-invalid-result", f"the schema of the tool `{tool.name}` is invalid: {why}"
                    )
                if tool.name in found or len(found) >= _MAX_TOOLS:
                    what = (
                        f"lists the tool `{tool.name}` twice" if tool.name in found else "has too many tools"
                    )
                    raise self._error("mcp-invalid-result", f"the server {what}")
                if tool.output_schema and (problem := describe_invalid_schema(tool.output_schema)):
                    what = f"the output schema of the tool `{tool.name}` is invalid: {problem}"
                    raise self._error("mcp-invalid-result", what)
                definition = Tool(tool.name, tool.description or "", tool.input_schema)
                output = {"output_schema": tool.output_schema} if tool.output_schema else {}
                found[tool.name] = definition, digest_json({**definition.to_json(), **output})
            cursor = page.next_cursor
            if cursor is None:
                return found
            if cursor in cursors or len(cursors) >= _MAX_PAGES:
                what = "repeats a page" if cursor in cursors else f"has more than {_MAX_PAGES} pages"
                raise self._error("mcp-invalid-result", f"the list of tools {what}")
            cursors.add(cursor)

    async def _client_list(self, cursor: str | None, seconds: float) -> Any:
        from mcp_types import PaginatedRequestParams

        params = PaginatedRequestParams(cursor=cursor) if cursor is not None else None
        return await self._await_within_limits(self._client.list_tools(params=params), seconds)

    async def _client_call(self, method: str, *arguments: Any) -> Any:
        return await self._await_within_limits(getattr(self._client, method)(*arguments))

    async def _await_within_limits(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Await a request until it is answered, the answer is too large, or the time is over."""
        assert self._oversize is not None
        self._oversize.clear()
        request = asyncio.ensure_future(work)
        oversize = asyncio.ensure_future(self._oversize.wait())
        try:
            done, _ = await asyncio.wait(
                [request, oversize],
                timeout=self.server.timeout_s if seconds is None else seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if self._oversize.is_set():
                raise self._error(
                    "mcp-result-too-large", f"the server sent more than {MAX_MESSAGE_BYTES} bytes"
                )
            if request not in done:
                raise self._error("mcp-timeout", f"no answer within {self.server.timeout_s:g} s")
            return request.result()
        finally:
            for task in (request, oversize):
                task.cancel()
            await asyncio.gather(request, oversize, return_exceptions=True)

    def _submit(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None or self._client is None or not self._loop.is_running():
            work.close()
            raise self._error("mcp-server-failed", "the connection is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(self.server.timeout_s + _CLOSE_S)
        except TimeoutError:
            future.cancel()
            raise self._error("mcp-timeout", f"no answer within {self.server.timeout_s:g} s") from None
        except BaseException as problem:  # noqa: BLE001 - whatever the package raises has a name afterwards
            raise self._translate(problem) from None

    def _translate(self, problem: BaseException) -> BaseException:
        """Return the error of the package as ours."""
        if isinstance(problem, AssayError):
            return problem
        if isinstance(problem, BaseExceptionGroup):
            return self._translate(problem.exceptions[0])
        if not isinstance(problem, Exception):
            return problem
        from mcp.shared.exceptions import MCPError as PackageError
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        text = cut_text(str(problem), 500) or type(problem).__name__
        if isinstance(problem, PackageError):
            if problem.code == CONNECTION_CLOSED:
                return self._error(
                    "mcp-server-failed", f"the server ended the connection{self._format_stderr_end()}"
                )
            if problem.code == REQUEST_TIMEOUT:
                return self._error("mcp-timeout", cut_text(problem.message, 500))
            return self._error("mcp-error", cut_text(problem.message, 500))
        if isinstance(problem, TimeoutError):
            return self._error("mcp-timeout", f"no answer within {self.server.timeout_s:g} s")
        if isinstance(problem, (RuntimeError, ValueError)):  # structured content, types of the protocol
            return self._error("mcp-invalid-result", text)
        return self._error(
            "mcp-server-failed", f"{type(problem).__name__}: {text}{self._format_stderr_end()}"
        )

    def _format_stderr_end(self) -> str:
        text = bytes(self._stderr).decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f" ({cut_text(text, 300)})" if text else ""

    def _error(self, outcome: McpOutcome, what: str) -> McpError:
        return McpError(outcome, what, where=f"MCP server `{self.server.name}`")


def _describe_version(answer: Any) -> str:
    """Return the name and version of a server. The field has another name in older versions of the package."""
    about = getattr(answer, "server_info", None) or getattr(answer, "serverInfo", None)
    words = (str(getattr(about, key, None) or "") for key in ("name", "version"))
    return " ".join(word[:100] for word in words if word)


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool of a server."""

    connection: McpConnection
    definition: Tool
    effect: Effect
    in_thread: bool = True

    def call(self, arguments: Mapping[str, Any], environment: Environment) -> ToolOutput:
        """Call the tool. A server that does not work is a failed call whose text starts with the name of the outcome."""
        try:
            return self.connection.call(self.definition.name, arguments)
        except McpError as problem:
            return ToolOutput(f"[{problem.outcome}] {problem.what.partition(': ')[2]}", error=True)


def _to_output(result: Any) -> ToolOutput:
    parts = []
    for block in result.content:
        if block.type == "text":
            parts.append(block.text)
        elif block.type == "resource" and getattr(block.resource, "text", None) is not None:
            parts.append(block.resource.text)
        else:
            parts.append(f"[{block.type} content is not shown]")
    if not parts and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return ToolOutput(cut_text("\n".join(parts)) or "[no output]", error=bool(result.is_error))


async def _read_pipe(descriptor: int) -> AsyncIterator[bytes]:
    """Yield what a pipe delivers, and close it at the end."""
    loop = asyncio.get_running_loop()
    os.set_blocking(descriptor, False)
    try:
        while True:
            readable = asyncio.Event()
            loop.add_reader(descriptor, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(descriptor)
            try:
                piece = os.read(descriptor, 1 << 16)
            except BlockingIOError:
                continue
            if not piece:
                return
            yield piece
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _limit_responses(on_oversize: Callable[[], None]) -> Any:
    """Return an HTTP transport that ends responses that are too large."""
    import httpx2

    class LimitedStream(httpx2.AsyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in self._stream:
                end = max(piece.rfind(b"\n\n"), piece.rfind(b"\r\n\r\n"))  # of an event
                size = size + len(piece) if end < 0 else len(piece) - end
                if size > MAX_MESSAGE_BYTES:
                    on_oversize()
                    raise httpx2.ReadError("the response is too large")
                yield piece

        async def aclose(self) -> None:
            await self._stream.aclose()

    class LimitedTransport(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: Any) -> Any:
            response = await super().handle_async_request(request)
            response.stream = LimitedStream(response.stream)
            return response

    return LimitedTransport()


def check_names(tools: Sequence[Any]) -> None:
    """Raise an error if two tools have the same name.

    Raises:
        TaskError: Two tools of an environment have the same name.
    """
    names = [tool.definition.name for tool in tools]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise TaskError(
            f"two tools are called `{repeated[0]}`",
            where="environment",
            hint="choose the tools of an MCP server with `tools`",
        )
