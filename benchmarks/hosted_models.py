"""Processor time of one call to Anthropic's API: Assay's adapter, the provider's own package, litellm.

    python benchmarks/hosted_models.py            # those that are installed

A server in another process answers every call after 50 ms; 32 calls are open at once. The processor time of the asking
process is what counts: it hardly depends on what else the machine does.
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

from assay.core.messages import Message, Prompt, Text
from assay.core.requests import Generate, Settings

PORT = 8765
OPEN = 32
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


def request(number: int) -> Generate:
    prompt = Prompt((Message("user", (Text(f"What is {number} + 1?"),)),), chat=True)
    return Generate(
        task="t", document=number, prompt=prompt, settings=Settings({"max_gen_toks": 12, "until": ["\n"]})
    )


async def of_model(model: Any) -> Ask:
    await model.open()

    async def ask(number: int) -> None:
        async for outcome in model.answer([request(number)]):
            assert outcome.value == "42", outcome

    return ask


async def assay_adapter() -> Ask:
    from assay.models.hosted.anthropic import AnthropicModel

    return await of_model(
        AnthropicModel(model="claude-haiku-4-5", base_url=f"http://127.0.0.1:{PORT}/v1", num_concurrent=OPEN)
    )


async def litellm_package() -> Ask:
    from assay.models.hosted.litellm import LiteLLMModel

    name = "anthropic/claude-haiku-4-5"
    return await of_model(LiteLLMModel(model=name, base_url=f"http://127.0.0.1:{PORT}", num_concurrent=OPEN))


async def anthropic_package() -> Ask:
    import anthropic

    client = anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{PORT}")

    async def ask(number: int) -> None:
        messages: Any = [{"role": "user", "content": f"What is {number} + 1?"}]
        reply = await client.messages.create(model="claude-haiku-4-5", max_tokens=12, messages=messages)
        assert reply.content[0].text == "42"

    return ask


async def measure(make: Callable[[], Awaitable[Ask]], count: int) -> tuple[float, float]:
    """Milliseconds of processor time for a call, and calls a second."""
    ask = await make()

    async def work(numbers: Any) -> None:
        for number in numbers:
            await ask(number)

    async def all_of(numbers: range) -> None:
        shared = iter(numbers)
        await asyncio.gather(*(work(shared) for _ in range(OPEN)))

    await all_of(range(2 * OPEN))
    began, used = time.monotonic(), time.process_time()
    await all_of(range(2 * OPEN, 2 * OPEN + count))
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
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer calls")
    add_json_option(parser)
    given = parser.parse_args()
    report = Report(given.json)
    os.environ["ANTHROPIC_API_KEY"] = "sk-not-a-key-at-all"
    server = subprocess.Popen([sys.executable, __file__, "serve"])
    time.sleep(1.5)
    found: dict[str, float] = {}
    try:
        for name, make, package, count in (
            ("assay", assay_adapter, "assay", 3000),
            ("anthropic", anthropic_package, "anthropic", 1500),
            ("litellm", litellm_package, "litellm", 500),
        ):
            if find_spec(package) is None:
                print(f"{name}: not installed")
                continue
            milliseconds, rate = asyncio.run(measure(make, round(count * given.scale)))
            found[name] = milliseconds
            print(
                f"{name}: {milliseconds:.2f} ms of processor time a call, {rate:.0f} calls/s of {OPEN / 0.05:.0f}",
                flush=True,
            )
            if name != "assay":
                report.add(
                    Measurement(
                        what="a call to Anthropic's API, 32 open", ours=found["assay"], peer=milliseconds,
                        against=f"the package {name}", unit="CPU ms",
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
