"""Sandbox sessions: a sandbox with a file system that lives as long as one document, with snapshots.

The workspace (`/box`) is a file system in memory, of limited size, that only the processes of the session can see: when they end,
nothing is left to remove. Commands run in it one after the other; the processes of a command end with it.

    with SandboxSession(SnapshotStore(folder)) as session:
        session.write_file("a.py", b"print(1)")
        before = session.snapshot()
        session.run(["python", "a.py"]).stdout
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from assay.core.errors import AssayError
from assay.core.records.programs import Program, ResourceLimits, SandboxError
from assay.sandboxes.bubblewrap import bubblewrap_command
from assay.sandboxes.cgroups import Cgroup, create_cgroup
from assay.sandboxes.launch_spec import (
    Descriptors,
    build_launch_spec,
    link_targets,
    pick_unused_user,
    readable_folders,
)
from assay.sandboxes.snapshots import FileEntry, SnapshotStore, diff_snapshots

__all__ = [
    "MAX_FILES",
    "CommandResult",
    "SandboxSession",
    "SessionProcess",
    "WorkspaceError",
]

CommandEnd = Literal["exited", "signal", "time", "memory", "processes", "files", "stopped"]
"""Why a command ended: it exited, a signal killed it, it exceeded a limit, or the session stopped it."""

MAX_FILES = 20_000
"""Files and folders in a workspace."""

_START_S = 15.0
"""Time limit for starting a session or a command."""

_GRACE_S = 10.0
"""Time for a stopped command to end before the whole session is killed."""

_FILE_OPERATION_S = 60.0
_MAX_SNAPSHOT_FACTOR = 4
"""Files with holes can be larger than the file system; a snapshot accepts this many times its size."""

_CLOCK_TICK_NS = 50_000_000
"""Resolution of file times: a file changed this shortly before it was read may change again unnoticed."""

_SOURCES = [Path(__file__).with_name(f"{name}.py") for name in ("isolation", "launcher", "session_server")]
_BOOTSTRAP = (
    "import sys\n__name__ = 'session'\n"
    "for text in sys.argv[1:]: exec(compile(text, 'session', 'exec'))\nserve_session()"
)
_NETWORK_FILES = ("resolv.conf", "hosts", "nsswitch.conf", "ssl", "ca-certificates", "pki", "services")


_REASONS = {
    "files": "too many files",
    "size": "the result is too large",
    "time": f"it took more than {_FILE_OPERATION_S:g} s",
}


class WorkspaceError(AssayError):
    """A file operation in a workspace failed. The session can still be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command ended, and the start and the end of its output."""

    exit_reason: CommandEnd
    exit_code: int | None = None
    """The exit code; None if the command did not exit by itself."""

    signal: int | None = None
    stdout: str = ""
    """Standard output. If it was too long, the middle is replaced by a line that says so."""

    stderr: str = ""
    output_bytes: int = 0
    """Size of all output, also of what was not kept."""

    seconds: float = 0.0

    @property
    def succeeded(self) -> bool:
        return self.exit_reason == "exited" and self.exit_code == 0


class SandboxSession:
    """A sandbox with a workspace of its own. Its methods may be called from any thread.

    `files` is a folder of this machine whose content the workspace starts with. `network` gives access to the network of the
    machine. `readable` are more paths of the machine that commands may read.
    """

    def __init__(
        self,
        store: SnapshotStore,
        *,
        files: Path | None = None,
        limits: ResourceLimits | None = None,
        network: bool = False,
        sandbox: str = "auto",
        python: str = sys.executable,
        readable: Sequence[str] = (),
        max_files: int = MAX_FILES,
    ) -> None:
        self.store, self.limits, self.network = store, limits or ResourceLimits(), network
        self._files, self._python, self._max_files = files, python, max_files
        self._readable, self._wanted = tuple(readable), sandbox
        self.sandbox = ""
        """The name of the sandbox in use; empty before `open`."""

        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._cgroup: Cgroup | None = None
        self._known: dict[tuple[str, int, int, int], str] = {}
        """The content hashes of files that have not changed since they were read."""

    def __enter__(self) -> SandboxSession:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- life --------------------------------------------------------------------------------------

    def open(self) -> SandboxSession:
        """Start the session; does nothing if it is open.

        Raises:
            SandboxError: No sandbox works on this machine.
        """
        if self._channel is not None:
            return self
        self._start()
        if self._files is not None:
            try:
                max_bytes = self.limits.file_bytes
                start = self.store.import_folder(self._files, max_files=self._max_files, max_bytes=max_bytes)
                self._write_snapshot(self.store.read_snapshot(start))
            except BaseException:
                self.close()
                raise
        return self

    def close(self) -> None:
        """End all processes of the session. The workspace is gone; the snapshots stay. Does nothing if it is closed."""
        with self._lock:
            channel, process, cgroup = self._channel, self._process, self._cgroup
            self._channel = self._process = self._cgroup = None
        if channel is not None:
            with suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)  # also if a forked process holds a copy of the socket
            channel.close()  # the server exits, and the kernel kills what is left
        if process is not None:
            _end_process(process)
        if cgroup is not None:
            cgroup.remove()
        self._known = {}

    def _start(self) -> None:
        names = ("namespaces", "bubblewrap") if self._wanted == "auto" else (self._wanted,)
        if sys.platform != "linux":
            raise SandboxError("sandbox sessions need Linux")
        reasons = []
        for name in names:
            if name not in ("namespaces", "bubblewrap"):
                raise SandboxError(
                    f"the sandbox `{name}` has no sessions", hint="use `namespaces` or `bubblewrap`"
                )
            if name == "bubblewrap" and shutil.which("bwrap") is None:
                reasons.append("bubblewrap: `bwrap` is not installed")
                continue
            try:
                self._start_with(name)
            except SandboxError as problem:
                reasons.append(f"{name}: {problem.what}")
            else:
                self.sandbox = name
                return
        raise SandboxError(
            f"no sandbox session works on this machine ({'; '.join(reasons)})",
            hint="allow user namespaces, or install `bubblewrap`",
        )

    def _start_with(self, name: str) -> None:
        user = pick_unused_user()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        cgroup = create_cgroup(self.limits)
        readable = [*self._readable, *(_list_network_files() if self.network else ())]
        spec = self._build_spec(name, user, readable, theirs.fileno(), cgroup)
        command = [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, *_read_sources()]
        if name == "bubblewrap":
            command[:0] = bubblewrap_command(
                self.limits,
                self._python,
                root=user is not None,
                session=True,
                network=self.network,
                readable=readable,
            )
        descriptors = [theirs.fileno(), *([cgroup.procs] if cgroup else [])]
        process = None
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=descriptors,
                cwd="/",
                env={"PATH": os.defpath},
                start_new_session=True,
            )
            theirs.close()
            _await_ready(process, spec, ours)
        except (OSError, SandboxError) as problem:
            for end in (ours, theirs):
                end.close()
            if process is not None:
                _end_process(process)
            if cgroup is not None:
                cgroup.remove()
            raise SandboxError(
                problem.what if isinstance(problem, SandboxError) else f"cannot start the session: {problem}"
            ) from None
        with self._lock:
            self._process, self._channel, self._cgroup = process, ours, cgroup

    def _build_spec(
        self, name: str, user: int | None, readable: Sequence[str], channel: int, cgroup: Cgroup | None
    ) -> bytes:
        return build_launch_spec(
            Program(limits=self.limits),
            mode="namespaces" if name == "namespaces" else "inside",
            folder="/box",
            descriptors=Descriptors(cgroup=cgroup.procs if cgroup else -1),
            uid=user,
            readable=[*readable_folders(self._python), *readable],
            links=link_targets(),
            stage=tempfile.gettempdir(),
            interpreter=self._python,
            channel=channel,
            network=self.network,
            max_files=self._max_files,
            cwd="/box",
        )

    # --- commands ----------------------------------------------------------------------------------

    def run(
        self,
        arguments: Sequence[str],
        input: bytes = b"",
        timeout_s: float | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        merge_output: bool = False,
        folder: str = "/box",
    ) -> CommandResult:
        """Run a command and wait for it and all its processes to end. `python` is the interpreter of the sandbox.

        Raises:
            SandboxError: The session ended, or the command could not be started because of the sandbox.
        """
        started = time.monotonic()
        kills = self._cgroup.memory_kills if self._cgroup else 0
        limits = self._limit_time(timeout_s)
        job = self._build_command(arguments, environment, limits, folder)
        with self._send(job, _memory_file(input), merge_output=merge_output) as process:
            out, err, report = process.collect(limits.output_bytes, limits.time_s + _START_S)
        end, code, number = _read_end(report)
        if end == "signal" and self._cgroup is not None and self._cgroup.memory_kills > kills:
            end = "memory"
        stderr = err.text
        if "failed" in report:  # the command does not exist, or the system refused it
            end, code = "exited", 127
            stderr += f"cannot run `{arguments[0]}`: {report['failed']}\n"
        return CommandResult(
            exit_reason=end,
            exit_code=code if end == "exited" else None,
            signal=number,
            stdout=out.text,
            stderr=stderr,
            output_bytes=out.count + err.count,
            seconds=time.monotonic() - started,
        )

    def start(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        max_seconds: float = 24 * 3600.0,
    ) -> SessionProcess:
        """Start a command that runs beside others, with pipes to its standard input and output.

        Raises:
            SandboxError: The session ended.
        """
        limits = self._limit_time(max_seconds)
        job = self._build_command(arguments, environment, limits, "/box")
        reader, writer = os.pipe()
        try:
            return self._send(job, reader, stdin=writer)
        except BaseException:
            os.close(writer)
            raise

    def listen(self, port: int = 0) -> socket.socket:
        """Return a socket that listens on 127.0.0.1 inside the session. Only commands of the session can connect to it.

        Raises:
            SandboxError: The session ended, or the port is in use.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours:
            process = self._send({"kind": "listen", "port": port}, theirs.detach())
            with process:
                process.collect(1 << 16, _START_S)
            ours.setblocking(False)
            try:
                _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
            except OSError as problem:
                raise SandboxError(f"cannot listen in the session: {problem}") from None
        return socket.socket(fileno=descriptors[0])

    def _limit_time(self, seconds: float | None) -> ResourceLimits:
        values = {name: getattr(self.limits, name) for name in self.limits.__slots__}
        return ResourceLimits(**{**values, "time_s": seconds or self.limits.time_s})

    def _build_command(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None,
        limits: ResourceLimits,
        folder: str,
    ) -> dict[str, Any]:
        executable, *rest = arguments
        job: dict[str, Any] = {
            "kind": "command",
            "command": [self._python if executable == "python" else executable, *rest],
            "cwd": folder,
            "bounds": {name: getattr(limits, name) for name in limits.__slots__},
        }
        if environment:
            spec = json.loads(self._build_spec("inside", None, (), -1, None))
            job["environment"] = {**spec["environment"], **environment}
        return job

    def _send(
        self, job: Mapping[str, Any], input: int, *, merge_output: bool = False, stdin: int = -1
    ) -> SessionProcess:
        """Send a job to the server. Takes the ownership of the descriptor `input`."""
        pipes = [os.pipe() for _ in range(4)]
        (out, out_end), (err, err_end), (status, status_end), (control_end, control) = pipes
        job_file = _memory_file(json.dumps(job).encode())
        theirs = [job_file, input, out_end, out_end if merge_output else err_end, status_end, control_end]
        try:
            with self._lock:
                if self._channel is None:
                    raise SandboxError("the sandbox session is closed")
                socket.send_fds(self._channel, [b"x"], theirs)
        except (OSError, SandboxError) as problem:
            for number in (out, err, status, control):
                os.close(number)
            if isinstance(problem, SandboxError):
                raise
            raise SandboxError(f"the sandbox session ended unexpectedly: {problem}") from None
        finally:
            for number in {*theirs, out_end, err_end}:
                os.close(number)
        return SessionProcess(self, stdin=stdin, stdout=out, stderr=err, status=status, control=control)

    # --- files -------------------------------------------------------------------------------------

    def read_file(self, path: str, max_bytes: int = 1 << 20) -> bytes:
        """Return the first bytes of a file. Relative paths start in the workspace.

        Raises:
            WorkspaceError: The file does not exist, is not a regular file, or cannot be read.
        """
        job = {"kind": "read", "path": path, "max_bytes": max_bytes}
        return self._do_file_operation(job, b"", what=f"cannot read `{path}`", max_bytes=max_bytes)

    def write_file(self, path: str, content: bytes, mode: int | None = None) -> None:
        """Write a file, and create its folders.

        Raises:
            WorkspaceError: The workspace is full, or the path is not writable or not a regular file.
        """
        job = {"kind": "write", "path": path, "file_mode": mode}
        self._do_file_operation(job, content, what=f"cannot write `{path}`")

    def list_files(self) -> list[FileEntry]:
        """Return the files of the workspace, without the hashes of their contents.

        Raises:
            WorkspaceError: The workspace has too many files.
        """
        return [entry for entry, _ in self._list()]

    def _list(self) -> list[tuple[FileEntry, tuple[str, int, int, int]]]:
        job = {"kind": "list", "max_files": self._max_files}
        text = self._do_file_operation(job, b"", what="cannot list the workspace")
        found = []
        first: dict[int, str] = {}
        lines = sorted(map(json.loads, text.splitlines()), key=lambda line: str(line[0]))
        for path, kind, mode, size, modified, target, (inode, changed, links) in lines:
            if kind == "other":
                continue  # sockets and device files: nothing to keep
            if kind == "file" and links > 1 and first.setdefault(inode, path) != path:
                kind, target = "hardlink", first[inode]
            entry = FileEntry(path, kind, mode, size, "", target, modified)
            found.append((entry, (path, inode, changed, size)))
        return found

    def _do_file_operation(
        self, job: Mapping[str, Any], input: bytes, *, what: str, max_bytes: int = 256 << 20
    ) -> bytes:
        limits = self._limit_time(_FILE_OPERATION_S)
        bounds = {name: getattr(limits, name) for name in limits.__slots__}
        memory = max(bounds["memory_bytes"], 1 << 30)
        with self._send(
            {**job, "bounds": {**bounds, "memory_bytes": memory}}, _memory_file(input)
        ) as process:
            out, _, report = process.collect(max_bytes, _FILE_OPERATION_S + _START_S, complete=True)
        if "failed" in report:
            raise WorkspaceError(f"{what}: {report['failed']}")
        if report.get("exit") != 0 or out.count > max_bytes:
            reason = "size" if out.count > max_bytes else _read_end(report)[0]
            raise WorkspaceError(f"{what}: {_REASONS.get(reason, f'the operation failed ({reason})')}")
        return bytes(out.start)

    # --- snapshots ---------------------------------------------------------------------------------

    def snapshot(self) -> str:
        """Store the files of the workspace; return the id, which is the same for the same files. Reads only changed files.

        Raises:
            WorkspaceError: The workspace has too many files, or files with holes that are too large.
        """
        now = time.time_ns()
        listed = self._list()
        total = sum(entry.size for entry, _ in listed if entry.kind == "file")
        if total > _MAX_SNAPSHOT_FACTOR * self.limits.file_bytes:
            raise WorkspaceError(f"the files of the workspace are too large for a snapshot: {total} bytes")
        unread = [(entry, key) for entry, key in listed if entry.kind == "file" and key not in self._known]
        fresh: dict[tuple[str, int, int, int], str] = {}
        for batch in _split_by_size(unread):
            contents = self._read_many([entry.path for entry, _ in batch])
            for (_, key), content in zip(batch, contents, strict=True):
                fresh[key] = self.store.add_content(content)
        known = {**self._known, **fresh}
        entries = []
        for entry, key in listed:
            digest = known[key] if entry.kind == "file" else ""
            entries.append(
                FileEntry(
                    entry.path,
                    entry.kind,
                    entry.mode,
                    entry.size,
                    digest,
                    entry.target,
                    entry.modified_ns,
                )
            )
        self._known = {
            key: known[key] for entry, key in listed if entry.kind == "file" and key[2] < now - _CLOCK_TICK_NS
        }
        return self.store.add_snapshot(entries)

    def restore(self, name: str) -> None:
        """Replace the workspace with a snapshot. Ends all processes of the session.

        Raises:
            SnapshotError: There is no such snapshot, or it is damaged.
        """
        entries = self.store.read_snapshot(name)
        self.close()
        self._start()
        self._write_snapshot(entries)

    def diff(self, before: str, after: str, *, max_bytes: int = 64_000) -> str:
        """Return what changed between two snapshots, as a unified diff of limited length."""
        entries = self.store.read_snapshot(before), self.store.read_snapshot(after)
        return diff_snapshots(self.store, *entries, max_bytes=max_bytes)

    def _read_many(self, paths: Sequence[str]) -> list[bytes]:
        data = self._do_file_operation(
            {"kind": "read_many"},
            json.dumps(paths).encode(),
            what="cannot read the workspace",
            max_bytes=_MAX_SNAPSHOT_FACTOR * self.limits.file_bytes + 8 * len(paths),
        )
        contents, at = [], 0
        for _ in paths:
            (size,) = struct.unpack_from("Q", data, at)
            contents.append(data[at + 8 : at + 8 + size])
            at += 8 + size
        return contents

    def _write_snapshot(self, entries: Sequence[FileEntry]) -> None:
        order = sorted(entries, key=lambda entry: (entry.kind == "hardlink", entry.path))
        contents = [self.store.read_content(entry) for entry in order if entry.kind == "file"]
        header = json.dumps(
            [
                [entry.path, entry.kind, entry.mode, entry.size, entry.modified_ns, entry.target]
                for entry in order
            ]
        ).encode()
        data = b"".join([struct.pack("Q", len(header)), header, *contents])
        self._do_file_operation({"kind": "write_snapshot"}, data, what="cannot restore the workspace")


