"""Compare HTTP clients under Assay's remote models: complete runs in which only the client differs.

    python benchmarks/http_clients.py [--requests 4000] [--repeat 5] [--clients pycurl httpx …]

Each client implements the interface of `assay.models.remote.transport.http.HttpClient` that a call uses, so concurrency limit,
retries, journal and scoring are the same. Runs are interleaved; the table shows medians. On a machine that other
processes use, compare the CPU time: with 256 calls in flight it determines the rate.

httpx cannot use HTTP/2 without TLS, and no local model server offers HTTP/2, so it is measured with HTTP/1.1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measurements import Measurement, Report, add_json_option
from peers import find_peer
from remote_models import LATENCY_S, measure_assay, run_child, start_server

THIS_FILE = Path(__file__).resolve()
CONCURRENCY = (32, 256)
OURS = "aiohttp"
"""The client that Assay uses."""


class ClientAdapter:
    """The interface that `Attempt` uses, on a client that sends one request at a time."""

    def __init__(self, address: Any, *, headers: Mapping[str, str], **_: Any) -> None:
        self.address, self.headers = address, dict(headers)

    async def send(self, method: str, url: str, body: bytes, timeout_s: float) -> tuple[int, Any, bytes]:
        raise NotImplementedError

    def start(self, exchange: Any, request: Any, timeout_s: float) -> None:
        exchange.start(lambda: self._send(request, timeout_s))

    async def _send(self, request: Any, timeout_s: float) -> Any:
        from assay.models.remote.transport.http import RemoteProtocolError, Reply

        url = self.address.origin + self.address.path + request.path
        try:
            return Reply(*await self.send(request.method, url, request.body, timeout_s))
        except Exception as error:  # noqa: BLE001 - each library has its own classes
            raise RemoteProtocolError(repr(error)) from None

    async def close(self) -> None:
        pass


class HttpxAdapter(ClientAdapter):
    session: Any = None

    async def send(self, method: str, url: str, body: bytes, timeout_s: float) -> tuple[int, Any, bytes]:
        import httpx

        if self.session is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
            headers = self.headers | {"Content-Type": "application/json"}
            self.session = httpx.AsyncClient(limits=limits, headers=headers)
        reply = await self.session.request(method, url, content=body, timeout=timeout_s)
        return reply.status_code, dict(reply.headers), reply.content

    async def close(self) -> None:
        if self.session is not None:
            await self.session.aclose()


class NiquestsAdapter(ClientAdapter):
    session: Any = None

    async def send(self, method: str, url: str, body: bytes, timeout_s: float) -> tuple[int, Any, bytes]:
        import niquests

        if self.session is None:
            self.session = niquests.AsyncSession(pool_connections=1, pool_maxsize=256)
            self.session.headers.update(self.headers | {"Content-Type": "application/json"})
        reply = await self.session.request(method, url, data=body, timeout=timeout_s)
        return (
            reply.status_code,
            {name.lower(): value for name, value in reply.headers.items()},
            reply.content,
        )

    async def close(self) -> None:
        if self.session is not None:
            await self.session.close()


class PycurlAdapter(ClientAdapter):
    """libcurl's multi interface; asyncio watches its sockets and its timer."""

    multi: Any = None

    def _open(self) -> None:
        import pycurl

        self.pycurl, self.multi = pycurl, pycurl.CurlMulti()
        self.multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch_socket)
        self.multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        self.multi.setopt(pycurl.M_MAXCONNECTS, 1024)
        self.timer: asyncio.TimerHandle | None = None
        self.idle: list[Any] = []
        self.waiting: dict[Any, asyncio.Future[None]] = {}
        self.header_lines = [f"{name}: {value}" for name, value in self.headers.items()]
        self.header_lines.append("Content-Type: application/json")

    def _watch_socket(self, event: int, descriptor: int, multi: Any, data: Any) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(descriptor)
        loop.remove_writer(descriptor)
        if event in (self.pycurl.POLL_IN, self.pycurl.POLL_INOUT):
            loop.add_reader(descriptor, self._act, descriptor, self.pycurl.CSELECT_IN)
        if event in (self.pycurl.POLL_OUT, self.pycurl.POLL_INOUT):
            loop.add_writer(descriptor, self._act, descriptor, self.pycurl.CSELECT_OUT)

    def _set_timer(self, milliseconds: int) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if milliseconds >= 0:
            loop = asyncio.get_running_loop()
            self.timer = loop.call_later(milliseconds / 1000, self._act, self.pycurl.SOCKET_TIMEOUT, 0)

    def _act(self, descriptor: int, mask: int) -> None:
        self.multi.socket_action(descriptor, mask)
        _, done, failed = self.multi.info_read()
        for curl in done:
            self.waiting.pop(curl).set_result(None)
        for curl, code, message in failed:
            self.waiting.pop(curl).set_exception(OSError(code, message))

    async def send(self, method: str, url: str, body: bytes, timeout_s: float) -> tuple[int, Any, bytes]:
        if self.multi is None:
            self._open()
        pycurl = self.pycurl
        curl = self.idle.pop() if self.idle else pycurl.Curl()
        chunks: list[bytes] = []
        lines: list[bytes] = []
        curl.setopt(pycurl.URL, url)
        curl.setopt(pycurl.HTTPHEADER, self.header_lines)
        curl.setopt(pycurl.WRITEFUNCTION, chunks.append)
        curl.setopt(pycurl.HEADERFUNCTION, lines.append)
        curl.setopt(pycurl.TIMEOUT_MS, int(timeout_s * 1000))
        if method == "POST":
            curl.setopt(pycurl.POSTFIELDS, body)
        else:
            curl.setopt(pycurl.HTTPGET, 1)
        self.waiting[curl] = future = asyncio.get_running_loop().create_future()
        self.multi.add_handle(curl)
        try:
            await future
        finally:
            self.multi.remove_handle(curl)
        status = curl.getinfo(pycurl.RESPONSE_CODE)
        self.idle.append(curl)
        pairs = (line.decode("latin-1").partition(":") for line in lines)
        return status, {name.lower(): value.strip() for name, _, value in pairs if value}, b"".join(chunks)


