"""Start `assay` commands in real processes that are forked from one with all modules loaded.

Starting Python and importing Assay takes most of the time of a small command. The processes can be killed, interrupted and
waited for as any others. Tests of the start itself (imports, signals before the first line) use `subprocess`.

All forked commands have the hash seed `HASH_SEED`, and so the same order of sets. A test that compares two runs starts one of
them with `OTHER_HASH_SEED` in an interpreter of its own.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Self

__all__ = ["OTHER_HASH_SEED", "CommandProcess", "run_command", "start_command"]

MODULES = """assay.api assay.cli.run assay.cli.run_output assay.cli.tables assay.models.embedded.adapter
    assay.scoring.edit_distance assay.scoring.filters.choices assay.scoring.filters.selection assay.scoring.metrics.aggregated
    assay.scoring.metrics.exact_match assay.store.runs.imported_runs assay_compat.plugin numpy.random rich.console
    rich.markup PIL.Image assay.cli.app assay.models.embedded.engine assay.scoring.filters.call assay.scoring.filters.letter
    safetensors.numpy""".split()
"""What most commands import."""

CAN_FORK = sys.platform == "linux"
HASH_SEED = "1"
OTHER_HASH_SEED = "2"
_TIMEOUT_S = 60.0
_ENVIRONMENT = dict(os.environ)
"""The environment when the tests are collected: that of the server does not depend on the test that starts it."""

_SERVER_LOCK = threading.Lock()
_PR_SET_PDEATHSIG = 1
_PID_BYTES = 10


class CommandProcess:
    """A command that runs, with the methods of `subprocess.Popen` that tests use. Its output is text."""

    def __init__(self, pid: int, status: int, stdout: int, stderr: int | None) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self.stdout: IO[bytes] = open(stdout, "rb")  # noqa: SIM115
        self.stderr: IO[bytes] | None = None if stderr is None else open(stderr, "rb")  # noqa: SIM115
        self._output = {stream: bytearray() for stream in (self.stdout, self.stderr) if stream is not None}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the streams and wait for the command to end, as `subprocess.Popen` does."""
        for stream in self._output:
            stream.close()
        self.wait()

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while the command runs."""
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("assay", timeout or 0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read all output and wait for the command to end. After a timeout, another call returns the whole output."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pieces = self._output
        with selectors.DefaultSelector() as ready:
            for stream in pieces:
                if not stream.closed:
                    ready.register(stream, selectors.EVENT_READ)
            while ready.get_map():
                for key, _ in self._select(ready, deadline, timeout):
                    stream = key.fileobj  # type: ignore[assignment]
                    piece = os.read(stream.fileno(), 65536)
                    pieces[stream] += piece
                    if not piece:
                        ready.unregister(stream)
        self.wait(None if deadline is None else max(0.1, deadline - time.monotonic()))
        for stream in pieces:
            stream.close()
        texts = [text.decode("utf-8", "replace").replace("\r\n", "\n") for text in pieces.values()]
        return texts[0], "".join(texts[1:])

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _select(
        self, ready: selectors.BaseSelector, deadline: float | None, timeout: float | None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        found = ready.select(None if deadline is None else max(0.0, deadline - time.monotonic()))
        if not found:
            raise subprocess.TimeoutExpired("assay", timeout or 0)
        return found

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            with selectors.DefaultSelector() as ready:
                ready.register(self._status, selectors.EVENT_READ)
                if not ready.select(timeout):
                    return None
            status = os.read(self._status, 16)
            if not status and not _has_ended(self.pid, timeout):
                return None
            os.close(self._status)
            self.returncode = (
                int(status) if status else -signal.SIGKILL
            )  # the command dies with its supervisor
        return self.returncode


def _has_ended(pid: int, timeout: float | None) -> bool:
    """Wait for a process that is not a child of this one."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(process, selectors.EVENT_READ)
            return bool(ready.select(timeout))
    finally:
        os.close(process)


