"""Pairs of real runs that differ in one setting: `explain` names the setting, and `compare` calls no run better."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.assay_compat.judge_server import serving
from tests.making import Function, write_task
from tests.models.hf.tiny_checkpoints import tiny_checkpoint

import assay
from assay.cli.app import run_command_line

QUESTIONS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(12)]
CHECKSUM = """
def score_checksum(doc, results):
    return {"checksum": sum(map(ord, results[0])) % 97 / 97}
"""


@pytest.fixture
def read_json(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Return a function that runs a command with `--json`."""

    def run(command: str, first: assay.Run, second: assay.Run, *options: str) -> Any:
        capsys.readouterr()
        assert run_command_line([command, str(first.folder), str(second.folder), "--json", *options]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def find_causes(explained: Any) -> dict[str, str]:
    """Return the causes of the only task, with the two values of each."""
    (task,) = explained
    return {cause["name"]: cause["detail"] for cause in task["causes"]}


def write_checksums(folder: Path, tokens: int, **keys: Any) -> Path:
    """Write a task whose scores differ if the responses do."""
    return write_task(
        folder,
        "continue",
        QUESTIONS,
        generation_kwargs={"until": ["\n\n"], "max_gen_toks": tokens, "do_sample": False},
        helpers=CHECKSUM,
        process_results=Function("utils.score_checksum"),
        metric_list=[{"metric": "checksum", "aggregation": "mean", "higher_is_better": True}],
        **keys,
    )


def run_checkpoint(task: Path, folder: str, dtype: str = "float32", **options: Any) -> assay.Run:
    arguments = {"pretrained": str(tiny_checkpoint()), "dtype": dtype}
    return assay.run(
        model="hf", model_args=arguments, tasks=[str(task)], output_path=folder, no_cache=True, **options
    )


@pytest.mark.torch
def test_another_dtype_is_named_as_the_cause(workspace: Path, read_json: Callable[..., Any]) -> None:
    task = write_checksums(workspace, tokens=40)
    first, second = (run_checkpoint(task, dtype, dtype) for dtype in ("float32", "bfloat16"))
    assert find_causes(read_json("explain", first, second))["dtype"] == "float32 and bfloat16"
    compared = read_json("compare", first, second)
    assert [(row["blocked"], row["better"]) for row in compared[0]["rows"]] == [(["identity"], None)]


@pytest.mark.torch
def test_another_fewshot_seed_is_named_as_the_cause(workspace: Path, read_json: Callable[..., Any]) -> None:
    task = write_checksums(workspace, tokens=8, num_fewshot=2)
    first, second = (run_checkpoint(task, f"seed {seed}", seed=[0, 1, 2, seed]) for seed in (5, 6))
    assert find_causes(read_json("explain", first, second))["few-shot seed"] == "5 and 6"
    compared = read_json("compare", first, second)
    assert [(row["blocked"], row["better"]) for row in compared[0]["rows"]] == [(["prompts"], None)]


@pytest.mark.server
def test_another_judge_is_named_as_the_cause(workspace: Path, read_json: Callable[..., Any]) -> None:
    task = write_task(
        workspace, "judged", QUESTIONS, metric_list=[{"metric": "correct", "judge": {"kind": "binary"}}]
    )

    def run(url: str, judge: str) -> assay.Run:
        return assay.run(
            model="oracle",
            tasks=[str(task)],
            judge=[f"openai,model={judge},base_url={url}"],
            output_path=judge,
            no_cache=True,
        )

    def reply(payload: dict[str, Any], number: int) -> str:
        return "CORRECT" if payload["model"] == "kind" else "INCORRECT"

    with serving(reply) as server:
        kind, strict = run(server.url, "kind"), run(server.url, "strict")
    assert kind.results["judged"]["correct,none"] == 1 and strict.results["judged"]["correct,none"] == 0
    (detail,) = find_causes(read_json("explain", kind, strict)).values()
    assert detail == "kind and strict"
    compared = read_json("compare", kind, strict)
    assert [(row["blocked"], row["better"]) for row in compared[0]["rows"]] == [(["judge"], None)]


def test_a_changed_metric_is_named_as_the_cause(workspace: Path, read_json: Callable[..., Any]) -> None:
    rows = [{"question": row["question"], "answer": f"it is {row['answer']}"} for row in QUESTIONS]
    upper = [{"name": "upper", "filter": [{"function": "uppercase"}]}]

    def run(folder: str, **keys: Any) -> assay.Run:
        metric = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True, **keys}
        task = write_task(workspace / folder, "sums", rows, metric_list=[metric], filter_list=upper)
        return assay.run(model="oracle", tasks=[str(task)], output_path=folder, no_cache=True)

    exact, relaxed = run("exact"), run("relaxed", ignore_case=True)
    causes = find_causes(read_json("explain", exact, relaxed))
    assert "ignore_case" in causes["changed metric"]
    compared = read_json("compare", exact, relaxed)
    assert [(row["blocked"], row["better"]) for row in compared[0]["rows"]] == [(["scoring"], None)]
