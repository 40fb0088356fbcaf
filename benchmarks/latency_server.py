"""A lightweight server with the OpenAI API that answers every request after a fixed latency.

    python benchmarks/latency_server.py [--latency_ms 50]        # prints its port

It uses asyncio protocols and takes about 0.03 ms of CPU time per request, so measurements show the cost of the client. Chat
completions return a fixed text; completions with `echo` return one log probability per word. Its timers have the precision
of `select` (epoll rounds up to whole milliseconds). `GET /v1/latency` returns the actual mean latency, from the last byte of a
request to the first byte of its reply.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import select
import selectors
from itertools import accumulate

WORDS = re.compile(r"\s*\S+|\s+$")

CHAT = {
    "id": "x",
    "object": "chat.completion",
    "model": "latency",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "The answer is 42."},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 12, "completion_tokens": 6, "total_tokens": 18},
}


def _format_reply(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


CHAT_REPLY = _format_reply(json.dumps(CHAT).encode())


def _build_choice(prompt: list[int] | str, index: int, more: int) -> dict[str, object]:
    """Return a choice with an echoed prompt: no log probability for the first token, -0.5 for the others."""
    tokens = [f" {number}" for number in prompt] if isinstance(prompt, list) else WORDS.findall(prompt)
    tokens += [" more"] * more
    values = [None, *[-0.5] * (len(tokens) - 1)]
    tops = [None, *[{token: -0.5} for token in tokens[1:]]]
    offsets = [0, *accumulate(map(len, tokens[:-1]))]
    logprobs = {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}
    return {"index": index, "text": "".join(tokens), "logprobs": logprobs, "finish_reason": "length"}


def _build_completion(payload: dict[str, object]) -> bytes:
    prompt = payload.get("prompt")
    several = isinstance(prompt, list) and prompt and not isinstance(prompt[0], int)
    prompts = prompt if several else [prompt]
    more = int(payload.get("max_tokens") or 0)  # type: ignore[call-overload]
    choices = [_build_choice(one, number, more) for number, one in enumerate(prompts)]  # type: ignore[arg-type]
    usage = {"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 13}
    return _format_reply(json.dumps({"model": "latency", "choices": choices, "usage": usage}).encode())


class PreciseSelector(selectors.EpollSelector):
    """An epoll selector with precise timeouts: it waits with `select` on the epoll descriptor."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0
        return super().select(timeout)


class Connection(asyncio.Protocol):
    latency_s = 0.05
    calls = 0
    total_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._buffer = bytearray()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._buffer[:end])
            length = 0
            for line in head.split(b"\r\n")[1:]:
                if line[:15].lower() == b"content-length:":
                    length = int(line[15:])
            if len(self._buffer) < end + 4 + length:
                return
            body = bytes(self._buffer[end + 4 : end + 4 + length])
            del self._buffer[: end + 4 + length]
            self._answer(head.split(b" ", 2)[1], body)

    def _answer(self, path: bytes, body: bytes) -> None:
        loop = asyncio.get_running_loop()
        if path.endswith(b"/latency"):
            statistics = {
                "calls": Connection.calls,
                "ms": 1000 * Connection.total_s / max(1, Connection.calls),
            }
            Connection.calls, Connection.total_s = 0, 0.0
            self._transport.write(_format_reply(json.dumps(statistics).encode()))
            return
        received = loop.time()
        if path.endswith(b"/chat/completions"):
            reply = CHAT_REPLY
        elif path.endswith(b"/completions"):
            reply = _build_completion(json.loads(body))
        elif path.endswith(b"/models"):
            reply = _format_reply(b'{"object": "list", "data": [{"id": "latency"}]}')
        else:
            reply = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        loop.call_at(received + self.latency_s, self._reply, reply, received)

    def _reply(self, reply: bytes, received: float) -> None:
        self._transport.write(reply)
        Connection.calls += 1
        Connection.total_s += asyncio.get_running_loop().time() - received


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency_ms", type=float, default=50.0)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    Connection.latency_s = options.latency_ms / 1000
    server = await asyncio.get_running_loop().create_server(
        Connection, "127.0.0.1", options.port, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(PreciseSelector())) as runner:
        runner.run(main())