class SessionProcess:
    """A command in a session, with the descriptors of its pipes."""

    def __init__(
        self, session: SandboxSession, *, stdin: int, stdout: int, stderr: int, status: int, control: int
    ) -> None:
        self._session = session
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self._status, self._control = status, control

    def __enter__(self) -> SessionProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the command and all its processes, and close the pipes."""
        self.stop()
        for name in ("stdin", "stdout", "stderr", "_status"):
            number = getattr(self, name)
            setattr(self, name, -1)
            if number >= 0:
                os.close(number)

    def stop(self) -> None:
        """Tell the sandbox to kill the command and all its processes."""
        number, self._control = self._control, -1
        if number >= 0:
            os.close(number)

    def wait(self, seconds: float = _GRACE_S) -> dict[str, Any]:
        """Wait for all processes of the command to end; return what the sandbox reported. Reads no output.

        Raises:
            SandboxError: They did not end in this time.
        """
        _, _, report = self.collect(0, seconds, pipes=False)
        return report

    def collect(
        self, limit: int, seconds: float, *, complete: bool = False, pipes: bool = True
    ) -> tuple[_Capture, _Capture, dict[str, Any]]:
        """Read the output until the command and all its processes have ended.

        Raises:
            SandboxError: They did not end in time, even after they were stopped. The session is closed.
        """
        out, err, status = _Capture(limit, complete), _Capture(limit, complete), _Capture(1 << 16, True)
        captures = {self._status: status, **({self.stdout: out, self.stderr: err} if pipes else {})}
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            for number in captures:
                selector.register(number, selectors.EVENT_READ)
            while selector.get_map():
                left = deadline - time.monotonic()
                if left <= 0:
                    if self._control < 0:
                        break
                    self.stop()
                    deadline = time.monotonic() + _GRACE_S
                    continue
                for key, _ in selector.select(left):
                    piece = os.read(key.fd, 1 << 16)
                    captures[key.fd].add(piece)
                    if not piece:
                        selector.unregister(key.fd)
            if self._status in selector.get_map():
                self._session.close()
                raise SandboxError("the sandbox session did not stop a command, so it was closed")
        report: dict[str, Any] = {}
        with suppress(ValueError):
            for line in bytes(status.start).splitlines():
                report.update(json.loads(line))
        if "refused" in report:
            raise SandboxError(f"the sandbox session refused: {report['refused']}")
        return out, err, report


class _Capture:
    """Keeps the start and the end of a stream; only the start if the content must be `complete`."""

    def __init__(self, limit: int, complete: bool) -> None:
        self._ends, self._limit = 0 if complete else limit // 2, limit
        self.start, self._end, self.count = bytearray(), bytearray(), 0

    def add(self, piece: bytes) -> None:
        self.count += len(piece)
        room = self._limit - self._ends - len(self.start)
        self.start += piece[: max(0, room)]
        if self._ends and len(piece) > room:
            self._end += piece[max(0, room) :]
            if len(self._end) > 2 * self._ends:
                del self._end[: len(self._end) - self._ends]

    @property
    def text(self) -> str:
        start = bytes(self.start).decode("utf-8", "replace")
        end = bytes(self._end[-self._ends :]).decode("utf-8", "replace") if self._ends else ""
        cut = self.count - len(self.start) - min(len(self._end), self._ends)
        return f"{start}\n[{cut} bytes of output are not shown]\n{end}" if cut > 0 else start + end


def _read_end(report: Mapping[str, Any]) -> tuple[CommandEnd, int | None, int | None]:
    if "exit" in report:
        return "exited", int(report["exit"]), None
    if "signal" in report:
        number = int(report["signal"])
        return ("time" if number == signal.SIGXCPU else "signal"), None, number
    reason = report.get("ended", "stopped")
    return (reason if reason in ("time", "memory", "processes", "files") else "stopped"), None, None


def _split_by_size(
    files: Sequence[tuple[FileEntry, tuple[str, int, int, int]]], max_bytes: int = 32 << 20
) -> Iterator[list[tuple[FileEntry, tuple[str, int, int, int]]]]:
    """Group files so that a group fits into memory."""
    batch: list[tuple[FileEntry, tuple[str, int, int, int]]] = []
    size = 0
    for item in files:
        if batch and size + item[0].size > max_bytes:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item[0].size
    if batch:
        yield batch


def _memory_file(content: bytes) -> int:
    """Return a descriptor of a file in memory that no process can change."""
    number = os.memfd_create("assay", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(content)
    while view:
        view = view[os.write(number, view) :]
    os.lseek(number, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(number, fcntl.F_ADD_SEALS, seals)
    return number


def _await_ready(process: subprocess.Popen[bytes], spec: bytes, channel: socket.socket) -> None:
    """Send the specification and wait for the server."""
    assert process.stdin is not None and process.stderr is not None
    with suppress(BrokenPipeError):
        process.stdin.write(spec)
        process.stdin.close()
    channel.settimeout(_START_S)
    try:
        answer = channel.recv(1 << 16)
    except TimeoutError:
        raise SandboxError("the session did not start in time") from None
    channel.settimeout(None)
    if not answer:
        process.kill()
        problem = process.stderr.read(2000).decode("utf-8", "replace").strip()
        raise SandboxError(problem.rpartition("\n")[2] or "the session ended while it started")
    report = json.loads(answer)
    if "refused" in report:
        raise SandboxError(report["refused"])


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process to exit, and kill it after a grace period."""
    for stream in (process.stdin, process.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.close()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@cache
def _read_sources() -> tuple[str, ...]:
    return tuple(path.read_text("utf-8") for path in _SOURCES)


def _list_network_files() -> list[str]:
    return [path for name in _NETWORK_FILES if Path(path := f"/etc/{name}").exists()]
