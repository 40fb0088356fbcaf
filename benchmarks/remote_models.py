"""What remote models cost: a whole run, journal included, against a server that answers after 50 ms.

    python benchmarks/remote_models.py [--lm_eval PYTHON] [--lmms_eval PYTHON] [--requests 4000] [--only NAME …]

Beside lm_eval and lmms_eval, where their environments are: `local-chat-completions`, `local-completions` and
`async_openai` are measured against the same server in the same minute. For Assay everything between the first and the last
request counts (rendering, asking, journal, scoring); for the others only `generate_until` or `loglikelihood`
(`remote_peers.py`). CPU seconds are those of the process that asks; the server has its own. The ideal is what 50 ms allow;
beside it stands what a bare client gets that only sends, waits and reads JSON, and how long the server really took.
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
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measurements import Goal, Measurement, Report, add_json_option
from peers import find_peer
from remote_peers import PROMPT, cpu_s

HERE = Path(__file__).parent
OWN = Path(__file__).resolve()
PEERS, PICTURES = OWN.with_name("remote_peers.py"), OWN.with_name("remote_pictures.py")
Peers = dict[str, Path | None]
ANSWER = "The answer is 42."
LATENCY_S = 0.05


@contextmanager
def server() -> Iterator[str]:
    command = [sys.executable, str(HERE / "latency_server.py"), "--latency_ms", str(LATENCY_S * 1000)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.kill()
        process.wait()


def child(*arguments: str, python: str = sys.executable, script: Path = OWN) -> dict[str, Any]:
    """A measurement in a process of its own."""
    command = [python, str(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def foreign(
    name: str, gaps: list[str], *arguments: str, python: Path | None, script: Path = OWN
) -> dict[str, Any] | None:
    """A measurement of somebody else's code; where that fails it is told, and the others are measured."""
    try:
        if python is None:
            raise SystemExit("no environment")
        return child(*arguments, python=str(python), script=script)
    except (SystemExit, subprocess.TimeoutExpired) as error:
        why = (str(error).strip().splitlines() or ["?"])[-1]
        gaps.append(f"{name} ({why})")
        print(f"  {name:9} not measured: {why}", flush=True)
        return None


# --- the clients alone ---------------------------------------------------------------------------------


async def _drive(post: Any, count: int, at_once: int) -> tuple[float, float]:
    numbers = iter(range(count))

    async def worker() -> None:
        for _ in numbers:
            await post()

    began, used = time.perf_counter(), cpu_s()
    await asyncio.gather(*[worker() for _ in range(at_once)])
    return time.perf_counter() - began, cpu_s() - used


BODY = json.dumps(
    {"model": "m", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 32, "temperature": 0}
).encode()
HEADERS = {"Authorization": "Bearer x", "Content-Type": "application/json"}


async def client_own(url: str, count: int, at_once: int) -> tuple[float, float]:
    from assay.models.remote.transport.address import parse_address
    from assay.models.remote.transport.http import HttpClient

    client = HttpClient(parse_address(url), headers={"Authorization": "Bearer x"})

    async def post() -> None:
        json.loads((await client.request("POST", "/chat/completions", BODY, timeout_s=60)).body)

    taken = await _drive(post, count, at_once)
    await client.close()
    return taken


async def client_aiohttp(url: str, count: int, at_once: int) -> tuple[float, float]:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def post() -> None:
            async with session.post(f"{url}/chat/completions", data=BODY, headers=HEADERS) as reply:
                json.loads(await reply.read())

        return await _drive(post, count, at_once)


async def client_httpx(url: str, count: int, at_once: int) -> tuple[float, float]:
    import httpx

    limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    async with httpx.AsyncClient(limits=limits, timeout=60) as session:

        async def post() -> None:
            json.loads((await session.post(f"{url}/chat/completions", content=BODY, headers=HEADERS)).content)

        return await _drive(post, count, at_once)


async def client_openai(url: str, count: int, at_once: int) -> tuple[float, float]:
    import openai

    client = openai.AsyncOpenAI(api_key="x", base_url=url, max_retries=0)
    payload = json.loads(BODY)

    async def post() -> None:
        await client.chat.completions.create(**payload)

    return await _drive(post, count, at_once)


CLIENTS = {"own": client_own, "aiohttp": client_aiohttp, "httpx": client_httpx, "openai": client_openai}
SLOW = {"httpx", "openai"}
"""Clients whose pool of connections costs milliseconds at 256: fewer requests tell it as well."""