def start_command(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    merge_output: bool = False,
) -> CommandProcess | subprocess.Popen[str]:
    """Start `assay` with these arguments. `merge_output`: standard error goes to standard output."""
    if not CAN_FORK:
        return subprocess.Popen(
            [sys.executable, "-m", "assay", *arguments],
            cwd=cwd,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merge_output else subprocess.PIPE,
            text=True,
        )
    message = json.dumps({"arguments": list(arguments), "cwd": str(cwd), "env": dict(env)}).encode()
    with _SERVER_LOCK:
        server = _start_server()
    out_read, out_write = os.pipe()
    err_read, err_write = (None, os.dup(out_write)) if merge_output else os.pipe()
    status_read, status_write = os.pipe()
    try:
        try:
            socket.send_fds(server, [message], [out_write, err_write, status_write])
        finally:
            for descriptor in (out_write, err_write, status_write):
                os.close(descriptor)
        pid = _read_pid(status_read)
    except BaseException:
        for opened in (out_read, err_read, status_read):
            if opened is not None:
                os.close(opened)
        raise
    return CommandProcess(pid, status_read, out_read, err_read)


def _read_pid(status: int) -> int:
    """Read the process id, which the supervisor writes before the exit code, in `_PID_BYTES` bytes."""
    with selectors.DefaultSelector() as ready:
        ready.register(status, selectors.EVENT_READ)
        if not ready.select(_TIMEOUT_S):
            raise subprocess.TimeoutExpired("the command server", _TIMEOUT_S)
    found = os.read(status, _PID_BYTES)
    if not found:
        raise RuntimeError("the command server has ended; see its message in the standard error of the tests")
    return int(found)


def run_command(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """Run `assay` with these arguments and return its exit code and output."""
    with start_command(arguments, cwd=cwd, env=env) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    assert process.returncode is not None
    return subprocess.CompletedProcess(["assay", *arguments], process.returncode, out, err)


# --- the server ----------------------------------------------------------------------------------------------


@cache
def _start_server() -> socket.socket:
    """Start the process that the commands are forked from, once per test process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(_TIMEOUT_S)  # for sending; each command reports through a pipe of its own
    code = "from tests.command_server import serve, run_main; serve(); run_main()"
    root = str(Path(__file__).parents[1])
    environment = {
        **_ENVIRONMENT,
        "ASSAY_TEST_SOCKET": str(theirs.fileno()),
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONHASHSEED": HASH_SEED,
        "PYTHONPATH": os.pathsep.join(filter(None, [_ENVIRONMENT.get("PYTHONPATH"), root])),
    }
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=environment,
            cwd=root,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )

    def stop() -> None:
        ours.close()
        process.wait()

    atexit.register(stop)
    return ours


def serve() -> None:
    """Fork a process for each message. Returns in the processes of the commands only."""
    from importlib import import_module

    for name in MODULES:
        import_module(name)
    _fill_caches()
    gc.freeze()  # the garbage collector of a command does not touch, and so not copy, the memory of the server
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are reaped by the kernel
    connection = socket.socket(fileno=int(os.environ.pop("ASSAY_TEST_SOCKET")))
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            _supervise(connection, json.loads(message), *descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)


def _fill_caches() -> None:
    """Compute what each command computes once."""
    from assay.engine.planning.manifests.environment import (
        compute_code_digests,
        describe_hardware,
        list_versions,
    )
    from assay.tasks.files.index import TaskIndex, find_task_roots

    compute_code_digests()
    describe_hardware()
    list_versions()
    TaskIndex.build(find_task_roots())


def _supervise(
    connection: socket.socket, message: Mapping[str, object], out: int, err: int, status: int
) -> None:
    """Fork the command, wait for it and report its exit code. Returns in the process of the command only."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(
            _PR_SET_PDEATHSIG, signal.SIGKILL
        )  # without its supervisor, the exit code would be lost
        if os.getppid() != supervisor:
            os.kill(os.getpid(), signal.SIGKILL)
        _become_command(connection, message, out, err, status)
        return
    connection.close()
    os.close(out)
    os.close(err)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.write(status, str(pid).zfill(_PID_BYTES).encode())
    _, code = os.waitpid(pid, 0)
    os.write(status, str(os.waitstatus_to_exitcode(code)).encode())
    os._exit(0)


def _become_command(
    connection: socket.socket, message: Mapping[str, object], out: int, err: int, status: int
) -> None:
    os.dup2(out, 1)
    os.dup2(err, 2)
    connection.close()
    for descriptor in (out, err, status):
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    environment: Mapping[str, str] = message["env"]  # type: ignore[assignment]
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(message["cwd"]))
    given = [folder for folder in environment.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[:] = ["", *given, *(folder for folder in sys.path if folder and folder not in before)]
    sys.argv = ["assay", *message["arguments"]]  # type: ignore[misc]


def run_main() -> None:
    """Run the command and exit without destroying all objects, which would copy the memory of the server."""
    from assay.cli import main

    try:
        main()
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code)
