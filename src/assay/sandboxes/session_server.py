"""The process inside a sandbox session: keeps the file system alive, runs commands and file operations in it.

Never imported: like the launcher, its source runs in a new interpreter, after those of `isolation.py` and `launcher.py`.

    Assay -> launcher -> server (process 1 of the session) -> supervisor -> init (process 1 of a command) -> command

Each request is a byte with file descriptors: a JSON job in memory, standard input, output and error, a status pipe and a
control pipe. Every job runs as the unprivileged user of the session, in a process namespace of its own, which ends with it.
So a command leaves no process behind, and file operations can reach only what commands can reach.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import stat
import struct
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:  # defined in the new interpreter already
    from collections.abc import Iterator

    from assay.sandboxes.isolation import (
        LIBC,
        NEWNS,
        NEWPID,
        PR_SET_DUMPABLE,
        PR_SET_NO_NEW_PRIVS,
        PR_SET_PDEATHSIG,
        IsolationError,
        check_result,
        drop_capabilities,
        drop_privileges,
        enable_loopback,
        enter_namespaces,
        enter_new_root,
        install_seccomp_filter,
        mount,
        set_process_option,
        set_resource_limits,
    )
    from assay.sandboxes.launcher import join_cgroup, report, supervise

DESCRIPTORS = ("job", "stdin", "stdout", "stderr", "status", "control")
PIECE_BYTES = 1 << 20
BLOCK_BYTES = 4096


# --- the server ----------------------------------------------------------------------------------------------------


def serve_session() -> None:
    """Read the session specification from standard input, enter the sandbox and serve requests until Assay closes the socket."""
    spec = json.loads(sys.stdin.buffer.read())
    channel = socket.socket(fileno=spec["channel"])
    for name in ("channel", "cgroup"):
        if spec[name] >= 0:
            os.set_inheritable(spec[name], False)
    try:
        set_process_option(PR_SET_DUMPABLE, 0)
        if spec["mode"] != "namespaces":
            serve_requests(spec, channel)
            return
        enter_namespaces(spec)
        server = os.fork()
        if server == 0:
            set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
            set_process_option(PR_SET_DUMPABLE, 0)
            try:
                enter_new_root(spec)
                enable_loopback()
            except (IsolationError, OSError) as problem:
                channel.send(json.dumps({"refused": f"{problem}"}).encode())
                os._exit(1)
            serve_requests(spec, channel)
            os._exit(0)
        channel.close()
        os.waitpid(server, 0)
    except (IsolationError, OSError) as problem:
        channel.send(json.dumps({"refused": f"{problem}"}).encode())


def serve_requests(spec: dict[str, Any], channel: socket.socket) -> None:
    """Fork a supervisor for each request."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes ended children, orphans included
    channel.send(json.dumps({"ready": True}).encode())
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 1, len(DESCRIPTORS))
        if not message:
            return
        if os.fork() == 0:
            channel.close()
            handle_request(spec, descriptors)
        for number in descriptors:
            os.close(number)


