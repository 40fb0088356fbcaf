"""Isolate the current process: namespaces, a new root file system, another user, resource limits, Landlock, seccomp.

Never imported: like the launcher, its source runs in a new interpreter. Uses the standard library only.
"""

from __future__ import annotations

import base64
import ctypes
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
PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 23, 24, 36, 38
LANDLOCK_CREATE, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT = 444, 445, 446
LIBC = ctypes.CDLL(None, use_errno=True)


class IsolationError(Exception):
    """The kernel refused an operation, so the sandbox does not work on this machine."""


def check_result(what: str, result: int) -> int:
    """Return the result of a C function, or raise its error."""
    if result < 0:
        raise IsolationError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def set_process_option(option: int, argument: int) -> None:
    """Call prctl(2) on Linux."""
    if LINUX:
        check_result(f"prctl {option}", LIBC.prctl(option, ctypes.c_ulong(argument), 0, 0, 0))


def drop_capabilities() -> None:
    """Remove all capabilities from the bounding set, so that no later program can have them."""
    number = 0
    while LINUX and LIBC.prctl(PR_CAPBSET_READ, ctypes.c_ulong(number), 0, 0, 0) >= 0:
        if LIBC.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0) < 0:
            return  # only root can, and only root needs it
        number += 1


# --- namespaces ---------------------------------------------------------------------------------------------------


