"""The sinks `otel` and `hub` with their real packages, against local servers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_task

import assay

pytestmark = pytest.mark.filterwarnings("ignore")  # foreign packages warn of each other


@pytest.fixture
def sums(workspace: Path) -> str:
    return str(write_task(workspace))


class RecordingHandler(BaseHTTPRequestHandler):
    """Keeps what was sent."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.got.append((self.path, body))  # type: ignore[attr-defined]
        answer = json.dumps(self.reply(self.path, body)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self) -> None:
        self.do_POST()

    def reply(self, path: str, body: bytes) -> Any:
        if path.endswith("/preupload/main"):
            return {
                "files": [
                    {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for one in json.loads(body)["files"]
                ]
            }
        if "/commit/" in path:
            return {"commitUrl": "x", "commitOid": "0" * 40, "success": True, "pullRequestUrl": None}
        return {"url": "http://127.0.0.1/datasets/org/results", "name": "org/results"}

    def log_message(self, *words: Any) -> None:
        """Quietly."""


@contextmanager
def serving() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), RecordingHandler)
    server.got = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.got  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()


def test_a_collector_gets_a_trace_and_metrics(sums: str) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    with serving() as (url, got):
        assay.run(model=make_model(), tasks=[sums], sink=[f"otel,endpoint={url}"]).close()
    by_path = {path: b"".join(body for where, body in got if where == path) for path, _ in got}
    assert {"/v1/traces", "/v1/metrics"} <= by_path.keys()
    import gzip

    traces = by_path["/v1/traces"]
    traces = gzip.decompress(traces) if traces[:2] == b"\x1f\x8b" else traces
    assert b"assay run" in traces and b"task sums" in traces and b"assay.sums.exact_match" in traces


def test_the_hub_gets_results_and_samples(sums: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    with serving() as (url, got):
        monkeypatch.setattr(hub, "HfApi", lambda: type(hub.hf_api.api)(endpoint=url, token="hf_planted"))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        run = assay.run(model=make_model(), tasks=[sums], sink=["hub,repo=org/results"])
    (commit,) = [body for path, body in got if path.startswith("/api/datasets/org/results/commit")]
    files = [json.loads(line)["value"].get("path", "") for line in commit.decode().splitlines()]
    names = sorted(name for name in files if name)
    assert [name.split("/")[0] for name in names] == [run.id, run.id]
    assert "results_" in names[0] and "samples_sums_" in names[1]
