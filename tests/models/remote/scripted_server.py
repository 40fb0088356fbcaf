"""A real HTTP server with scripted replies, down to single bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Act = bytes | float
"""Bytes to send, or seconds to wait. `b""` closes the connection."""

Script = Callable[[ReceivedRequest], "list[Act] | Awaitable[list[Act]]"]


def replying(value: Any, status: int = 200, **headers: str) -> list[Act]:
    """A whole reply of JSON, or of text."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    lines = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    lines |= {name.replace("_", "-"): text for name, text in headers.items()}
    head = "".join(f"{name}: {text}\r\n" for name, text in lines.items())
    return [f"HTTP/1.1 {status} OK\r\n{head}\r\n".encode() + body]


@dataclass
class ScriptedServer:
    """Records requests."""

    port: int = 0
    asked: list[ReceivedRequest] = field(default_factory=list)
    connections: int = 0
    open_now: int = 0
    most_open: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def start_scripted_server(script: Script) -> AsyncIterator[ScriptedServer]:
    """Run the server on a free port inside the block."""
    books = ScriptedServer()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        books.connections += 1
        try:
            while (asked := await _read(reader)) is not None:
                books.asked.append(asked)
                books.open_now += 1
                books.most_open = max(books.most_open, books.open_now)
                try:
                    acts = script(asked)
                    await _act(acts if isinstance(acts, list) else await acts, writer)
                finally:
                    books.open_now -= 1
        except (ConnectionError, asyncio.IncompleteReadError, _ConnectionClosed):
            pass
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=512)
    books.port = server.sockets[0].getsockname()[1]
    try:
        yield books
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _ConnectionClosed(Exception):
    pass


async def _act(acts: list[Act], writer: asyncio.StreamWriter) -> None:
    for act in acts:
        if isinstance(act, bytes):
            if not act:
                raise _ConnectionClosed
            writer.write(act)
            await writer.drain()
        else:
            await asyncio.sleep(act)


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return ReceivedRequest(method, path, headers, body)
