"""`assay launch`: the files it writes and what it submits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.cli.conftest import Assay

SLURM = (
    "launch",
    "slurm",
    "--model",
    "hf",
    "--model_args",
    "pretrained=/shared/my model",
    "--tasks",
    "quickstart",
)
K8S = (
    "launch", "k8s", "--image", "i", "--volume", "results:/results", "--model", "embedded", "quickstart_copy",
    "-o", "/results/a",
)  # fmt: skip


def put_program(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def test_a_dry_run_writes_the_script_and_says_how_to_submit_it(assay_command: Assay) -> None:
    called = assay_command(*SLURM, "--dry-run", "--nodes", "2", "--gpus", "4", "--output", "jobs")
    assert called.code == 0, called.err
    assert called.out == (
        "written: jobs/assay-hf-quickstart.sbatch\nsubmit it with: sbatch --parsable jobs/assay-hf-quickstart.sbatch\n"
    )
    text = Path("jobs/assay-hf-quickstart.sbatch").read_text()
    assert (
        'assay run --model hf --model_args \'{"pretrained": "/shared/my model"}\' --tasks quickstart --replicas 8 --ray'
        in text
    )
    assert Path("jobs/logs").is_dir()


def test_an_unknown_task_is_a_warning(assay_command: Assay) -> None:
    called = assay_command("launch", "slurm", "--dry_run", "-t", "nosuchtask")
    assert called.code == 0, called.err
    warning = " ".join(called.err.split())
    assert "warning: no task is called `nosuchtask` on this machine; the job fails unless" in warning
    assert "no task" not in assay_command(*SLURM, "--dry_run").err


def test_without_the_program_it_is_an_error_that_names_the_file(
    assay_command: Assay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for words, program in ((SLURM, "sbatch"), (K8S, "kubectl")):
        called = assay_command(*words)
        assert (
            called.code == 2 and f"error: `{program}` is not installed here\n  at assay-jobs/" in called.err
        )


def test_the_program_gets_the_file(
    assay_command: Assay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put_program(tmp_path / "bin", "sbatch", 'echo "job for $2"')
    put_program(tmp_path / "bin", "kubectl", "echo 'no cluster' >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    called = assay_command(*SLURM)
    assert called.code == 0 and "submitted: job for assay-jobs/assay-hf-quickstart.sbatch" in called.out
    called = assay_command(*K8S)
    assert called.code == 2 and "error: `kubectl` failed (exit code 1): no cluster" in called.err


def test_secrets_are_not_written_and_variables_are_named(
    assay_command: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abcdefghijklmnop")
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
    called = assay_command(
        *K8S,
        "--dry_run",
        "--env",
        "HF_TOKEN",
        "--secret",
        "keys",
        "--judge_args",
        "token=hf_abcdefghijklmnop,n=1",
    )
    assert called.code == 0, called.err
    text = Path("assay-jobs/assay-embedded-quickstart-copy.yaml").read_text()
    assert "abcdefghij" not in text + called.out + called.err
    warnings = " ".join(called.err.split())
    assert "not written because it is a secret: --judge_args token" in warnings
    assert "set here, but not passed with --env: OPENAI_API_KEY" in warnings
    _, job = yaml.safe_load_all(text)
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert head["env"] == [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "HF_TOKEN"}}}
    ]


@pytest.mark.parametrize(
    "command",
    ["export OPENAI_API_KEY=abcdefghij", "login sk-qponmlkjihgfedcba", "login my-other-hidden-value"],
)
def test_setup_commands_with_secrets_are_errors(
    assay_command: Assay, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "my-other-hidden-value")
    called = assay_command(*SLURM, "--dry_run", "--setup", command)
    assert called.code == 2 and "error: a command contains a secret" in called.err
    assert command.split()[-1] not in called.err and not Path("assay-jobs").exists()


@pytest.mark.parametrize(
    "command",
    ["source .venv/bin/activate", "export HF_TOKEN=$(cat ~/.token)", 'export HF_TOKEN="$MY_TOKEN"; ls'],
)
def test_setup_commands_are_written(assay_command: Assay, command: str) -> None:
    called = assay_command(*SLURM, "--dry_run", "--setup", command)
    assert called.code == 0, called.err
    assert f"\n{command}\n" in Path("assay-jobs/assay-hf-quickstart.sbatch").read_text()


def test_a_lockfile_can_be_launched(assay_command: Assay) -> None:
    assert assay_command("lock", "-t", "quickstart_copy", "--limit", "2").code == 0
    called = assay_command(
        "launch",
        "slurm",
        "--dry_run",
        "--locked",
        "eval.lock",
        "--allow_drift",
        "versions",
        "-o",
        "out",
        "--json",
    )
    assert called.code == 0, called.err
    words = json.loads(called.out)["command"]
    assert words == [
        "assay",
        "run",
        "--locked",
        "eval.lock",
        "--allow_drift",
        "versions",
        "--output_path",
        "out",
        "--replicas",
        "1",
    ]
    called = assay_command("launch", "slurm", "--dry_run", "--locked", "eval.lock", "--limit", "3")
    assert called.code == 2 and "--limit contradicts the lockfile" in called.err


def test_files_that_no_volume_contains_are_named(assay_command: Assay) -> None:
    words = ["launch", "k8s", "--dry_run", "--image", "i", "--volume", "data:/data", "-o", "/data/out"]
    tasks = ["--tasks", "my/task.yaml", "--include_path", "/data/tasks", "--data_root", "/elsewhere"]
    called = assay_command(*words, "--model", "hf", *tasks, "--json")
    assert called.code == 0, called.err
    warnings = json.loads(called.out)["warnings"]
    assert "the pods read my/task.yaml, /elsewhere from the image: no volume contains it" in warnings


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*SLURM, "--time", "soon"], "`soon` is not a time limit"),
        ([*SLURM, "--sbatch", "qos"], "`qos` is not KEY=VALUE"),
        ([*SLURM, "--setup", "a\nb"], "a command must be one line"),
        ([*SLURM, "--ray", "auto"], "unknown option `--ray`"),
        (["launch", "slurm", "--model", "openai"], "the model `openai` runs on a server"),
        (["launch", "k8s", "--image", "i", "--model", "hf"], "the results would be lost"),
        (["launch", "k8s"], "Missing option '--image'"),
        (["launch", "lsf"], "No such command 'lsf'"),
    ],
    ids=lambda value: "" if isinstance(value, list) else value[:30],
)
def test_wrong_arguments_are_errors(assay_command: Assay, arguments: list[str], message: str) -> None:
    called = assay_command(*arguments, "--dry_run")
    assert called.code == 2 and message in called.err and "Traceback" not in called.err
