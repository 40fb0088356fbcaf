"""Every machine-readable output matches its documented JSON schema."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from jsonschema import Draft202012Validator
from scripts.reference.json_schemas import SCHEMAS, read_schema
from tests.making import write_task

import assay
from assay.cli.app import app, run_command_line

COMMANDS = {
    "run": [
        ["run", "--tasks", "quickstart", "--limit", "3", "--output_path", "one"],
        ["resume", "FIRST"],
    ],
    "runs": [["runs", "--in", "RUNS"], ["runs", "list", "--in", "RUNS"]],
    "runs_show": [["runs", "show", "FIRST"]],
    "runs_rm": [["runs", "rm", "COPY", "--yes"]],
    "runs_repair": [["runs", "repair", "FIRST"]],
    "plan": [["plan", "--tasks", "quickstart", "--limit", "3"]],
    "check": [["check", "quickstart_copy", "broken.yaml", "no_such_task"]],
    "show_task": [["show", "quickstart", "-n", "1"]],
    "show_run": [["show", "FIRST", "-n", "20"], ["show", "SECOND", "--wrong"]],
    "show_yaml": [["show", "quickstart", "--yaml"]],
    "compare": [
        ["compare", "FIRST", "SECOND"],
        ["compare", "FIRST", "SECOND", "--show_flips", "--allow_mismatch", "all"],
    ],
    "table": [["table", "FIRST", "SECOND", "--every"]],
    "gate": [
        ["gate", "FIRST", "--baseline", "SECOND"],
        ["gate", "FIRST", "--min", "quickstart_copy=0.999"],
    ],
    "power": [["power", "FIRST"]],
    "launch": [
        ["launch", "slurm", "--dry_run", "--tasks", "quickstart"],
        ["launch", "k8s", "--dry_run", "--image", "i", "--volume", "r:/r", "--output_path", "/r/a"],
    ],
    "lock": [["lock", "-t", "quickstart_copy", "--limit", "2"]],
    "lock_check": [["lock", "--check", "changed.lock"]],
    "same": [["same", "FIRST", "FIRST"], ["same", "FIRST", "COPY", "--delta", "0.4"]],
    "verify": [["verify", "FIRST"]],
    "score": [["score", "FIRST", "--dry_run"]],
    "explain": [["explain", "FIRST", "SECOND"]],
    "ls": [["ls", kind] for kind in ("tasks", "groups", "tags", "models", "metrics", "options")]
    + [["ls", "models", "hf"], ["ls"]],
    "bench_model": [["bench", "model", "--model", "dummy", "--requests", "4"]],
    "cache": [["cache", "ls"]],
    "cache_prune": [["cache", "prune", "--all", "--dry_run"]],
    "import": [["import", "RUNS"]],
    "calibrate": [["calibrate", "FIRST", "--labels", "labels.jsonl", "--metric", "exact_match"]],
    "sweep": [["sweep", "sweep.yaml"]],
    "sweep_dry_run": [["sweep", "sweep.yaml", "--dry_run"], ["sweep", "priced.yaml", "--dry_run"]],
    "lint_benchmark": [["lint-benchmark", "FIRST", "SECOND"]],
}

ELSEWHERE = {"bridge", "watch"}
"""Schemas of commands that need a sandbox or checkpoints; their own tests validate the output."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """Two small runs of the embedded model, and their folder."""
    folder = tmp_path_factory.mktemp("runs")
    first, second = (
        assay.run(tasks=["quickstart"], limit=3, num_fewshot=shots, output_path=str(folder), no_cache=True)
        for shots in (None, 1)
    )
    return str(first.folder), str(second.folder), str(folder)


@pytest.mark.parametrize("name", COMMANDS)
def test_output_matches_its_schema(
    name: str,
    runs: tuple[str, str, str],
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a-forecast")
    write_task(workspace, "broken", metric_list=[{"metric": "exact_macth"}])
    label = '{"task": "quickstart_copy", "document": %d, "label": %d}\n'
    Path("labels.jsonl").write_text("".join(label % (number, number % 2) for number in range(3)), "utf-8")
    Path("sweep.yaml").write_text(
        "models: [{model: dummy}]\ntasks: [quickstart_copy]\noptions: {limit: 1}\n", "utf-8"
    )
    Path("priced.yaml").write_text(
        "models: [{model: openai, model_args: 'model=gpt-4o-mini'}]\ntasks: [quickstart_copy]\noptions: {limit: 1}\n",
        "utf-8",
    )
    if name == "lock_check":
        run_command_line(["lock", "-t", "quickstart_copy", "--limit", "2", "-o", "changed.lock"])
        Path("changed.lock").write_text(
            Path("changed.lock").read_text("utf-8").replace("num_fewshot: 3", "num_fewshot: 2")
        )
    schema = read_schema(SCHEMAS / f"{name}.json")
    Draft202012Validator.check_schema(schema)
    shutil.copytree(runs[0], "copy")
    names = {**dict(zip(("FIRST", "SECOND", "RUNS"), runs, strict=True)), "COPY": "copy"}
    for words in COMMANDS[name]:
        capsys.readouterr()
        run_command_line([*(names.get(word, word) for word in words), "--json"])
        out, err = capsys.readouterr()
        assert out, err
        problems = [
            f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
            for error in Draft202012Validator(schema).iter_errors(json.loads(out))
        ]
        assert not problems, words


def test_every_schema_is_validated_and_says_what_it_describes() -> None:
    files = {path.stem: path for path in SCHEMAS.glob("*.json")}
    assert set(files) == set(COMMANDS) | ELSEWHERE
    for path in files.values():
        schema: dict[str, Any] = read_schema(path)
        assert schema["title"].startswith("assay ")
        assert schema["description"].endswith(".")


def test_every_command_with_json_output_is_validated() -> None:
    tested = {tuple(words[:2]) for group in COMMANDS.values() for words in group} | {
        (name,) for name in ELSEWHERE
    }
    missing = [
        words for words in _list_json_commands(app) if words not in {found[: len(words)] for found in tested}
    ]
    assert not missing


def _list_json_commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if any("--json" in parameter.opts for parameter in command.params):
            yield (*path, name)
        if isinstance(command, click.Group):
            yield from _list_json_commands(command, (*path, name))


def test_a_schema_rejects_other_values() -> None:
    schema = read_schema(SCHEMAS / "runs.json")
    assert list(Draft202012Validator(schema).iter_errors([{"id": 3}]))