def handle_request(spec: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Run one job in a process namespace of its own."""
    for number in descriptors:
        os.set_inheritable(number, False)
    numbers = dict(zip(DESCRIPTORS, descriptors, strict=True))
    spec = {**spec, **numbers, "stop": []}
    try:
        spec.update(json.loads(b"".join(read_pieces(numbers["job"]))))
        os.set_blocking(spec["status"], False)
        os.set_blocking(spec["control"], False)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if spec["kind"] == "listen":
            listen(spec)
        else:
            run_job(spec)
    except (IsolationError, OSError, ValueError) as problem:
        report(spec, {"refused": f"{problem}"})
    os._exit(0)


def run_job(spec: dict[str, Any]) -> None:
    """Run the job below a new process 1, and wait until the kernel has killed all its processes."""
    check_result("unshare", LIBC.unshare(NEWPID | NEWNS))
    init = os.fork()
    if init == 0:
        try:
            set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
            try:
                mount("proc", "/proc", "proc", 2 | 4 | 8)
            except IsolationError:
                pass  # not possible in some containers; the job then sees even less
            report(spec, supervise(spec, True, start_job))
        except (IsolationError, OSError) as problem:
            report(spec, {"refused": f"{problem}"})
        os._exit(0)
    for name in ("stdin", "stdout", "stderr"):
        os.close(spec[name])
    os.waitpid(init, 0)


def listen(spec: dict[str, Any]) -> None:
    """Listen on the loopback address of the session, and send the socket to Assay, which serves it."""
    server = socket.create_server(("127.0.0.1", spec["port"]), backlog=64)
    with socket.socket(fileno=spec["stdin"]) as answer:
        socket.send_fds(answer, [b"x"], [server.fileno()])


# --- a job ---------------------------------------------------------------------------------------------------------


def start_job(spec: dict[str, Any]) -> None:
    """Confine this process, then become the command or do the file operation."""
    try:
        os.setsid()
        join_cgroup(spec)
        drop_capabilities()
        drop_privileges(spec)
        if os.geteuid() == 0:
            raise IsolationError("the command would run as root")
        set_process_option(PR_SET_NO_NEW_PRIVS, 1)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            os.dup2(spec[name], number)
        for kind in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(kind, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
        set_resource_limits(spec["bounds"])
        drop_effective_capabilities()
        install_seccomp_filter(spec)
    except (IsolationError, OSError, ValueError) as problem:
        report(spec, {"refused": f"{problem}"})
        os._exit(127)
    try:
        os.chdir(spec["cwd"])
        JOBS[spec["kind"]](spec)
    except OSError as problem:
        report(spec, {"failed": problem.strerror or f"{problem}", "errno": problem.errno})
        os._exit(126)
    except (ValueError, MemoryError) as problem:
        report(spec, {"failed": f"{problem}" or "out of memory", "errno": 0})
        os._exit(126)
    os._exit(0)


def drop_effective_capabilities() -> None:
    """Drop the capabilities of this process inside its user namespace, which a file operation would keep."""
    header, data = struct.pack("Ii", 0x20080522, 0), bytes(24)
    check_result("capset", LIBC.capset(ctypes.c_char_p(header), ctypes.c_char_p(data)))


def exec_command(spec: dict[str, Any]) -> None:
    """Become the command."""
    os.execvpe(spec["command"][0], spec["command"], spec["environment"])


def read_pieces(descriptor: int, size: int = -1) -> Iterator[bytes]:
    """Yield the content of a file from its start, at most `size` bytes."""
    at = 0
    while size < 0 or at < size:
        piece = os.pread(descriptor, PIECE_BYTES if size < 0 else min(PIECE_BYTES, size - at), at)
        if not piece:
            return
        at += len(piece)
        yield piece


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_with_holes(descriptor: int, data: bytes) -> None:
    """Write all bytes, but skip blocks of zeros: the file system may be too small for what were holes."""
    zeros = bytes(BLOCK_BYTES)
    if zeros not in data:
        write_all(descriptor, data)
        return
    for start in range(0, len(data), BLOCK_BYTES):
        block = data[start : start + BLOCK_BYTES]
        if block == zeros[: len(block)]:
            os.lseek(descriptor, len(block), os.SEEK_CUR)
        else:
            write_all(descriptor, block)


# --- file operations -----------------------------------------------------------------------------------------------


def open_regular(path: str, flags: int, mode: int = 0o666) -> int:
    """Open a regular file. Does not wait for the other end of a FIFO."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("not a regular file")
    return descriptor


def read_file(spec: dict[str, Any]) -> None:
    """Write the first bytes of a file to standard output."""
    descriptor = open_regular(spec["path"], os.O_RDONLY)
    report(spec, {"size": os.fstat(descriptor).st_size})
    for piece in read_pieces(descriptor, spec["max_bytes"]):
        write_all(1, piece)


def write_file(spec: dict[str, Any]) -> None:
    """Write standard input to a file, and create its folders."""
    parent = os.path.dirname(spec["path"])
    if parent:
        os.makedirs(parent, exist_ok=True)
    descriptor = open_regular(spec["path"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for piece in read_pieces(0):
        write_all(descriptor, piece)
    if spec["file_mode"] is not None:
        os.fchmod(descriptor, spec["file_mode"])


def list_files(spec: dict[str, Any]) -> None:
    """Write one JSON line for each file in the folder, in the order of their paths inside each folder."""
    left, count = [""], 0
    while left:
        folder = left.pop()
        try:
            names = sorted(os.listdir(os.fsencode(folder or ".")))
        except PermissionError:
            mode = os.stat(folder or ".").st_mode
            os.chmod(folder or ".", 0o700)
            names = sorted(os.listdir(os.fsencode(folder or ".")))
            spec.setdefault("restore_modes", []).append((folder or ".", mode))
        lines = []
        for name in names:
            path = os.path.join(folder, os.fsdecode(name))
            try:
                status = os.lstat(path)
            except PermissionError:  # a folder that can be listed but not searched
                mode = os.stat(folder or ".").st_mode
                os.chmod(folder or ".", 0o700)
                spec.setdefault("restore_modes", []).append((folder or ".", mode))
                status = os.lstat(path)
            count += 1
            if count > spec["max_files"]:
                raise ValueError(f"more than {spec['max_files']} files")
            lines.append(json.dumps(describe_file(path, status)))
            if stat.S_ISDIR(status.st_mode):
                left.append(path)
        if lines:
            write_all(1, ("\n".join(lines) + "\n").encode())
    for path, mode in reversed(spec.get("restore_modes", [])):
        os.chmod(path, stat.S_IMODE(mode))


def describe_file(path: str, status: os.stat_result) -> list[Any]:
    """Return path, kind, mode, size, modification time, target of a link, and what changes when the file changes."""
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo"}
    kind = kinds.get(stat.S_IFMT(status.st_mode), "other")
    target = os.readlink(path) if kind == "link" else ""
    size = status.st_size if kind == "file" else 0
    change = [status.st_ino, status.st_ctime_ns, status.st_nlink]
    return [path, kind, stat.S_IMODE(status.st_mode), size, status.st_mtime_ns, target, change]


def read_files(spec: dict[str, Any]) -> None:
    """Write the size and the content of each requested file to standard output."""
    for path in json.loads(b"".join(read_pieces(0))):
        with_mode: list[tuple[str, int]] = []
        descriptor = open_unreadable(path, with_mode)
        size = os.fstat(descriptor).st_size
        write_all(1, struct.pack("Q", size))
        sent = 0
        for piece in read_pieces(descriptor, size):
            write_all(1, piece)
            sent += len(piece)
        while sent < size:  # another process of the session shortened the file
            piece = bytes(min(PIECE_BYTES, size - sent))
            write_all(1, piece)
            sent += len(piece)
        os.close(descriptor)
        for name, mode in reversed(with_mode):
            os.chmod(name, mode)


def open_unreadable(path: str, with_mode: list[tuple[str, int]]) -> int:
    """Open a file of ours whose mode, or that of its folders, forbids it. Appends the modes to restore."""
    try:
        return open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
    except PermissionError:
        pass
    parts = path.split("/")
    for depth in range(1, len(parts) + 1):
        name = "/".join(parts[:depth])
        mode = stat.S_IMODE(os.lstat(name).st_mode)
        wanted = mode | (0o400 if depth == len(parts) else 0o700)
        if mode != wanted:
            os.chmod(name, wanted, follow_symlinks=depth < len(parts))
            with_mode.append((name, mode))
    return open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)


def write_files_of_snapshot(spec: dict[str, Any]) -> None:
    """Create the files of a snapshot in the empty folder. Standard input holds a JSON list and then the contents."""
    (length,) = struct.unpack("Q", os.pread(0, 8, 0))
    entries = json.loads(os.pread(0, length, 8))
    at = 8 + length
    later: list[tuple[str, int, int]] = []
    for path, kind, mode, size, modified, target in entries:
        if kind == "folder":
            os.mkdir(path)
            later.append((path, mode, modified))
        elif kind == "link":
            os.symlink(target, path)
        elif kind == "hardlink":
            os.link(target, path)
        elif kind == "fifo":
            os.mkfifo(path)
            os.chmod(path, mode)
        else:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            end = at + size
            while at < end:
                piece = os.pread(0, min(PIECE_BYTES, end - at), at)
                if not piece:
                    raise ValueError("the content of a file is incomplete")
                write_with_holes(descriptor, piece)
                at += len(piece)
            os.ftruncate(descriptor, size)
            os.fchmod(descriptor, mode)
            os.utime(descriptor, ns=(modified, modified))
            os.close(descriptor)
    for path, mode, modified in reversed(later):
        os.utime(path, ns=(modified, modified))
        os.chmod(path, mode)


JOBS = {
    "command": exec_command,
    "list": list_files,
    "read": read_file,
    "read_many": read_files,
    "write": write_file,
    "write_snapshot": write_files_of_snapshot,
}
