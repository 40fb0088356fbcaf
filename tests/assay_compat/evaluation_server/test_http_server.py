"""The endpoints, asked by the clients over a socket."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from assay.core.errors import InvalidOption
from assay_compat.evaluation_server import job_scheduler
from assay_compat.evaluation_server.client import AsyncEvalClient, EvalClient, HTTPStatusError
from assay_compat.evaluation_server.http_server import build_app, launch_server, open_socket
from assay_compat.evaluation_server.launch import prepare_server_args
from assay_compat.evaluation_server.server_args import ServerArgs

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("starlette")


@contextmanager
def serving() -> Iterator[str]:
    listening = open_socket("localhost", 0)
    config = uvicorn.Config(build_app(ServerArgs()), log_level="warning", lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    listening.listen(16)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as found:
        yield found


def send(url: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request(f"{url}{path}", data, {"content-type": "application/json", **named}, method=method)
    try:
        with urlopen(request) as response:
            return response.status, response.read()
    except HTTPError as error:
        return error.code, json.loads(error.read())


def test_client_submits_a_job_and_reads_its_results(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(workspace))
    with serving() as url:
        client = EvalClient(url)
        job = client.evaluate(model="embedded", tasks=["quickstart_copy"], limit=2, model_args={})
        waiting = client.evaluate(model="embedded", tasks=["quickstart_copy"])
        assert job["message"] == "Job queued successfully. Position in queue: 0"
        assert client.cancel_job(waiting["job_id"]) == {"message": f"Job {waiting['job_id']} cancelled"}
        done = client.wait_for_job(job["job_id"], poll_interval=0.05)
        results = json.loads(Path(done["result"]["embedded"]["results"]).read_text("utf-8"))
        assert results["results"]["quickstart_copy"]["exact_match,none"] == 1.0
        assert client.get_queue_status() == {
            "queue_size": 0,
            "running_job": None,
            "queued_jobs": [],
            "completed_jobs": 1,
            "failed_jobs": 0,
        }
        with pytest.raises(RuntimeError, match="cancelled"):
            client.wait_for_job(waiting["job_id"])
    assert f"Job {job['job_id'][:8]}... completed!" in capsys.readouterr().out


def test_asynchronous_client_reports_a_failed_job(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(workspace))

    async def check(url: str) -> None:
        async with AsyncEvalClient(url) as client:
            assert (await client.health())["status"] == "healthy"
            job = await client.evaluate(model="embedded", tasks=["nope"], limit=None)
            with pytest.raises(RuntimeError, match="no task is called `nope`"):
                await client.wait_for_job(job["job_id"], poll_interval=0.05, verbose=False)
            assert (await client.get_queue_status())["failed_jobs"] == 1

    with serving() as url:
        asyncio.run(check(url))


def test_listings(url: str) -> None:
    client = EvalClient(url)
    assert client.is_healthy()
    assert "quickstart_copy" in client.list_tasks()
    assert "embedded" in client.list_models()


def test_errors_have_the_status_and_text_of_the_harness(url: str) -> None:
    assert send(url, "GET", "/nope") == (404, {"detail": "Not Found"})
    assert send(url, "GET", "/evaluate") == (405, {"detail": "Method Not Allowed"})
    assert send(url, "GET", "/jobs/1") == (404, {"detail": "Job 1 not found"})
    assert send(url, "DELETE", "/jobs/1") == (404, {"detail": "Job 1 not found"})
    status, answer = send(url, "POST", "/evaluate", {"model": "m"})
    assert status == 422 and answer["detail"][0]["loc"] == ["body", "tasks"]
    status, answer = send(url, "POST", "/evaluate", b"{")
    assert status == 422 and answer["detail"][0]["type"] == "json_invalid"
    with pytest.raises(HTTPStatusError, match="Job 1 not found") as caught:
        EvalClient(url).get_job("1")
    assert caught.value.response.status_code == 404


def test_finished_job_cannot_be_cancelled(url: str) -> None:
    client = EvalClient(url)
    client.evaluate(model="embedded", tasks=["nope"])
    waiting = client.evaluate(model="embedded", tasks=["nope"])["job_id"]
    client.cancel_job(waiting)
    assert send(url, "DELETE", f"/jobs/{waiting}") == (400, {"detail": "Job already finished or cancelled"})


def test_unknown_fields_are_named_in_the_message(url: str) -> None:
    status, answer = send(url, "POST", "/evaluate", {"model": "embedded", "tasks": ["nope"], "limits": 3})
    assert status == 200 and "unknown fields without effect: limits" in json.loads(answer)["message"]


def test_web_pages_of_other_sites_are_refused(url: str) -> None:
    job = {"model": "embedded", "tasks": ["nope"]}
    assert send(url, "POST", "/evaluate", job, origin="http://example.org")[0] == 403
    assert send(url, "POST", "/evaluate", job, sec_fetch_site="cross-site")[0] == 403
    assert send(url, "POST", "/evaluate", job, host="example.org")[0] == 421
    assert send(url, "POST", "/evaluate", job, content_type="text/plain")[0] == 422


def test_a_body_has_a_largest_size(url: str) -> None:
    status, answer = send(url, "POST", "/evaluate", b" " * (1024 * 1024 + 1))
    assert status == 413 and "at most" in answer["detail"]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (b'"limit": NaN', "finite"),
        (b'"num_gpus": 1e999', "finite"),
        (b'"model_args": {"a": -Infinity}', "finite"),
        (b'"limit": ' + b"9" * 5000, "too long"),
        (b'"device": "\\ud800"', "surrogate"),
        (b'"other\\ud800": 1', "surrogate"),
        (b'"model_args": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested"),
    ],
)
def test_values_that_a_response_cannot_contain_are_errors(url: str, values: bytes, why: str) -> None:
    status, answer = send(url, "POST", "/evaluate", b'{"model": "m", "tasks": ["t"], ' + values + b"}")
    assert (status, answer["detail"][0]["type"]) == (422, "json_invalid")
    assert why in answer["detail"][0]["ctx"]["error"]


def test_an_infinite_limit_is_an_error(url: str) -> None:
    status, answer = send(url, "POST", "/evaluate", {"model": "m", "tasks": ["t"], "limit": "inf"})
    assert status == 422
    assert answer["detail"][-1]["type"] == "finite_number"


def test_a_full_queue_is_an_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_scheduler, "_MAX_QUEUED_JOBS", 0)
    status, answer = send(url, "POST", "/evaluate", {"model": "m", "tasks": ["t"]})
    assert status == 503
    assert "jobs wait" in answer["detail"]


@pytest.mark.parametrize(
    ("listens", "host", "status"),
    [
        ("localhost", "127.0.0.1:1", 200),
        ("localhost", "[::1]:1", 200),
        ("localhost", "[", 421),
        ("localhost", "", 421),
        ("127.0.0.2", "127.0.0.2:1", 200),
        ("127.0.0.2", "rebound.example:1", 421),
        ("0.0.0.0", "machine.example:1", 200),
    ],
)
def test_a_loopback_address_has_no_other_host_names(listens: str, host: str, status: int) -> None:
    assert call(ServerArgs(host=listens), "GET", "/health", host=host.encode()) == status


def test_a_client_that_leaves_while_it_sends_is_no_crash() -> None:
    assert call(ServerArgs(), "POST", "/evaluate", host=b"localhost") == 400


def call(args: ServerArgs, method: str, path: str, **headers: bytes) -> int:
    """Return the status of the answer to a client that leaves before it sends a body."""

    async def ask() -> int:
        sent: list[Any] = []

        async def keep(message: Any) -> None:
            sent.append(message)

        async def leave() -> Any:
            return {"type": "http.disconnect"}

        named = [(name.encode(), value) for name, value in headers.items()]
        await build_app(args)({"type": "http", "method": method, "path": path, "headers": named}, leave, keep)
        return int(sent[0]["status"])

    return asyncio.run(ask())


def test_descriptions_of_the_endpoints(url: str) -> None:
    status, page = send(url, "GET", "/docs")
    assert status == 200 and b"/jobs/{job_id}" in page
    described = json.loads(send(url, "GET", "/openapi.json")[1])
    schema = described["components"]["schemas"]["EvaluateRequest"]
    assert schema["required"] == ["model", "tasks"]
    assert schema["properties"]["batch_size"]["type"] == ["integer", "string", "null"]
    assert set(described["paths"]["/jobs/{job_id}"]) == {"get", "delete"}


class Merger:
    """Stands for the merger of lmms_engine."""

    def __init__(self, checkpoint_type: str) -> None:
        self.checkpoint_type = checkpoint_type

    def merge(self, path: Path, output_path: Path | None = None) -> Path:
        if path.name == "missing":
            raise FileNotFoundError("no checkpoint")
        return (output_path or path) / self.checkpoint_type


def test_merge(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = EvalClient(url)
    with pytest.raises(HTTPStatusError, match="lmms_engine not available"):
        client.merge_checkpoint("x")
    package, module = ModuleType("lmms_engine"), ModuleType("lmms_engine.merger")
    module.__dict__["FSDP2Merger"] = Merger
    monkeypatch.setitem(sys.modules, "lmms_engine", package)
    monkeypatch.setitem(sys.modules, "lmms_engine.merger", module)
    assert client.merge_checkpoint("x", "y", "ema") == {
        "success": True,
        "message": "Checkpoint merged successfully",
        "merged_path": "y/ema",
    }
    with pytest.raises(HTTPStatusError) as caught:
        client.merge_checkpoint("missing")
    assert caught.value.response.status_code == 404


def test_used_port_is_an_error(workspace: Path) -> None:
    with open_socket("localhost", 0) as used:
        used.listen(1)
        port = used.getsockname()[1]
        with pytest.raises(InvalidOption, match=f"cannot listen on localhost:{port}"):
            launch_server(ServerArgs(port=port))


def test_command_line() -> None:
    assert prepare_server_args(["--host", "0.0.0.0", "--port", "9000"]) == ServerArgs(
        host="0.0.0.0", port=9000
    )
    assert prepare_server_args([]).host == "localhost"
    with pytest.raises(InvalidOption, match="from 1 to 65535"):
        prepare_server_args(["--port", "99999"])
    with pytest.raises(InvalidOption, match="--prot"):
        prepare_server_args(["--prot", "1"])


def test_unreachable_server() -> None:
    with open_socket("localhost", 0) as closed:
        client = EvalClient(f"http://127.0.0.1:{closed.getsockname()[1]}")
        assert not client.is_healthy()
        with pytest.raises(ConnectionError, match="cannot reach the evaluation server"):
            client.health()


def test_errors_are_those_of_httpx_if_the_script_uses_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    httpx = ModuleType("httpx")

    class StatusError(Exception):
        def __init__(self, message: str, *, request: Any, response: Any) -> None:
            super().__init__(message)
            self.request, self.response = request, response

    httpx.__dict__.update(
        HTTPStatusError=StatusError,
        Request=lambda method, url: (method, url),
        Response=lambda status, text, request: (status, json.loads(text)),
    )
    monkeypatch.setitem(sys.modules, "httpx", httpx)
    with pytest.raises(StatusError) as caught:
        EvalClient(url).get_job("1")
    assert caught.value.response == (404, {"detail": "Job 1 not found"})
