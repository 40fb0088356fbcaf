"""Measure remote models: a complete run, including the journal, with a server that answers after 50 ms.

    python benchmarks/remote_models.py [--requests 12000] [--only NAME …]

If their environments exist, lm_eval (`local-chat-completions`, `local-completions`), lmms_eval (`async_openai`) and inspect_ai
(`openai`) run against the same server within the same minute. For Assay the measurement covers everything between the first and the last request
(rendering, requests, journal, scoring), for inspect_ai a complete `eval`, for the others only `generate_until` or `loglikelihood` (`remote_peers.py`). CPU
seconds are those of the client process; the server runs in another process. The ideal rate follows from the latency of 50 ms.
For comparison, the output also shows a bare client that only sends, waits and parses JSON, and the actual server latency.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from latency_server import CHAT_REPLY
from measurements import Goal, Measurement, Report, add_json_option
from peers import find_peer
from remote_peers import PROMPT, read_cpu_s, read_peak_mb

HERE = Path(__file__).parent
THIS_FILE = Path(__file__).resolve()
PEERS, PICTURES = THIS_FILE.with_name("remote_peers.py"), THIS_FILE.with_name("remote_pictures.py")
Peers = dict[str, Path | None]
ANSWER = "The answer is 42."
LATENCY_S = 0.05
PROMPTS_PER_CALL = 16
"""Prompts that one call for log-likelihoods carries at most."""


@contextmanager
def start_server() -> Iterator[str]:
    command = [sys.executable, str(HERE / "latency_server.py"), "--latency_ms", str(LATENCY_S * 1000)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.kill()
        process.wait()


def run_child(
    *arguments: str, python: str = sys.executable, script: Path = THIS_FILE, timeout_s: float = 300
) -> dict[str, Any]:
    """Run a measurement in a child process and return its result."""
    command = [python, str(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def run_peer(
    name: str,
    gaps: list[str],
    *arguments: str,
    python: Path | None,
    script: Path = THIS_FILE,
    timeout_s: float = 300,
) -> dict[str, Any] | None:
    """Run the measurement of a peer; if it fails, print and record the reason and return None."""
    try:
        if python is None:
            raise SystemExit("no environment")
        return run_child(*arguments, python=str(python), script=script, timeout_s=timeout_s)
    except (SystemExit, subprocess.TimeoutExpired) as error:
        why = (str(error).strip().splitlines() or ["?"])[-1]
        gaps.append(f"{name} ({why})")
        print(f"  {name:9} not measured: {why}", flush=True)
        return None


# --- HTTP clients ---------------------------------------------------------------------------------


async def send_requests(post: Any, count: int, concurrency: int) -> tuple[float, float]:
    numbers = iter(range(count))

    async def worker() -> None:
        for _ in numbers:
            await post()

    began, used = time.perf_counter(), read_cpu_s()
    await asyncio.gather(*[worker() for _ in range(concurrency)])
    return time.perf_counter() - began, read_cpu_s() - used


BODY = json.dumps(
    {"model": "m", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 32, "temperature": 0}
).encode()
HEADERS = {"Authorization": "Bearer x", "Content-Type": "application/json"}


async def measure_own_client(url: str, count: int, concurrency: int) -> tuple[float, float]:
    from assay.models.remote.transport.address import parse_address
    from assay.models.remote.transport.http import HttpClient

    client = HttpClient(parse_address(url), headers={"Authorization": "Bearer x"})

    async def post() -> None:
        json.loads((await client.request("POST", "/chat/completions", BODY, timeout_s=60)).body)

    taken = await send_requests(post, count, concurrency)
    await client.close()
    return taken


class FloorProtocol(asyncio.Protocol):
    """Sends prepared bytes and counts the bytes of the reply, whose length is known: what asyncio itself costs."""

    def __init__(self, request: bytes, reply_bytes: int) -> None:
        self._request, self._reply_bytes = request, reply_bytes
        self._received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def post(self) -> asyncio.Future[None]:
        self._received, self._done = 0, asyncio.get_running_loop().create_future()
        self._transport.write(self._request)
        return self._done

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._received >= self._reply_bytes:
            self._done.set_result(None)

    def close(self) -> None:
        self._transport.close()


async def measure_floor(url: str, count: int, concurrency: int) -> tuple[float, float]:
    """Measure asyncio without HTTP and JSON, as the limit of every client that is built on it."""
    parts = urllib.parse.urlsplit(url)
    head = f"POST {parts.path}/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {len(BODY)}\r\n\r\n"
    request, loop = head.encode() + BODY, asyncio.get_running_loop()
    free = []
    for _ in range(concurrency):
        _, connection = await loop.create_connection(
            lambda: FloorProtocol(request, len(CHAT_REPLY)), parts.hostname, parts.port
        )
        free.append(connection)

    async def post() -> None:
        connection = free.pop()
        await connection.post()
        free.append(connection)

    taken = await send_requests(post, count, concurrency)
    for connection in free:
        connection.close()
    return taken


async def measure_aiohttp(url: str, count: int, concurrency: int) -> tuple[float, float]:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def post() -> None:
            async with session.post(f"{url}/chat/completions", data=BODY, headers=HEADERS) as reply:
                json.loads(await reply.read())

        return await send_requests(post, count, concurrency)


async def measure_httpx(url: str, count: int, concurrency: int) -> tuple[float, float]:
    import httpx

    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    async with httpx.AsyncClient(limits=limits, timeout=60) as session:

        async def post() -> None:
            json.loads((await session.post(f"{url}/chat/completions", content=BODY, headers=HEADERS)).content)

        return await send_requests(post, count, concurrency)


async def measure_openai(url: str, count: int, concurrency: int) -> tuple[float, float]:
    import openai

    client = openai.AsyncOpenAI(api_key="x", base_url=url, max_retries=0)
    payload = json.loads(BODY)

    async def post() -> None:
        await client.chat.completions.create(**payload)

    return await send_requests(post, count, concurrency)


CLIENTS = {
    "own": measure_own_client,
    "asyncio": measure_floor,
    "aiohttp": measure_aiohttp,
    "httpx": measure_httpx,
    "openai": measure_openai,
}
SLOW = {"httpx", "openai"}
"""Clients whose connection pools cost milliseconds per request at this concurrency; they get fewer requests."""


def measure_client(name: str, url: str, count: int, concurrency: int) -> dict[str, Any]:
    seconds, used = asyncio.run(CLIENTS[name](url, count, concurrency))
    return {"rate": count / seconds, "cpu_ms": 1000 * used / count}


# --- complete runs of Assay -------------------------------------------------------------------------------


def _write_task(folder: Path, count: int, kind: str) -> Path:
    rows = [{"question": PROMPT.format(n=n), "answer": ANSWER} for n in range(count)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    task: dict[str, Any] = {
        "task": "many",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": "rows.jsonl"}},
        "test_split": "test",
        "doc_to_text": "{{question}}",
        "doc_to_target": "answer",
    }
    if kind == "likelihood":
        task |= {"output_type": "multiple_choice", "doc_to_choice": [" red", " green", " blue", " white"]}
        task |= {"doc_to_target": 0, "metric_list": [{"metric": "acc"}]}
    else:
        task |= {"output_type": "generate_until", "metric_list": [{"metric": "exact_match"}]}
        task |= {"generation_kwargs": {"until": ["\n"], "max_gen_toks": 32, "do_sample": False}}
    path = folder / "many.yaml"
    path.write_text(json.dumps(task), "utf-8")  # JSON is YAML
    return path


def measure_assay(
    kind: str, url: str, count: int, concurrency: int, tpm: float | None = None
) -> dict[str, Any]:
    import assay
    from assay.models import make_model

    name = "local-completions" if kind == "likelihood" else "openai"
    arguments: dict[str, Any] = {"model": "latency", "base_url": url}
    if concurrency:  # 0: as many as the server can handle
        arguments["num_concurrent"] = concurrency
    if tpm is not None:
        arguments["tpm"] = tpm
    model: Any = make_model(name, arguments)
    times: dict[str, tuple[float, float]] = {}
    open_model, close_model = model.open, model.close

    async def open_() -> None:
        await open_model()
        times.setdefault("open", (time.perf_counter(), read_cpu_s()))

    async def close() -> None:
        times.setdefault("close", (time.perf_counter(), read_cpu_s()))
        await close_model()

    model.open, model.close = open_, close
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ASSAY_HOME"] = str(Path(folder) / "home")
        task = _write_task(Path(folder), count if kind != "likelihood" else count // 4, kind)
        run = assay.run(model=model, tasks=[str(task)], output_path=str(Path(folder) / "out"))
        scored = sum(one.scored for one in run.estimates[:1])
    seconds, used = (after - before for before, after in zip(times["open"], times["close"], strict=True))
    return {
        "rate": count / seconds,
        "cpu_ms": 1000 * used / count,
        "scored": scored,
        "peak_mb": read_peak_mb(),
    }


# --- comparisons -----------------------------------------------------------------------------------------

CASES = (("chat", 32), ("chat", 256), ("likelihood", 32))
GOALS = {
    ("chat, 256 in flight", "lm_eval"): (Goal(of="ratio", least=1), None),
    ("likelihood, 32 in flight", "lm_eval"): (None, Goal(of="ratio", least=3)),
}
FEWER = {"lmms_eval": 4, "inspect_ai": 4}
"""Divisors of the number of requests, for harnesses that take milliseconds per request."""


def compare_clients(count: int, report: Report, gaps: list[str]) -> None:
    """Compare Assay's HTTP client with others, which have their own environment."""
    print("\nHTTP client only, 256 in flight, JSON parsed:")
    with start_server() as url:
        own, floor = (run_child("client", name, url, str(count), "256") for name in ("own", "asyncio"))
        for name, found in (("own", own), ("asyncio", floor)):
            print(f"  {name:9} {found['cpu_ms']:.3f} ms CPU per request, {found['rate']:.0f}/s", flush=True)
        for name in CLIENTS:
            fewer = str(count // 8 if name in SLOW else count)
            if name in ("own", "asyncio"):
                continue
            found = run_peer(name, gaps, "client", name, url, fewer, "256", python=find_peer("packages"))
            if found is None:
                continue
            print(f"  {name:9} {found['cpu_ms']:.3f} ms CPU per request, {found['rate']:.0f}/s", flush=True)
            report.add(
                Measurement(
                    what="HTTP client only, 256 in flight", ours=own["cpu_ms"], peer=found["cpu_ms"],
                    against=name, unit="CPU ms per call", limit=floor["cpu_ms"], limited_by="asyncio alone",
                )
            )  # fmt: skip


def compare_harnesses(
    kind: str, concurrency: int, count: int, peers: Peers, report: Report, gaps: list[str]
) -> None:
    ideal = concurrency / LATENCY_S * (PROMPTS_PER_CALL if kind == "likelihood" else 1)
    print(
        f"\n{kind}, {concurrency} in flight, {count} requests; {ideal:.0f} requests per second at most:",
        flush=True,
    )
    with start_server() as url:
        rows: dict[str, dict[str, Any]] = {}
        if kind == "chat":
            rows["bare"] = run_child("client", "own", url, str(count), str(concurrency))
            read_latency_ms(url)
        rows["assay"] = run_child("assay", kind, url, str(count), str(concurrency))
        took_ms = read_latency_ms(url)
        for name, python in peers.items():
            if kind == "chat" or name == "lm_eval":
                words = (name, kind, url, str(count // FEWER.get(name, 1)), str(concurrency))
                found = run_peer(name, gaps, *words, python=python, script=PEERS)
                rows |= {name: found} if found else {}
    own = rows["assay"]
    for name, found in rows.items():
        line = f"  {name:9} {found['cpu_ms']:.3f} ms CPU per request, {found['rate']:.0f}/s = {found['rate'] / ideal:.1%}"
        if name not in ("assay", "bare"):
            line += f"; assay: {found['cpu_ms'] / own['cpu_ms']:.2f} x less CPU, {own['rate'] / found['rate']:.2f} x as fast"
        print(line)
    print(f"  actual server latency: {took_ms:.1f} ms", flush=True)
    case = f"{kind}, {concurrency} in flight"
    if kind == "chat":
        share = Goal(least=95 if concurrency == 32 else 75)
        details = {"bare client, %": 100 * rows["bare"]["rate"] / ideal, "server took, ms": took_ms}
        what = f"{case}: share of the ideal rate, including the journal"
        rate = 100 * own["rate"] / ideal
        report.add(
            Measurement(
                what=what,
                ours=rate,
                unit="%",
                more_is_better=True,
                limit=100.0,
                limited_by="server latency",
                goal=share,
                details=details,
            )
        )
    if (kind, concurrency) == ("chat", 256):
        what = f"{case}: CPU time, absolute"
        report.add(
            Measurement(
                what=what, ours=own["cpu_ms"], unit="CPU ms per request", goal=Goal(most=0.2),
                limit=rows["bare"]["cpu_ms"], limited_by="HTTP client alone",
            )
        )  # fmt: skip
    for name in peers:
        if name in rows:
            add_comparison(case, ideal, rows, name, report)


def add_comparison(
    case: str, ideal: float, rows: Mapping[str, Mapping[str, Any]], name: str, report: Report
) -> None:
    """Report requests per second and CPU time per request."""
    own, theirs = rows["assay"], rows[name]
    faster, cheaper = GOALS.get((case, name), (None, None))
    report.add(
        Measurement(
            what=f"{case}: rate", ours=own["rate"], peer=theirs["rate"], against=name, unit="requests/s",
            more_is_better=True, limit=ideal, limited_by="server latency", goal=faster,
        )
    )  # fmt: skip
    bare = rows.get("bare", {}).get("cpu_ms")
    report.add(
        Measurement(
            what=f"{case}: CPU time", ours=own["cpu_ms"], peer=theirs["cpu_ms"], against=name,
            unit="CPU ms per request", limit=bare, limited_by="HTTP client alone" if bare else "", goal=cheaper,
        )
    )  # fmt: skip


def read_latency_ms(url: str) -> float:
    """Return the mean server latency since the previous call."""
    with urllib.request.urlopen(f"{url}/latency") as reply:
        return float(json.load(reply)["ms"])


def compare_memory(samples: int, python: Path | None, report: Report, gaps: list[str]) -> None:
    """Compare the peak memory of complete runs with inspect_ai, which keeps all samples until the end."""
    with start_server() as url:
        own = run_child("assay", "chat", url, str(samples), "256")
        words = ("inspect_ai", "chat", url, str(samples), "256")
        found = run_peer("inspect_ai", gaps, *words, python=python, script=PEERS, timeout_s=1200)
    print(f"\nmemory at {samples:,} samples: assay {own['peak_mb']:.0f} MB", flush=True)
    peer = None if found is None else found["peak_mb"]
    if peer is not None:
        print(f"  inspect_ai {peer:.0f} MB", flush=True)
    report.add(
        Measurement(
            what=f"chat, peak memory at {samples:,} samples", ours=own["peak_mb"], peer=peer,
            against="inspect_ai" if found else "", unit="MB",
        )
    )  # fmt: skip


def compare_images(few: int, many: int, report: Report) -> None:
    print("\nimages of 512 x 512, 32 in flight, 64 MB for media:")
    peaks = []
    with start_server() as url:
        for number in (few, many):
            found = run_child(url, str(number), "32", script=PICTURES)
            peaks.append(found["peak_mb"])
            print(
                f"  {number:5} images: {found['rate']:.0f}/s, {found['cpu_ms']:.1f} ms CPU each, memory growth {found['grown_mb']:.0f} MB, "
                f"event loop delay {found['late_ms']:.1f} ms (median), {found['latest_ms']:.0f} ms (maximum); "
                f"longest step {found['step_ms']:.1f} ms CPU",
                flush=True,
            )
            details = {
                "memory grown, MB": found["grown_mb"],
                "longest step of the loop, CPU ms": found["step_ms"],
            }
            details |= {"loop late, ms": found["late_ms"], "at most, ms": found["latest_ms"]}
            what = f"one of {number:,} images of 512x512, 32 in flight"
            report.add(Measurement(what=what, ours=found["cpu_ms"], unit="CPU ms", details=details))
    what = f"memory of {many:,} images relative to {few:,}"
    report.add(Measurement(what=what, ours=peaks[1] / peaks[0], unit="times", goal=Goal(most=1.25)))


def main() -> None:
    if len(sys.argv) > 3 and not sys.argv[1].startswith("--"):
        what, *words = sys.argv[1:]
        measure = {"client": measure_client, "assay": measure_assay}[what]
        print(json.dumps(measure(words[0], words[1], int(words[2]), int(words[3]), *map(float, words[4:]))))
        return
    parts = ["clients", *[f"{kind}-{concurrency}" for kind, concurrency in CASES], "memory", "pictures"]
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=12_000)
    parser.add_argument("--samples", type=int, default=10_000, help="samples of the memory measurement")
    parser.add_argument("--pictures", type=int, nargs=2, default=(250, 1000), metavar=("FEW", "MANY"))
    parser.add_argument("--only", nargs="*", choices=parts, default=parts)
    add_json_option(parser)
    given = parser.parse_args()
    report = Report(given.json)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs; latency {LATENCY_S * 1000:.0f} ms")
    peers = {name: find_peer(name) for name in ("lm_eval", "lmms_eval", "inspect_ai")}
    gaps: list[str] = []
    if "clients" in given.only:
        compare_clients(given.requests, report, gaps)
    for kind, concurrency in CASES:
        if f"{kind}-{concurrency}" in given.only:
            compare_harnesses(kind, concurrency, given.requests, peers, report, gaps)
    if "memory" in given.only:
        compare_memory(given.samples, peers["inspect_ai"], report, gaps)
    if "pictures" in given.only:
        compare_images(*given.pictures, report)
    if gaps:
        raise SystemExit(f"not measured: {', '.join(dict.fromkeys(gaps))}")


if __name__ == "__main__":
    main()
