"""Measure the CPU time of one call to Anthropic's API with Assay's adapter, the anthropic package and litellm.

    python benchmarks/hosted_models.py            # measures the installed packages

A server in another process answers every call after 50 ms, with 32 calls in flight. The result is the CPU time of the client
process, which hardly depends on the load of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import Any

from measurements import Measurement, Report, add_json_option

from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import Generate, Settings

PORT = 8765
CONCURRENCY = 32
REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-haiku-4-5",
    "content": [{"type": "text", "text": "42"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 20, "output_tokens": 2},
}
Ask = Callable[[int], Awaitable[Any]]


def make_request(number: int) -> Generate:
    prompt = Prompt((Message("user", (Text(f"What is {number} + 1?"),)),), chat=True)
    return Generate(
        task="t", document=number, prompt=prompt, settings=Settings({"max_gen_toks": 12, "until": ["\n"]})
    )


async def open_model(model: Any) -> Ask:
    await model.open()

    async def ask(number: int) -> None:
        async for outcome in model.answer([make_request(number)]):
            assert outcome.value == "42", outcome

    return ask


async def open_assay() -> Ask:
    from assay.models.hosted.anthropic import AnthropicModel

    return await open_model(
        AnthropicModel(
            model="claude-haiku-4-5", base_url=f"http://127.0.0.1:{PORT}/v1", num_concurrent=CONCURRENCY
        )
    )


async def open_litellm() -> Ask:
    from assay.models.hosted.litellm import LiteLLMModel

    name = "anthropic/claude-haiku-4-5"
    return await open_model(
        LiteLLMModel(model=name, base_url=f"http://127.0.0.1:{PORT}", num_concurrent=CONCURRENCY)
    )


async def open_anthropic() -> Ask:
    import anthropic

    client = anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{PORT}")

    async def ask(number: int) -> None:
        messages: Any = [{"role": "user", "content": f"What is {number} + 1?"}]
        reply = await client.messages.create(model="claude-haiku-4-5", max_tokens=12, messages=messages)
        assert reply.content[0].text == "42"

    return ask


async def measure(make: Callable[[], Awaitable[Ask]], count: int) -> tuple[float, float]:
    """Return the CPU milliseconds per call and the calls per second."""
    ask = await make()

    async def work(numbers: Any) -> None:
        for number in numbers:
            await ask(number)

    async def ask_all(numbers: range) -> None:
        shared = iter(numbers)
        await asyncio.gather(*(work(shared) for _ in range(CONCURRENCY)))

    await ask_all(range(2 * CONCURRENCY))
    began, used = time.monotonic(), time.process_time()
    await ask_all(range(2 * CONCURRENCY, 2 * CONCURRENCY + count))
    return 1000 * (time.process_time() - used) / count, count / (time.monotonic() - began)


async def serve() -> None:
    body = json.dumps(REPLY).encode()
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    )

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
                size = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
                await reader.readexactly(size)
                await asyncio.sleep(0.05)
                writer.write(head + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", PORT, backlog=512)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of calls")
    add_json_option(parser)
    given = parser.parse_args()
    report = Report(given.json)
    os.environ["ANTHROPIC_API_KEY"] = "sk-not-a-key-at-all"
    server = subprocess.Popen([sys.executable, __file__, "serve"])
    time.sleep(1.5)
    found: dict[str, float] = {}
    try:
        for name, make, package, count in (
            ("assay", open_assay, "assay", 3000),
            ("anthropic", open_anthropic, "anthropic", 1500),
            ("litellm", open_litellm, "litellm", 500),
        ):
            if find_spec(package) is None:
                print(f"{name}: not installed")
                continue
            milliseconds, rate = asyncio.run(measure(make, round(count * given.scale)))
            found[name] = milliseconds
            print(
                f"{name}: {milliseconds:.2f} ms of CPU time per call, {rate:.0f} of {CONCURRENCY / 0.05:.0f} calls/s",
                flush=True,
            )
            if name != "assay":
                report.add(
                    Measurement(
                        what="one call to Anthropic's API, 32 in flight", ours=found["assay"], peer=milliseconds,
                        against=f"{name} package", unit="CPU ms",
                    )
                )  # fmt: skip
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
    else:
        main()
