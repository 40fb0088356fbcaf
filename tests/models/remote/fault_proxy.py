"""A proxy that disturbs a share of the calls to a real server in eight ways, and records them.

What it sends beside a fault looks like an answer where possible, so that accepting it gives a wrong text.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.models.remote.scripted_server import Act, ReceivedRequest, replying, start_scripted_server

from assay.models.remote.transport.address import parse_address
from assay.models.remote.transport.http import HttpClient, Reply

POISON = "POISON"
_POISONED = {
    "choices": [{"index": 0, "message": {"content": POISON}, "text": POISON, "finish_reason": "stop"}],
    "output": [{"type": "message", "content": [{"type": "output_text", "text": POISON}]}],
}

KINDS = "429 500 dropped stalled half empty page drip".split()
SLOW_KINDS = ("stalled", "drip")
"""The kinds that end with a timeout of the client."""


@dataclass
class FaultProxy:
    """In front of a server, failing `share` of the calls with each of the kinds."""

    upstream: str
    share: float
    seed: int
    port: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    """Request body -> how often it was asked."""

    faults: Counter[str] = field(default_factory=Counter)
    """Kind of fault -> number of calls; `refused`: an error of the server itself; empty: none."""

    given: dict[str, list[str]] = field(default_factory=dict)
    """Request body -> the whole answers that went out."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def fault(self, asked: ReceivedRequest) -> str:
        """Return the fault of a call, determined by its content and count, so that every run is the same."""
        body = asked.body.decode()
        self.calls[body] += 1
        generator = random.Random(f"{self.seed} {self.calls[body]} {body}")
        place = generator.random()
        return KINDS[int(place / self.share)] if place < self.share * len(KINDS) else ""

    def acts(self, kind: str, asked: ReceivedRequest, reply: Reply) -> list[Act]:
        body = reply.body
        match kind:
            case "429":
                return replying(_POISONED, 429, Retry_After="0.01")
            case "500":
                return replying(_POISONED, 500)
            case "dropped":
                return [b""]
            case "stalled":
                return [60.0]
            case "half":
                (whole,) = replying(body)
                assert isinstance(whole, bytes)
                return [whole[: -len(body) // 2], b""]
            case "empty":
                return replying({**json.loads(body), "choices": [], "output": []})
            case "page":
                return replying(_POISONED, Content_Type="text/html")
            case "drip":
                (whole,) = replying(body)
                assert isinstance(whole, bytes)
                head = len(whole) - len(body)
                drops: list[Act] = [one for byte in whole[head : head + 20] for one in (bytes([byte]), 0.2)]
                return [whole[:head], *drops, 60.0]
        self.given.setdefault(asked.body.decode(), []).append(_text(json.loads(body)))
        return replying(body, reply.status)


def _text(value: Any) -> str:
    if "choices" in value:
        choice = value["choices"][0]
        return str(choice["message"]["content"] if "message" in choice else choice["text"])
    return ""


@contextmanager
def failing(upstream: str, *, share: float = 0.1, seed: int = 1) -> Iterator[FaultProxy]:
    """The proxy on a free port, in a thread of its own."""
    proxy = FaultProxy(upstream, share, seed)
    ready, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        client = HttpClient(parse_address(upstream), headers={})

        async def script(asked: ReceivedRequest) -> list[Act]:
            path = asked.path.removeprefix("/v1")
            reply = await client.request(asked.method, path, asked.body, timeout_s=60)
            if asked.method == "GET":
                return replying(reply.body, reply.status)
            kind = proxy.fault(asked)
            proxy.faults[kind or ("" if reply.status == 200 else "refused")] += 1
            return proxy.acts(kind, asked, reply)

        async with start_scripted_server(script) as server:
            proxy.port = server.port
            ready.set()
            await stop.wait()
        await client.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield proxy
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(10)
