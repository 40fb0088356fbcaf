from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from scripts.reference.json_schemas import SCHEMAS, read_schema
from tests import training_folders
from tests.cli.conftest import Assay, CommandResult
from tests.making import write_task
from tests.training_folders import MODEL, ROWS, write_checkpoint

from assay.store.database.locks import RunLock

OPTIONS = (
    "--model",
    MODEL,
    "--model_args",
    "pretrained={checkpoint}",
    "--no_cache",
    "--settle",
    "0",
    "--poll",
    "0.05",
)


@pytest.fixture
def training(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a task and two checkpoints; runs in other processes find the model of the tests."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    write_task(workspace, rows=ROWS)
    write_task(workspace, "varied", rows=ROWS, variants=[{"name": "short", "doc_to_text": "{{question}}"}])
    write_checkpoint(workspace / "out", 10, range(5))
    write_checkpoint(workspace / "out", 20, range(35))
    return workspace


def watch(assay_command: Assay, *arguments: str) -> CommandResult:
    model = str(training_folders.__file__)
    return assay_command(
        "watch", "out", "--tasks", "sums.yaml", "--include_path", model, *OPTIONS, *arguments
    )


def test_checkpoints_are_evaluated_in_processes_and_the_curve_is_printed(
    assay_command: Assay, training: Path
) -> None:
    script = training / "hook.py"
    script.write_text(
        "import json, sys; open('events.jsonl', 'a').write(json.dumps(json.load(sys.stdin)) + '\\n')"
    )
    hook = shlex.join([sys.executable, str(script)])
    called = watch(
        assay_command, "--once", "--order", "oldest", "-o", "runs", "--curve", "mine.csv", "--on_result", hook,
        "--on_regression", hook,
    )  # fmt: skip
    assert called.code == 0, called.err
    assert "0.8750" in called.out and "0.1250" in called.out
    assert "sums: best checkpoint-10" in called.out
    assert "REGRESSION sums: exact_match of step 20 is -75.0 points compared with step 10" in called.err
    (folder,) = Path("runs").glob("watch-*")
    assert "<svg" in (folder / "curve.svg").read_text()
    assert Path("mine.csv").read_text() == (folder / "curve.csv").read_text()
    events = [json.loads(line) for line in Path("events.jsonl").read_text().splitlines()]
    assert [(event["event"], event["checkpoint"]) for event in events] == [
        ("result", "checkpoint-10"),
        ("result", "checkpoint-20"),
        ("regression", "checkpoint-20"),
    ]
    assert events[2]["p_value"] <= events[2]["level"] and events[0]["tasks"]["sums"]["value"] == 0.875

    again = watch(
        assay_command, "--once", "-o", "runs", "--json", "--on_result", hook, "--on_regression", hook
    )
    assert again.code == 0 and "evaluating" not in again.err
    content = json.loads(again.out)
    assert content["tasks"][0]["best"]["checkpoint"] == "checkpoint-10"
    Draft202012Validator(read_schema(SCHEMAS / "watch.json")).validate(content)
    assert len(Path("events.jsonl").read_text().splitlines()) == 3  # delivered events are not sent again


def test_failed_checkpoint_is_reported_with_its_reason(assay_command: Assay, training: Path) -> None:
    (training / "out" / "checkpoint-20" / "wrong.json").write_text("[")
    shutil.rmtree(training / "out" / "checkpoint-10")
    called = watch(assay_command, "--once", "--max_attempts", "1")
    assert called.code == 1
    assert "checkpoint-20: failed: " in called.err and "Expecting value" in called.err
    assert "1 of 1 checkpoints failed: checkpoint-20" in called.err


def test_submit_api_prints_where_its_token_is_and_not_the_token(assay_command: Assay, training: Path) -> None:
    shutil.rmtree(training / "out")
    Path("out").mkdir()
    called = watch(assay_command, "--once", "-o", "runs", "--submit_port", "0")
    assert called.code == 0, called.err
    (path,) = Path("runs").glob("watch-*/token")
    assert path.stat().st_mode & 0o777 == 0o600 and len(path.read_text()) >= 32
    assert "submit API http://127.0.0.1:" in called.err
    assert path.read_text() not in called.err + called.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere", "--tasks", "sums.yaml"), "there is no folder"),
        (("out", "--tasks", "nosuch"), "nosuch"),
        (("out", "--tasks", "sums.yaml", "--model", "dummy"), "do not contain the checkpoint"),
        (("out", "--tasks", "sums.yaml", "--alarm_task", "other"), "other"),
        (("out", "--tasks", "sums.yaml", "--webhook", "example.org"), "not an HTTP URL"),
        (("out", "--tasks", "sums.yaml", "--curve", "curve.pdf"), "unsupported format"),
        (("out", "--tasks", "sums.yaml", "--alpha", "1.5"), "alpha"),
        (("out", "--tasks", "sums.yaml", "--order", "random"), "order"),
        (("out", "--tasks", "sums.yaml", "--vary", "system"), "a watch does not support `vary`"),
        (("out", "--tasks", "sums.yaml", "--budget", "20"), "a watch does not support `budget`"),
        (("out", "--tasks", "sums.yaml", "--model_args", "dtpye=float32"), "unknown argument `dtpye`"),
        (
            ("out", "--tasks", "sums.yaml", "--model", "no_such", "--model_args", "path={checkpoint}"),
            "no model is called",
        ),
        (("out", "--tasks", "varied.yaml"), "a watch needs one prompt per document, and `varied` has 2"),
    ],
)
def test_bad_input_is_reported_before_anything_starts(
    assay_command: Assay, training: Path, arguments: tuple[str, ...], message: str
) -> None:
    called = assay_command("watch", *arguments, "--once")
    assert called.code == 2
    assert message in called.err and "Traceback" not in called.err
    assert not Path("assay-runs").exists()


def test_two_watches_of_the_same_folder_exclude_each_other(assay_command: Assay, training: Path) -> None:
    shutil.rmtree(training / "out")
    Path("out").mkdir()
    assert watch(assay_command, "--once", "-o", "runs").code == 0
    (folder,) = Path("runs").glob("watch-*")
    lock = RunLock(folder)
    lock.acquire()
    try:
        called = watch(assay_command, "--once", "-o", "runs")
    finally:
        lock.release()
    assert called.code == 2 and "these checkpoints are watched already" in called.err


def test_empty_folder_is_named_with_the_patterns(assay_command: Assay, training: Path) -> None:
    called = watch(assay_command, "--once", "-o", "runs", "--pattern", "model-*")
    assert called.code == 0
    assert "warning: no checkpoint matches model-* so far" in called.err
