"""Start the process of a job (`job_command`), wait for it, and read which files it wrote."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from assay_compat.evaluation_server.protocol import EvaluateRequest

__all__ = ["JobFailed", "build_arguments", "run_job"]

_COMMAND = "assay_compat.evaluation_server.job_command"
_STOP_TIMEOUT_S = 10.0
_MAX_TAIL_LINES = 50
_MAX_TAIL_BYTES = 256 * 1024
_LAUNCHER_VARIABLES = frozenset(
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PMIX_RANK SLURM_PROCID SLURM_LOCALID SLURM_NODEID"
    " SLURM_NTASKS SLURM_NPROCS".split()
)
"""Variables of distributed launchers. A job is a process of its own, not a rank of the program that started the server."""


class JobFailed(Exception):
    """The run of a job ended with an error. The message contains the end of its log."""


def build_arguments(request: EvaluateRequest) -> list[str]:
    """Return the arguments of `lmms-eval` for a request. No value can be read as another flag."""
    values = {"model": request.model, "tasks": ",".join(request.tasks)}
    if request.model_args:
        values["model_args"] = json.dumps(request.model_args)
    for name in ("batch_size", "limit", "gen_kwargs", "device"):
        if value := getattr(request, name):
            values[name] = str(value)
    if request.num_fewshot is not None:
        values["num_fewshot"] = str(request.num_fewshot)
    if request.output_dir:
        values["output_path"] = request.output_dir
    flags = [f"--{name}" for name in ("log_samples", "predict_only") if getattr(request, name)]
    return [*(f"--{name}={value}" for name, value in values.items()), *flags]


async def run_job(request: EvaluateRequest, *, temp_dir_prefix: str) -> dict[str, Any]:
    """Run a job in its own process; return `{model: {"results": file, "samples": [files]}}`.

    If the task is cancelled, the process is stopped. All responses are stored, so that the same job continues its run.

    Raises:
        JobFailed: The run ended with an error.
    """
    folder = Path(request.output_dir or tempfile.mkdtemp(prefix=temp_dir_prefix)).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"eval-{datetime.now().astimezone():%Y%m%d-%H%M%S}.log"
    with tempfile.TemporaryDirectory() as scratch:
        files = Path(scratch) / "files.json"
        code = await _run_process(
            [str(files), str(folder), str(request.num_gpus), *build_arguments(request)], log
        )
        if code != 0:
            raise JobFailed(f"the run ended with exit code {code}. Last lines of {log}:\n{_read_tail(log)}")
        if not files.exists():
            raise JobFailed(f"the run wrote no results. Last lines of {log}:\n{_read_tail(log)}")
        found: dict[str, Any] = json.loads(files.read_text("utf-8"))
        return found


async def _run_process(words: list[str], log: Path) -> int:
    """Run the process of a job with its output in a file; return its exit code."""
    environment = {name: value for name, value in os.environ.items() if name not in _LAUNCHER_VARIABLES}
    with log.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _COMMAND, *words, stdin=asyncio.subprocess.DEVNULL, stdout=stream,
            stderr=asyncio.subprocess.STDOUT, env={**environment, "PYTHONUNBUFFERED": "1"}, start_new_session=True,
        )  # fmt: skip
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Stop a process and those that it started: they may end by themselves first."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
    except TimeoutError:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            await process.wait()


def _read_tail(log: Path) -> str:
    """Return the last lines of a log."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _MAX_TAIL_BYTES))
            return "\n".join(stream.read().decode(errors="replace").splitlines()[-_MAX_TAIL_LINES:])
    except OSError as error:
        return f"(cannot read it: {error.strerror})"
