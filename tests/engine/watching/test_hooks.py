from __future__ import annotations

import json
import shlex
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from assay.core.errors import InvalidOption
from assay.engine.watching.hooks import HookDispatcher, Hooks, check_webhook


class Receiver(HTTPServer):
    """A webhook that fails a number of times."""

    def __init__(self, failures: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.failures = failures
        self.bodies: list[dict[str, object]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/services/very-secret-key"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.server.failures -= 1
        self.send_response(503 if self.server.failures >= 0 else 204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver(0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def deliver(hooks: Hooks, *kinds: str) -> tuple[list[str], list[str]]:
    """Send an event of each kind; return the delivered ids and the problems."""
    delivered: list[str] = []
    problems: list[str] = []
    dispatcher = HookDispatcher(hooks, delivered.append, problems.append)
    for kind in kinds:
        dispatcher.send(
            f"{kind}:1", {"event": kind, "checkpoint": "a'; touch owned; '", "score": 0.5, "tasks": {}}
        )
    dispatcher.close()
    return delivered, problems


def test_command_gets_the_event_on_standard_input_and_in_variables(tmp_path: Path) -> None:
    script = tmp_path / "hook.py"
    script.write_text(
        "import json, os, sys, pathlib\n"
        "pathlib.Path(sys.argv[1]).write_text(json.dumps([json.load(sys.stdin), os.environ['ASSAY_CHECKPOINT']]))"
    )
    target = tmp_path / "got.json"
    command = shlex.join([sys.executable, str(script), str(target)])
    assert deliver(Hooks(on_result=[command]), "result", "regression") == (["result:1", "regression:1"], [])
    payload, name = json.loads(target.read_text())
    assert payload["event"] == "result" and name == "a'; touch owned; '"
    assert not (tmp_path / "owned").exists() and not Path("owned").exists()


def test_failing_command_is_repeated_and_reported(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    command = f"echo call >> {shlex.quote(str(log))}; echo no such host >&2; exit 3"
    delivered, problems = deliver(Hooks(on_regression=[command], retry_s=0.0), "regression")
    assert log.read_text().count("call") == 3
    assert delivered == ["regression:1"]
    assert problems == ["the command of the event regression failed: exit code 3: no such host"]


def test_webhook_is_repeated_until_it_succeeds(receiver: Receiver) -> None:
    receiver.failures = 2
    assert deliver(Hooks(webhooks=[receiver.url], retry_s=0.0), "result") == (["result:1"], [])
    assert len(receiver.bodies) == 3 and receiver.bodies[-1]["score"] == 0.5


def test_webhook_that_fails_is_a_warning_without_its_secret(receiver: Receiver) -> None:
    receiver.failures = 99
    hooks = Hooks(webhooks=[check_webhook(receiver.url)], retry_s=0.0)
    _, problems = deliver(hooks, "result")
    assert problems == ["the webhook on 127.0.0.1 failed: HTTP 503"]


def test_unreachable_webhook_is_a_warning(receiver: Receiver) -> None:
    _, problems = deliver(Hooks(webhooks=["http://127.0.0.1:9/hook"], retry_s=0.0), "result")
    assert len(problems) == 1 and "refused" in problems[0]


def test_hanging_hook_does_not_stop_the_watch() -> None:
    problems: list[str] = []
    dispatcher = HookDispatcher(Hooks(on_result=["sleep 2"]), on_problem=problems.append)
    dispatcher.send("result:1", {"event": "result"})
    dispatcher.close(timeout_s=0.05)
    assert problems == ["hooks are still running; the watch ends without them"]


@pytest.mark.parametrize("url", ["example.org", "file:///etc/passwd", "ftp://example.org/x", "http://"])
def test_other_urls_are_rejected(url: str) -> None:
    with pytest.raises(InvalidOption, match="not an HTTP URL"):
        check_webhook(url)