ADAPTERS = {
    "pycurl": PycurlAdapter,
    "niquests": NiquestsAdapter,
    "httpx": HttpxAdapter,
}
FEWER = {"httpx": 8, "niquests": 4}
"""Divisors of the number of requests, for clients that need milliseconds per request."""


def measure_client(name: str, url: str, count: int, concurrency: int) -> dict[str, Any]:
    """Measure a complete run with this client."""
    if name != OURS:
        from assay.models.remote import endpoint

        importlib.import_module(name)  # its time does not count
        setattr(endpoint, "HttpClient", ADAPTERS[name])  # noqa: B010 - another class under the same name
    return measure_assay("chat", url, count, concurrency)


def compare(names: list[str], count: int, repeat: int, concurrency: int, report: Report) -> None:
    python = str(find_peer("packages") or sys.executable)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with start_server() as url:
        for _ in range(repeat):
            for name in list(found):
                words = (name, url, str(count // FEWER.get(name, 1)), str(concurrency))
                try:
                    found[name].append(run_child(*words, python=python, script=THIS_FILE))
                except SystemExit as error:
                    print(f"  {name}: {(str(error).strip().splitlines() or ['?'])[-1]}", flush=True)
                    del found[name]
    ideal = concurrency / LATENCY_S
    print(f"\n{concurrency} in flight, {count} requests, {ideal:.0f}/s at most; medians of {repeat}:")
    our_rate, our_cpu = (statistics.median(one[key] for one in found[OURS]) for key in ("rate", "cpu_ms"))
    for name, runs in found.items():
        rate, cpu = (statistics.median(one[key] for one in runs) for key in ("rate", "cpu_ms"))
        print(
            f"  {name:9} {rate:6.0f}/s, {rate / our_rate:.2f} of aiohttp's; {cpu:.3f} CPU ms, {cpu / our_cpu:.2f} of aiohttp's",
            flush=True,
        )
        if name != OURS:
            report.add(
                Measurement(
                    what=f"complete run, {concurrency} in flight", ours=our_cpu, peer=cpu, against=name,
                    unit="CPU ms per call", details={"share of the rate": rate / our_rate},
                )
            )  # fmt: skip


def main() -> None:
    if len(sys.argv) == 5 and not sys.argv[1].startswith("--"):
        name, url, count, concurrency = sys.argv[1:]
        print(json.dumps(measure_client(name, url, int(count), int(concurrency))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--clients", nargs="+", choices=list(ADAPTERS), default=list(ADAPTERS))
    add_json_option(parser)
    options = parser.parse_args()
    report = Report(options.json)
    for concurrency in CONCURRENCY:
        compare([OURS, *options.clients], options.requests, options.repeat, concurrency, report)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
