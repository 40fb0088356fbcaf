"""The programs that test a sandbox before it is used: attempts to escape, and attempts to exceed the limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ESCAPES", "LIMIT_PROBES", "PROBE_PROGRAM", "LimitProbe"]

PROBE_PROGRAM = """
import ctypes, json, os, socket, sys
given, found = json.load(sys.stdin), {}
library = ctypes.CDLL(None, use_errno=True)
machine = 0 if os.uname().machine == "x86_64" else 1
linux = sys.platform == "linux"

def attempt(name, work):
    try:
        found[name] = work()
    except BaseException:
        found[name] = None

def reach(numbers, *arguments):
    if not linux:
        return False
    result = library.syscall(numbers[machine], *(ctypes.c_long(one) for one in arguments))
    return result >= 0 or ctypes.get_errno() not in (1, 38)

def open_socket(family):
    socket.socket(family, socket.SOCK_RAW if family in (16, 17) else socket.SOCK_SEQPACKET if family == 38 else 1)
    return True

def clone():
    pid = library.syscall((56, 220)[machine], ctypes.c_long(0x10000000 | 17), *[ctypes.c_long(0)] * 4) if linux else -1
    if pid == 0:
        os._exit(0)
    return pid > 0

def capabilities():
    sets = (ctypes.c_uint32 * 6)()
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    library.syscall((125, 90)[machine], header, sets)
    return any(sets[index] for index in (0, 1, 3, 4))

def write():
    with open(given["file"], "w") as file:
        file.write("here")
    return True

def exists(pid, command):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return command in file.read().decode("utf-8", "replace")
    except OSError:
        return None

def any_process(work):
    for pid, command in given["processes"]:
        if exists(pid, command) is not False:
            try:
                if work(pid):
                    return True
            except BaseException:
                pass
    return False

def read_environment(pid):
    with open("/proc/%d/environ" % pid, "rb") as file:
        return len(file.read()) > 0

def open_memory(pid):
    with open("/proc/%d/mem" % pid, "r+b"):
        return True

attempt("home", lambda: os.listdir(given["home"]))
attempt("write", write)
attempt("environment", lambda: any_process(read_environment))
attempt("memory of a process", lambda: any_process(open_memory))
attempt("signal", lambda: any_process(lambda pid: os.kill(pid, 0) is None))
attempt("limits of a process", lambda: linux and any_process(lambda pid: __import__("resource").prlimit(pid, 7)))
attempt("network", lambda: socket.create_connection(("127.0.0.1", given["port"]), 2).close() is None)
for family in (16, 17, 38, 40):
    attempt("socket %d" % family, lambda: linux and open_socket(family))
