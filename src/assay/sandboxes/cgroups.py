"""Memory and process limits that the kernel enforces for all processes of a program together: one cgroup v2 per program.

Works where this process may create cgroups with the controllers `memory` and `pids`: as root, and in sessions to which systemd
delegates them. Elsewhere the launcher measures the memory of the program instead.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

from assay.core.records.programs import ResourceLimits

__all__ = ["Cgroup", "create_cgroup", "find_parent"]

_REMOVE_S = 1.0
"""Time to wait for the kernel to remove killed processes from a cgroup."""


class Cgroup:
    """The cgroup of one program. The program joins it by writing to the descriptor `procs`."""

    def __init__(self, folder: Path, limits: ResourceLimits) -> None:
        self._folder = folder
        # files in the program's folder are memory too
        _write(folder / "memory.max", limits.memory_bytes + limits.file_bytes)
        _write(folder / "pids.max", limits.processes)
        for name, value in (("memory.swap.max", 0), ("memory.oom.group", 1)):
            with suppress(OSError):  # kernels without swap accounting
                _write(folder / name, value)
        self.procs = os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether the kernel killed the program because of its memory limit."""
        return self.memory_kills > 0

    @property
    def memory_kills(self) -> int:
        """The number of processes that the kernel killed because of the memory limit."""
        return _read_counters(self._folder / "memory.events").get("oom_kill", 0)

    def remove(self) -> None:
        """Kill all processes in the cgroup and remove it."""
        os.close(self.procs)
        with suppress(OSError):
            _write(self._folder / "cgroup.kill", 1)
        until = time.monotonic() + _REMOVE_S
        while True:
            try:
                self._folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                if time.monotonic() > until:
                    return
                time.sleep(0.002)
            else:
                return


def create_cgroup(limits: ResourceLimits, *, root: Path = Path("/proc/self")) -> Cgroup | None:
    """Create a cgroup for a program, or return None if this process may not. `root` is a folder of /proc."""
    parent = find_parent(root)
    if parent is None:
        return None
    folder = parent / f"assay-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        folder.mkdir()
        return Cgroup(folder, limits)
    except OSError:
        with suppress(OSError):
            folder.rmdir()
        return None


def find_parent(process: Path = Path("/proc/self")) -> Path | None:
    """Return the nearest ancestor cgroup of a process that limits memory and processes and accepts new cgroups."""
    try:
        mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
        paths = (process / "cgroup").read_text().splitlines()
    except OSError:
        return None
    top = next((Path(words[4]) for words in mounts if words[words.index("-") + 1] == "cgroup2"), None)
    own = next((line[3:] for line in paths if line.startswith("0::")), None)
    if top is None or own is None:
        return None
    folder = top / own.lstrip("/")
    for candidate in (folder, *folder.parents):
        if not candidate.is_relative_to(top):
            return None
        with suppress(OSError):
            controllers = (candidate / "cgroup.subtree_control").read_text().split()
            if {"memory", "pids"} <= {*controllers} and os.access(candidate, os.W_OK):
                return candidate
    return None


def _write(path: Path, value: int) -> None:
    path.write_text(f"{value}\n")


def _read_counters(path: Path) -> dict[str, int]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    return {name: int(count) for name, count in (line.split() for line in lines)}
