"""The arguments and the process of a job."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from assay_compat.commands.lmms_eval import translate_command
from assay_compat.evaluation_server import job_process
from assay_compat.evaluation_server.job_process import JobFailed, build_arguments, run_job
from assay_compat.evaluation_server.protocol import EvaluateRequest


def run(request: EvaluateRequest, folder: Path) -> dict[str, Any]:
    return asyncio.run(run_job(request, temp_dir_prefix=str(folder / "results_")))


def test_arguments() -> None:
    request = EvaluateRequest(
        model="hf", tasks=["a", "b"], model_args={"pretrained": "x,y", "flag": True}, num_fewshot=0, batch_size="auto",
        device="cpu", limit=0.5, gen_kwargs="temperature=0", predict_only=True, output_dir="out",
    )  # fmt: skip
    assert build_arguments(request) == [
        "--model=hf", "--tasks=a,b", '--model_args={"pretrained": "x,y", "flag": true}', "--batch_size=auto",
        "--limit=0.5", "--gen_kwargs=temperature=0", "--device=cpu", "--num_fewshot=0", "--output_path=out",
        "--log_samples", "--predict_only",
    ]  # fmt: skip
    assert build_arguments(EvaluateRequest(model="m", tasks=["t"], limit=0, log_samples=False)) == [
        "--model=m",
        "--tasks=t",
    ]


def test_values_are_no_flags() -> None:
    flag = "--include_path=elsewhere"
    request = EvaluateRequest(
        model="-m", tasks=[flag], batch_size=flag, gen_kwargs=flag, device=flag, limit=-3
    )
    translated = translate_command(build_arguments(request))
    given = translated.given
    assert "include_path" not in given
    assert (given["model"], given["limit"]) == ("-m", "-3")
    assert {given[name] for name in ("tasks", "batch_size", "gen_kwargs", "device")} == {flag}


def test_job_is_a_run_of_assay_with_the_files_of_the_harness(workspace: Path) -> None:
    found = run(EvaluateRequest(model="embedded", tasks=["quickstart_copy"], limit=2), workspace)
    files = found["embedded"]
    assert Path(files["results"]).parent.parent.name.startswith("results_")
    results = json.loads(Path(files["results"]).read_text("utf-8"))
    assert results["results"]["quickstart_copy"]["exact_match,none"] == 1.0
    assert [len(Path(name).read_text("utf-8").splitlines()) for name in files["samples"]] == [2]
    assert list((workspace / "assay-runs").glob("*/journal.sqlite"))


def test_job_with_a_folder_and_without_samples(workspace: Path) -> None:
    request = EvaluateRequest(
        model="embedded", tasks=["quickstart_copy"], limit=2, log_samples=False, output_dir="out"
    )
    assert run(request, workspace)["embedded"]["samples"] == []
    written = [path.name for path in (workspace / "out").rglob("*.jsonl")]
    assert not written
    assert list((workspace / "out").glob("*/journal.sqlite"))


def test_failed_run_is_reported_with_the_end_of_its_log(workspace: Path) -> None:
    with pytest.raises(JobFailed, match=r"exit code 2.*\n.*no task is called `nope`"):
        run(EvaluateRequest(model="embedded", tasks=["nope"]), workspace)


def test_cancelled_job_ends_its_process(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / "sleeping_job.py").write_text(
        "import os, time\nopen('pid', 'w').write(str(os.getpid()))\nos.rename('pid', 'started')\ntime.sleep(600)\n"
    )
    monkeypatch.setattr(job_process, "_COMMAND", "sleeping_job")

    async def check() -> int:
        task = asyncio.create_task(
            run_job(EvaluateRequest(model="m", tasks=["t"]), temp_dir_prefix=str(workspace / "r_"))
        )
        while not (workspace / "started").exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return int((workspace / "started").read_text())

    process = asyncio.run(check())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_job_is_no_rank_of_the_program_that_started_the_server(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "printing_job.py").write_text(
        "import json, os, sys\nopen(sys.argv[1], 'w').write(json.dumps({'rank': os.environ.get('RANK')}))\n"
    )
    monkeypatch.setattr(job_process, "_COMMAND", "printing_job")
    monkeypatch.setenv("RANK", "3")
    assert run(EvaluateRequest(model="m", tasks=["t"]), workspace) == {"rank": None}