attempt("unshare", lambda: reach((272, 97), 0x10000000))
attempt("clone", clone)
attempt("clone3", lambda: reach((435, 435), 0, 0))
attempt("setns", lambda: reach((308, 268), -1, 0))
attempt("mount", lambda: reach((165, 40), 0, 0, 0, 0, 0))
attempt("fsopen", lambda: reach((430, 430), 0, 0))
attempt("open_tree", lambda: reach((428, 428), -1, 0, 0))
attempt("move_mount", lambda: reach((429, 429), -1, 0, -1, 0, 0))
attempt("shmget", lambda: reach((29, 194), 0, 4096, 0o1600))
attempt("semget", lambda: reach((64, 190), 0, 1, 0o1600))
attempt("msgget", lambda: reach((68, 186), 0, 0o1600))
attempt("memfd_create", lambda: reach((319, 279), 0, 0))
attempt("ptrace", lambda: reach((101, 117), 16, -1, 0, 0))
attempt("process_vm_readv", lambda: reach((310, 270), -1, 0, 0, 0, 0, 0))
attempt("bpf", lambda: reach((321, 280), 99, 0, 0))
attempt("io_uring", lambda: reach((425, 425), 1, 0))
attempt("userfaultfd", lambda: reach((323, 282), 1))
attempt("perf_event_open", lambda: reach((298, 241), 0, 0, -1, -1, 0))
attempt("keyctl", lambda: reach((250, 219), 99))
attempt("open_by_handle_at", lambda: reach((304, 265), -1, 0, 0))
attempt("capabilities", lambda: linux and capabilities())
attempt("setuid", lambda: os.geteuid() == 0 or os.setuid(0) is None)
print(json.dumps(found))
"""
"""Reads what to attack as JSON and prints for each attempt whether it succeeded."""

ESCAPES: Mapping[str, tuple[str, ...]] = {
    "network": ("network",),
    "other socket families (netlink, packet, vsock, …)": ("socket 16", "socket 17", "socket 38", "socket 40"),
    "files of the home folder": ("home",),
    "writing outside of its folder": ("write",),
    "other processes": ("signal", "memory of a process", "limits of a process"),
    "the environment of other processes": ("environment",),
    "root privileges": ("capabilities", "setuid"),
    "new namespaces": ("unshare", "clone", "clone3", "setns"),
    "mounts": ("mount", "fsopen", "open_tree", "move_mount"),
    "shared memory segments and memfd": ("shmget", "semget", "msgget", "memfd_create"),
    "kernel interfaces (ptrace, bpf, io_uring, keys, …)": (
        "ptrace",
        "process_vm_readv",
        "bpf",
        "io_uring",
        "userfaultfd",
        "perf_event_open",
        "keyctl",
        "open_by_handle_at",
    ),
}
"""What a sandbox should block, and the attempts of the probe program that must fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitProbe:
    """A program that tries to exceed a limit."""

    source: str
    limits: Mapping[str, Any]
    exit_reasons: tuple[str, ...] = field(default=())
    """The limit works if the program ends for one of these reasons, …"""

    most: int | None = None
    """… or prints at most this number."""


LIMIT_PROBES: Mapping[str, LimitProbe] = {
    "time": LimitProbe(
        source="import signal\nfor number in range(1, 32):\n"
        "    if number not in (9, 19): signal.signal(number, lambda *_: 0)\n"
        "while True: signal.pause()",
        limits={"time_s": 0.5},
        exit_reasons=("time",),
    ),
    "memory": LimitProbe(  # shared with the parent, so that it counts in no process alone
        source="import mmap, os, time\nfor _ in range(3):\n    if os.fork() == 0: break\n"
        "kept = mmap.mmap(-1, 48 << 20)\nkept[:] = b'x' * (48 << 20)\ntime.sleep(8)\nprint(1)",
        limits={"time_s": 10.0, "memory_bytes": 160 << 20},
        exit_reasons=("memory",),
        most=0,
    ),
    "output": LimitProbe(
        source="import sys\nfor _ in range(2000): sys.stdout.write('x' * 100)",
        limits={"time_s": 10.0, "output_bytes": 10_000},
        exit_reasons=("output",),
    ),
    "processes": LimitProbe(
        source="import os, time\nstarted = 0\nfor _ in range(40):\n    try:\n"
        "        if os.fork() == 0:\n            time.sleep(5)\n            os._exit(0)\n"
        "    except OSError: break\n    started += 1\nprint(started, flush=True)\ntime.sleep(0.3)",
        limits={"time_s": 10.0, "processes": 20},
        exit_reasons=("processes",),
        most=20,
    ),
    "the size of a file": LimitProbe(
        source="import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nfile = open('a', 'wb', buffering=0)\n"
        "try:\n    for _ in range(64): file.write(b'x' * (1 << 16))\nexcept OSError: pass\nprint(file.tell())",
        limits={"time_s": 10.0, "file_bytes": 1 << 20},
        most=1 << 20,
    ),
    "the sum of its files": LimitProbe(
        source="total = 0\ntry:\n    for name in 'abcd':\n        with open(name, 'wb', buffering=0) as file:\n"
        "            for _ in range(12): total += file.write(b'x' * (1 << 16))\nexcept OSError: pass\nprint(total)",
        limits={"time_s": 10.0, "file_bytes": 1 << 20},
        most=1 << 20,
    ),
}
"""What a sandbox should limit, and the program that tries to exceed the limit."""
