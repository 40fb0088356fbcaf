"""A run with a cost limit stops with its own exit code and resumes with a higher limit."""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from tests.command_server import run_command
from tests.making import write_task
from tests.models.hosted.services import KEY, Anthropic, serving

import assay
from assay.core.errors import BudgetExceeded


def test_a_run_stops_at_its_cost_limit_and_resumes_with_a_higher_one(workspace: Path) -> None:
    write_task(workspace / "tasks", generation_kwargs={"max_gen_toks": 4})
    table = 'date = "2031-02-03"\n[prices]\n"127.0.0.1/*" = { input = 0, output = 1000000 }'
    (workspace / "mine.toml").write_text(table)  # one dollar per token

    def call(service: Anthropic, limit: str) -> tuple[int, str]:
        arguments = f"model=some-model,base_url={service.url}/v1,num_concurrent=1"
        words = [
            "run",
            "--model",
            "anthropic",
            "--model_args",
            arguments,
            "--include_path",
            "tasks",
            "--tasks",
            "sums",
        ]
        more = ["--apply_chat_template", "--prices", "mine.toml", "--max_cost", limit, "--no_cache"]
        done = run_command([*words, *more], cwd=workspace, env={**os.environ, "ANTHROPIC_API_KEY": KEY})
        return done.returncode, done.stdout + done.stderr

    with serving(Anthropic()) as service:
        code, output = call(service, "4")
        assert code == 4, output
        assert "spent; the next request could exceed --max_cost 4" in output
        asked = len(service.calls)
        assert 1 <= asked <= 4
        code, output = call(service, "50")
        assert code == 0, output
        assert len(service.calls) == 6
        assert "6 output tokens; $6.00 at prices of 2031-02-03" in output


class _ThinkingServer(BaseHTTPRequestHandler):
    """Thinks for 200 to 6,000 tokens, which `max_tokens` does not limit, and answers."""

    protocol_version = "HTTP/1.1"
    written: ClassVar[list[int]] = []
    """Tokens of each answer; probes of the server are paid, too."""

    probes: ClassVar[int] = 0

    def do_GET(self) -> None:
        self._reply({"object": "list", "data": [{"id": "thinker", "object": "model"}]})

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        tokens = 200 + sum(text.encode()) * 2741 % 5800
        self.written.append(tokens)
        if "Question" not in text:
            type(self).probes += 1
        message = {"role": "assistant", "content": "2", "reasoning_content": "Hm."}
        self._reply(
            {
                "id": "1",
                "object": "chat.completion",
                "model": "thinker",
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                "usage": {
                    "prompt_tokens": 20,
                    "completion_tokens": tokens,
                    "completion_tokens_details": {"reasoning_tokens": tokens - 1},
                },
            }
        )

    def _reply(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Write nothing."""


def test_the_limit_holds_for_a_server_that_thinks(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    (workspace / "mine.toml").write_text(
        'date = "2031-02-03"\n[prices]\n"127.0.0.1/*" = { input = 0, output = 10 }'
    )
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(200)]
    path = write_task(workspace / "tasks", "sums", rows, generation_kwargs={"max_gen_toks": 32})
    _ThinkingServer.written, _ThinkingServer.probes = [], 0
    with ThreadingHTTPServer(("127.0.0.1", 0), _ThinkingServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(BudgetExceeded) as caught:
            assay.run(
                model="openai",
                model_args={
                    "model": "thinker",
                    "base_url": f"http://127.0.0.1:{server.server_address[1]}/v1",
                    "num_concurrent": 64,
                },
                tasks=[str(path)],
                prices="mine.toml",
                max_cost=0.5,
                no_cache=True,
                apply_chat_template=True,
            )
        server.shutdown()
    assert caught.value.exit_code == 4
    most = max(_ThinkingServer.written) * 10 / 1e6
    spent = sum(_ThinkingServer.written) * 10 / 1e6
    assert 0.3 < spent <= 0.5 + most
    assert _ThinkingServer.probes > 0
    assert f"${spent:.4g} spent" in caught.value.what
    costs = assay.open_run("latest").facts["probe_costs"]
    assert 0 < costs[""] < spent
