"""A server whose answers come with reasoning gets the scores of its answers alone."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.assay_compat.judge_server import serving

import assay
from assay.cli.app import run_command_line

FORMATS = {
    "plain": "{answer}",
    "think": "<think>\nNo commas, and 300 words. Question: is it?\n\n</think>\n\n{answer}",
    "open": "No commas,\n\nand 300 words</think>{answer}",
    "mistral": "[THINK]a, b, c[/THINK]{answer}",
    "harmony": "<|channel|>analysis<|message|>a, b<|end|><|start|>assistant<|channel|>final<|message|>{answer}",
}


def answer(payload: dict[str, Any]) -> str:
    """An answer that follows some instructions: the same for the same prompt."""
    prompt = payload["messages"][-1]["content"]
    words = [prompt.split()[index % len(prompt.split())] for index in range(40)]
    return (
        "*highlight* ".join(words)
        if hashlib.sha256(prompt.encode()).digest()[0] % 2
        else " ".join(words).lower()
    )


def test_usage_names_the_tokens_of_reasoning(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("prices.toml").write_text(
        'date = "2026-01-01"\n[prices]\n"127.0.0.1/*" = { input = 1.0, output = 10.0 }\n'
    )
    choice = {
        "message": {"role": "assistant", "content": "4", "reasoning_content": "2+2 or 3"},
        "finish_reason": "stop",
    }
    usage = {
        "prompt_tokens": 11,
        "completion_tokens": 1244,
        "completion_tokens_details": {"reasoning_tokens": 1203},
    }
    reply = json.dumps({"model": "served", "choices": [choice], "usage": usage})
    with serving(lambda payload, number: (200, reply)) as server:
        arguments = f"model=m,base_url={server.url},probe=false"
        words = ["--tasks", "quickstart_addition", "--limit", "2", "--apply_chat_template", "--no_cache"]
        done = run_command_line(
            ["run", "--model", "openai", "--model_args", arguments, "--prices", "prices.toml", *words]
        )
    printed = capsys.readouterr()
    assert done == 0, printed.err
    table = " ".join(printed.out.split())
    assert "2488 output tokens (per response: answers 41 tokens, reasoning 1,203)" in table
    assert "22+2.49k tokens, 2.41k of them reasoning" in printed.err
    run = assay.open_run("latest")
    assert run.spent.reasoning_tokens == 2406
    assert run.spent.cost_usd == pytest.approx((22 * 1 + 2488 * 10) / 1e6)
    assert run_command_line(["export", "latest", "--format", "csv", "--output", "documents.csv"]) == 0
    with Path("documents.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["reasoning"], row["response"]) for row in rows] == [("2+2 or 3", "4")] * 2


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "plain"])
def test_ifeval_scores_the_answers_alone(name: str) -> None:
    pytest.importorskip("langdetect", reason="needs the extra `ifeval`")

    def score(template: str) -> dict[tuple[str, str], Any]:
        with serving(lambda payload, number: template.replace("{answer}", answer(payload))) as server:
            run = assay.run(
                model="openai",
                model_args={"model": "m", "base_url": server.url, "probe": False},
                tasks=["firststeps_ifeval"],
                limit=12,
                apply_chat_template=True,
                no_cache=True,
            )
        return {(one.metric, one.pipeline): (one.value, one.scored) for one in run.estimates}

    expected = score(FORMATS["plain"])
    assert 0 < next(iter(expected.values()))[0] < 1
    assert score(FORMATS[name]) == expected
