"""What the launcher asks of the kernel: namespaces, another root folder, another user, limits, a filter of calls.

Like the launcher, never imported: its source is handed to a fresh interpreter. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct
import sys
from typing import Any

LINUX = sys.platform == "linux"
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 1 << 17, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 24, 36, 38
LIBC = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """The kernel does not let us: the sandbox does not work here."""


def call(what: str, result: int) -> int:
    """The result of a C function, or what went wrong."""
    if result < 0:
        raise Refused(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def prctl(option: int, argument: int) -> None:
    """Linux only, and never a reason to stop."""
    if LINUX:
        LIBC.prctl(option, ctypes.c_ulong(argument), 0, 0, 0)


# --- namespaces ---------------------------------------------------------------------------------------------------


def unshare(order: dict[str, Any]) -> None:
    """Namespaces of our own: with root's rights, else through a user namespace."""
    kinds = NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS
    if os.geteuid() == 0:
        if LIBC.unshare(kinds) == 0:
            return
        drop(order)  # a root without rights, as in a container: do as an ordinary user does
    user, group = os.getuid(), os.getgid()
    call("unshare", LIBC.unshare(kinds | NEWUSER))
    order["uid"] = None
    prctl(PR_SET_DUMPABLE, 1)  # after a change of user, the files below would belong to root
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"65534 {user} 1"),
        ("gid_map", f"65534 {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2)."""
    texts = [text.encode() if text else None for text in (source, target, kind)]
    done = LIBC.mount(*texts, ctypes.c_ulong(flags), data.encode() if data else None)
    call(f"mount {target}", done)


def bind(source: str, target: str) -> None:
    """Show a file or folder of the machine, for reading only."""
    mount(source, target, "", MS_BIND | MS_REC)
    wanted = (ctypes.c_uint64 * 4)(
        MS_RDONLY | MS_NOSUID | (0 if source.startswith("/old/dev/") else MS_NODEV)
    )
    recursive = ctypes.c_uint(0x8000)
    if LIBC.syscall(442, -100, target.encode(), recursive, ctypes.byref(wanted), ctypes.c_size_t(32)) < 0:
        kept = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | 8 | 1024 | 2048)  # locked flags stay
        mount("", target, "", MS_BIND | MS_REMOUNT | MS_RDONLY | kept)


def new_root(order: dict[str, Any]) -> None:
    """A file system that holds the interpreter, the system's libraries, a few devices, and an empty folder."""
    mount("", "/", "", MS_REC | MS_PRIVATE)
    stage = order["stage"]
    mount("tmpfs", stage, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for name in ("new", "old"):
        os.mkdir(f"{stage}/{name}")
    mount(f"{stage}/new", f"{stage}/new", "", MS_BIND)
    call("pivot_root", LIBC.pivot_root(stage.encode(), f"{stage}/old".encode()))
    os.chdir("/")
    for link, target in order["links"].items():
        os.makedirs(os.path.dirname(f"/new{link}"), exist_ok=True)
        os.symlink(target, f"/new{link}")
    for path in [
        *order["readable"],
        *(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")),
    ]:
        show(path)
    for name in ("box", "proc", "etc", "dev"):
        os.makedirs(f"/new/{name}", exist_ok=True)
    with open("/new/etc/passwd", "w") as file:
        user = order["uid"] or 65534
        file.write(f"nobody:x:{user}:{user}:nobody:/box:/bin/sh\n")
    for name in ("tmp", "dev/shm"):
        if not os.path.exists(f"/new/{name}"):  # the interpreter may live in /tmp
            os.symlink("/box", f"/new/{name}")
    owner = order["uid"] if order["uid"] is not None else os.getuid()
    size = f"size={order['bounds']['file_bytes']},nr_inodes=20000,mode=700,uid={owner},gid={owner}"
    mount("tmpfs", "/new/box", "tmpfs", MS_NOSUID | MS_NODEV, size)
    try:
        mount("proc", "/new/proc", "proc", MS_NOSUID | MS_NODEV | 8)
    except Refused:
        pass  # inside some containers; without it, there is even less to see
    mount("", "/new", "", MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    call("umount", LIBC.umount2(b"/old", MNT_DETACH))
    os.chdir("/new")
    call("pivot_root", LIBC.pivot_root(b".", b"."))
    call("umount", LIBC.umount2(b".", MNT_DETACH))
    os.chdir("/box")


def show(path: str) -> None:
    """One file or folder of the machine, at its own place."""
    source, target = f"/old{path}", f"/new{path}"
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif os.path.exists(source):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "a"):
            pass
    else:
        return
    bind(source, target)


def raise_loopback() -> None:
    """An interface that leads nowhere but back, so that programs which talk to themselves work."""
    door = LIBC.socket(2, 2, 0)
    asked = ctypes.create_string_buffer(b"lo".ljust(16, b"\0") + (1).to_bytes(2, sys.byteorder), 40)
    LIBC.ioctl(door, ctypes.c_ulong(0x8914), asked)
    os.close(door)


# --- the process ---------------------------------------------------------------------------------------------------


def drop(order: dict[str, Any]) -> None:
    """Become a user that owns nothing."""
    user = order["uid"]
    if user is None or os.geteuid() != 0:
        return
    try:
        os.setgroups([])
    except OSError:
        pass
    for candidate in (user, 65534):
        try:
            os.setresgid(candidate, candidate, candidate)
            os.setresuid(candidate, candidate, candidate)
        except OSError as problem:
            if candidate == 65534:
                raise Refused(f"setuid: {problem}") from None
        else:
            order["uid"] = candidate
            return


def limit(bounds: dict[str, Any]) -> None:
    """Resource limits. Hard ones: what is given up cannot be taken back."""
    seconds = int(bounds["time_s"]) + 3
    wanted = {
        "AS": bounds["memory_bytes"],
        "CPU": seconds,
        "FSIZE": bounds["file_bytes"],
        "NOFILE": bounds["open_files"],
        "NPROC": bounds["processes"],
        "CORE": 0,
        "MSGQUEUE": 0,
        "MEMLOCK": 0,
    }
    for name, most in wanted.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is None:
            continue
        _, hard = resource.getrlimit(kind)
        most = int(most) if hard == resource.RLIM_INFINITY else min(int(most), hard)
        try:
            resource.setrlimit(kind, (most - (name == "CPU"), most))
        except (ValueError, OSError):
            if name in ("CPU", "FSIZE"):
                raise


def refuse_calls(order: dict[str, Any]) -> None:
    """A filter of system calls: none that reach into other processes or the kernel, no network where that is shared."""
    table = order["refused_calls"].get(os.uname().machine)
    if not LINUX or table is None:
        return
    architecture, numbers = table
    steps = [(0x20, 0, 0, 4), (0x15, 1, 0, architecture), (0x06, 0, 0, 0x80000000), (0x20, 0, 0, 0)]
    if os.uname().machine == "x86_64":  # the other numbering of the same calls
        steps += [(0x35, 0, 1, 0x40000000), (0x06, 0, 0, 0x00050000 | errno.EPERM)]
    for number in numbers:
        steps += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | errno.EPERM)]
    steps.append((0x06, 0, 0, 0x7FFF0000))
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    kept = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(kept))
    filled = ctypes.create_string_buffer(program)
    LIBC.prctl(PR_SET_SECCOMP, ctypes.c_ulong(2), ctypes.c_void_p(ctypes.addressof(filled)), 0, 0)