def measure_client(name: str, url: str, count: int, at_once: int) -> dict[str, Any]:
    seconds, used = asyncio.run(CLIENTS[name](url, count, at_once))
    return {"rate": count / seconds, "cpu_ms": 1000 * used / count}


# --- whole runs of Assay -------------------------------------------------------------------------------


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


def measure_assay(kind: str, url: str, count: int, at_once: int) -> dict[str, Any]:
    import assay
    from assay.models import make_model

    name = "local-completions" if kind == "likelihood" else "openai"
    arguments = {"model": "latency", "base_url": url, "num_concurrent": at_once}
    model: Any = make_model(name, arguments)
    marks: dict[str, tuple[float, float]] = {}
    opened, closed = model.open, model.close

    async def open_() -> None:
        await opened()
        marks.setdefault("open", (time.perf_counter(), cpu_s()))

    async def close() -> None:
        marks.setdefault("close", (time.perf_counter(), cpu_s()))
        await closed()

    model.open, model.close = open_, close
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ASSAY_HOME"] = str(Path(folder) / "home")
        task = _write_task(Path(folder), count if kind != "likelihood" else count // 4, kind)
        run = assay.run(model=model, tasks=[str(task)], output_path=str(Path(folder) / "out"))
        scored = sum(one.scored for one in run.estimates[:1])
    seconds, used = (after - before for before, after in zip(marks["open"], marks["close"], strict=True))
    return {"rate": count / seconds, "cpu_ms": 1000 * used / count, "scored": scored}


# --- all of it -----------------------------------------------------------------------------------------

CASES = (("chat", 32), ("chat", 256), ("likelihood", 32))
GOALS = {
    ("chat, 256 at once", "lm_eval"): (Goal(of="ratio", least=1), None),
    ("likelihood, 32 at once", "lm_eval"): (None, Goal(of="ratio", least=3)),
}
FEWER = {"lmms_eval": 4}
"""How many times fewer requests a harness gets that takes milliseconds for each."""


def compare_clients(count: int, report: Report, gaps: list[str]) -> None:
    """Assay's own HTTP client beside others, which are in an environment of their own."""
    print("\nthe HTTP client alone, 256 at once, JSON read:")
    with server() as url:
        own = child("client", "own", url, str(count), "256")
        print(f"  {'own':9} {own['cpu_ms']:.3f} ms CPU a request, {own['rate']:.0f}/s", flush=True)
        for name in CLIENTS:
            fewer = str(count // 8 if name in SLOW else count)
            if name == "own":
                continue
            found = foreign(name, gaps, "client", name, url, fewer, "256", python=find_peer("packages"))
            if found is None:
                continue
            print(f"  {name:9} {found['cpu_ms']:.3f} ms CPU a request, {found['rate']:.0f}/s", flush=True)
            report.add(
                Measurement(
                    what="the HTTP client alone, 256 at once", ours=own["cpu_ms"], peer=found["cpu_ms"],
                    against=name, unit="CPU ms a call",
                )
            )  # fmt: skip


def compare_harnesses(
    kind: str, at_once: int, count: int, peers: Peers, report: Report, gaps: list[str]
) -> None:
    ideal = at_once / LATENCY_S
    print(f"\n{kind}, {at_once} at once, {count} requests; {ideal:.0f} calls a second at most:", flush=True)
    with server() as url:
        rows: dict[str, dict[str, Any]] = {}
        if kind == "chat":
            rows["bare"] = child("client", "own", url, str(count), str(at_once))
            latency_ms(url)
        rows["assay"] = child("assay", kind, url, str(count), str(at_once))
        took_ms = latency_ms(url)
        for name, python in peers.items():
            if kind == "chat" or name == "lm_eval":
                words = (name, kind, url, str(count // FEWER.get(name, 1)), str(at_once))
                found = foreign(name, gaps, *words, python=python, script=PEERS)
                rows |= {name: found} if found else {}
    own = rows["assay"]
    for name, found in rows.items():
        line = f"  {name:9} {found['cpu_ms']:.3f} ms CPU a request, {found['rate']:.0f}/s = {found['rate'] / ideal:.1%}"
        if name not in ("assay", "bare"):
            line += f"; assay: {found['cpu_ms'] / own['cpu_ms']:.2f} x less CPU, {own['rate'] / found['rate']:.2f} x as fast"
        print(line)
    print(f"  the server took {took_ms:.1f} ms a call", flush=True)
    case = f"{kind}, {at_once} at once"
    if kind == "chat":
        share = Goal(least=95) if at_once == 32 else None
        details = {"bare client, %": 100 * rows["bare"]["rate"] / ideal, "server took, ms": took_ms}
        what = f"{case}: share of the ideal rate, journal included"
        rate = 100 * own["rate"] / ideal
        report.add(
            Measurement(what=what, ours=rate, unit="%", more_is_better=True, goal=share, details=details)
        )
    if (kind, at_once) == ("chat", 256):
        what = f"{case}: processor time, aim"
        report.add(Measurement(what=what, ours=own["cpu_ms"], unit="CPU ms a request", goal=Goal(most=0.2)))
    for name in peers:
        if name in rows:
            report_against(case, own, rows[name], name, report)


def report_against(case: str, own: dict[str, Any], theirs: dict[str, Any], name: str, report: Report) -> None:
    """Two numbers: requests a second, and processor time of one."""
    faster, cheaper = GOALS.get((case, name), (None, None))
    report.add(
        Measurement(
            what=f"{case}: rate", ours=own["rate"], peer=theirs["rate"], against=name, unit="requests/s",
            more_is_better=True, goal=faster,
        )
    )  # fmt: skip
    report.add(
        Measurement(
            what=f"{case}: processor time", ours=own["cpu_ms"], peer=theirs["cpu_ms"], against=name,
            unit="CPU ms a request", goal=cheaper,
        )
    )  # fmt: skip


def latency_ms(url: str) -> float:
    """How long the server really took for a reply, since it was last asked."""
    with urllib.request.urlopen(f"{url}/latency") as reply:
        return float(json.load(reply)["ms"])


def compare_pictures(few: int, many: int, report: Report) -> None:
    print("\npictures of 512 x 512, 32 at once, 64 MB for media:")
    peaks = []
    with server() as url:
        for number in (few, many):
            found = child(url, str(number), "32", script=PICTURES)
            peaks.append(found["peak_mb"])
            print(
                f"  {number:5} pictures: {found['rate']:.0f}/s, {found['cpu_ms']:.1f} ms CPU each, memory grown by {found['grown_mb']:.0f} MB, "
                f"event loop late by {found['late_ms']:.1f} ms in the middle, {found['latest_ms']:.0f} ms at most; "
                f"its longest step took {found['step_ms']:.1f} ms CPU",
                flush=True,
            )
            details = {
                "memory grown, MB": found["grown_mb"],
                "longest step of the loop, CPU ms": found["step_ms"],
            }
            details |= {"loop late, ms": found["late_ms"], "at most, ms": found["latest_ms"]}
            what = f"{number:,} pictures of 512x512, 32 at once: each"
            report.add(Measurement(what=what, ours=found["cpu_ms"], unit="CPU ms", details=details))
    what = f"memory of {many:,} pictures against {few:,}"
    report.add(Measurement(what=what, ours=peaks[1] / peaks[0], unit="times", goal=Goal(most=1.25)))


def main() -> None:
    if len(sys.argv) > 3 and not sys.argv[1].startswith("--"):
        what, *words = sys.argv[1:]
        measure = {"client": measure_client, "assay": measure_assay}[what]
        print(json.dumps(measure(words[0], words[1], int(words[2]), int(words[3]))))
        return
    parts = ["clients", *[f"{kind}-{at_once}" for kind, at_once in CASES], "pictures"]
    parser = argparse.ArgumentParser()
    parser.add_argument("--lm_eval", type=Path, default=find_peer("lm_eval"), metavar="PYTHON")
    parser.add_argument("--lmms_eval", type=Path, default=find_peer("lmms_eval"), metavar="PYTHON")
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--pictures", type=int, nargs=2, default=(250, 1000), metavar=("FEW", "MANY"))
    parser.add_argument("--only", nargs="*", choices=parts, default=parts)
    add_json_option(parser)
    given = parser.parse_args()
    report = Report(given.json)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors; latency {LATENCY_S * 1000:.0f} ms")
    peers = {"lm_eval": given.lm_eval, "lmms_eval": given.lmms_eval}
    gaps: list[str] = []
    if "clients" in given.only:
        compare_clients(given.requests, report, gaps)
    for kind, at_once in CASES:
        if f"{kind}-{at_once}" in given.only:
            compare_harnesses(kind, at_once, given.requests, peers, report, gaps)
    if "pictures" in given.only:
        compare_pictures(*given.pictures, report)
    if gaps:
        raise SystemExit(f"not measured: {', '.join(dict.fromkeys(gaps))}")


if __name__ == "__main__":
    main()