def enter_namespaces(spec: dict[str, Any]) -> None:
    """Enter new namespaces, as root or through a user namespace."""
    kinds = NEWNS | NEWPID | NEWIPC | NEWUTS | (0 if spec.get("network") else NEWNET)
    if os.geteuid() == 0:
        if LIBC.unshare(kinds) == 0:
            return
        drop_privileges(spec)  # root without capabilities, as in a container: continue as an ordinary user
    user, group = os.getuid(), os.getgid()
    check_result("unshare", LIBC.unshare(kinds | NEWUSER))
    spec["uid"] = None
    set_process_option(PR_SET_DUMPABLE, 1)  # after a change of user, the files below belong to root
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"65534 {user} 1"),
        ("gid_map", f"65534 {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    set_process_option(PR_SET_DUMPABLE, 0)


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2)."""
    texts = [text.encode() if text else None for text in (source, target, kind)]
    done = LIBC.mount(*texts, ctypes.c_ulong(flags), data.encode() if data else None)
    check_result(f"mount {target}", done)


def bind_read_only(source: str, target: str) -> None:
    """Bind-mount a file or folder read-only."""
    mount(source, target, "", MS_BIND | MS_REC)
    wanted = (ctypes.c_uint64 * 4)(
        MS_RDONLY | MS_NOSUID | (0 if source.startswith("/old/dev/") else MS_NODEV)
    )
    recursive = ctypes.c_uint(0x8000)
    if LIBC.syscall(442, -100, target.encode(), recursive, ctypes.byref(wanted), ctypes.c_size_t(32)) < 0:
        mount_flags = os.statvfs(target).f_flag & (
            MS_NOSUID | MS_NODEV | 8 | 1024 | 2048
        )  # keep locked flags
        mount("", target, "", MS_BIND | MS_REMOUNT | MS_RDONLY | mount_flags)


def enter_new_root(spec: dict[str, Any]) -> None:
    """Enter a root file system with the interpreter, the system libraries, a few devices and an empty folder."""
    mount("", "/", "", MS_REC | MS_PRIVATE)
    stage = spec["stage"]
    sources = {
        path: os.path.realpath(path) for path in spec["readable"]
    }  # links lead nowhere in the new root
    mount("tmpfs", stage, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for name in ("new", "old"):
        os.mkdir(f"{stage}/{name}")
    mount(f"{stage}/new", f"{stage}/new", "", MS_BIND)
    check_result("pivot_root", LIBC.pivot_root(stage.encode(), f"{stage}/old".encode()))
    os.chdir("/")
    for link, target in spec["links"].items():
        os.makedirs(os.path.dirname(f"/new{link}"), exist_ok=True)
        os.symlink(target, f"/new{link}")
    for name in ("null", "zero", "full", "random", "urandom"):
        sources[f"/dev/{name}"] = f"/dev/{name}"
    for path, source in sources.items():
        expose_path(path, source)
    for name in ("box", "proc", "etc", "dev"):
        os.makedirs(f"/new/{name}", exist_ok=True)
    with open("/new/etc/passwd", "w") as file:
        user = spec["uid"] or 65534
        file.write(f"nobody:x:{user}:{user}:nobody:/box:/bin/sh\n")
    for name in ("tmp", "dev/shm"):
        if not os.path.exists(f"/new/{name}"):  # the interpreter may be in /tmp
            os.symlink("/box", f"/new/{name}")
    owner = spec["uid"] if spec["uid"] is not None else os.getuid()
    size = f"size={spec['bounds']['file_bytes']},nr_inodes={spec.get('max_files') or 20000},mode=700,uid={owner},gid={owner}"
    mount("tmpfs", "/new/box", "tmpfs", MS_NOSUID | MS_NODEV, size)
    try:
        mount("proc", "/new/proc", "proc", MS_NOSUID | MS_NODEV | 8)
    except IsolationError:
        pass  # not possible in some containers; the program then sees even less
    mount("", "/new", "", MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    check_result("umount", LIBC.umount2(b"/old", MNT_DETACH))
    os.chdir("/new")
    check_result("pivot_root", LIBC.pivot_root(b".", b"."))
    check_result("umount", LIBC.umount2(b".", MNT_DETACH))
    os.chdir("/box")


def expose_path(path: str, real_path: str) -> None:
    """Make a file or folder of the machine readable under a path."""
    source, target = f"/old{real_path}", f"/new{path}"
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif os.path.exists(source):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "a"):
            pass
    else:
        return
    bind_read_only(source, target)


def enable_loopback() -> None:
    """Enable the loopback interface, for programs that connect to themselves."""
    descriptor = LIBC.socket(2, 2, 0)
    request = ctypes.create_string_buffer(b"lo".ljust(16, b"\0") + (1).to_bytes(2, sys.byteorder), 40)
    LIBC.ioctl(descriptor, ctypes.c_ulong(0x8914), request)
    os.close(descriptor)


# --- the process ---------------------------------------------------------------------------------------------------


def drop_privileges(spec: dict[str, Any]) -> None:
    """Become an unprivileged user."""
    user = spec["uid"]
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
                raise IsolationError(f"setuid: {problem}") from None
        else:
            spec["uid"] = candidate
            return


def set_resource_limits(bounds: dict[str, Any]) -> None:
    """Set hard resource limits, which the program cannot raise."""
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
    for name, maximum in wanted.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is None:
            continue
        _, hard = resource.getrlimit(kind)
        maximum = int(maximum) if hard == resource.RLIM_INFINITY else min(int(maximum), hard)
        try:
            resource.setrlimit(kind, (maximum - (name == "CPU"), maximum))
        except (ValueError, OSError):
            if name in ("CPU", "FSIZE"):
                raise


def restrict_files(readable: list[str], writable: str) -> None:
    """Deny all files except some with Landlock, and signals and other ways to reach processes that are not descendants."""
    version = LIBC.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    check_result("landlock", version)
    known = (1 << (13, 14, 15, 15, 16)[min(version, 5) - 1]) - 1  # all file operations of this version
    wanted = struct.pack("QQQ", known, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = LIBC.syscall(LANDLOCK_CREATE, wanted, ctypes.c_size_t(len(wanted)), ctypes.c_uint(0))
    check_result("landlock", rules)
    read, write_file, of_files = 0b1101, 0b110, 0b1100_0000_0000_0111
    for path in readable:
        add_path_rule(rules, path, read if os.path.isdir(path) else read & of_files)
    for name in ("null", "zero", "full", "random", "urandom"):
        add_path_rule(rules, f"/dev/{name}", write_file)
    add_path_rule(rules, writable, known)
    check_result("landlock", LIBC.syscall(LANDLOCK_RESTRICT, rules, ctypes.c_uint(0)))
    os.close(rules)


def add_path_rule(rules: int, path: str, allowed: int) -> None:
    """Allow operations on a file, or on everything in a folder."""
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = struct.pack("=Qi", allowed, descriptor)
    check_result(f"landlock {path}", LIBC.syscall(LANDLOCK_ADD_RULE, rules, 1, rule, ctypes.c_uint(0)))
    os.close(descriptor)


def install_seccomp_filter(spec: dict[str, Any]) -> None:
    """Install the seccomp filter for this machine. Linux machines without a filter are not supported."""
    if not LINUX:
        return
    machine = os.uname().machine
    if machine not in spec["seccomp"]:
        raise IsolationError(f"there is no system call filter for {machine} machines")
    code = base64.b64decode(spec["seccomp"][machine])
    kept = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(kept)))
    pointer = ctypes.c_void_p(ctypes.addressof(program))
    check_result("seccomp", LIBC.prctl(PR_SET_SECCOMP, ctypes.c_ulong(2), pointer, 0, 0))
