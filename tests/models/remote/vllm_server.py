"""vLLM's own OpenAI server, started on a checkpoint, for tests marked `vllm`. It takes a minute or two to come up."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["ON_A_PROCESSOR", "vllm_server"]

ON_A_PROCESSOR = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""Settings for machines without a GPU, where vLLM would else take much of the memory and bind itself to cores."""

_STARTS_WITHIN_S = 420


@contextmanager
def vllm_server(
    folder: Path, *, name: str = "tiny", log: Path | None = None, flags: tuple[str, ...] = ()
) -> Iterator[str]:
    """The address (`http://127.0.0.1:PORT/v1`) of a server that serves the checkpoint as `name`; ended afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--served-model-name", name, "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    command += ["--enforce-eager", *flags]
    log = log or folder.parent / f"vllm-server-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**ON_A_PROCESSOR, **os.environ}, start_new_session=True
        )  # fmt: skip
        try:
            _wait(process, port, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            _end(process)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    tail = log.read_text(encoding="utf-8", errors="replace")[-3000:]
    raise RuntimeError(f"vLLM's server did not start; it said:\n{tail}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """The server and the processes of its engine, which are a group of their own."""
    for word in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, word)
        except ProcessLookupError:
            break
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            continue
