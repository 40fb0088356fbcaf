"""A run with a cost limit stops with its own exit code and resumes with a higher limit."""

from __future__ import annotations

import os
from pathlib import Path

from tests.command_server import run_command
from tests.making import write_task
from tests.models.hosted.services import KEY, Anthropic, serving


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
