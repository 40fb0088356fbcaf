"""What the launcher is told: which folders a program may see, which calls are refused, who it runs as."""

from __future__ import annotations

import base64
import json
import os
import random
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

from assay.core.programs import Program

__all__ = [
    "build_launch_spec",
    "interpreter_folders",
    "is_readable_by_all",
    "launcher_arguments",
    "link_targets",
    "pick_unused_user",
    "readable_folders",
]

_SOURCES = [Path(__file__).with_name(name) for name in ("isolation.py", "launcher.py")]
_FEED = "import sys\nfor text in sys.argv[1:]: exec(compile(text, 'launcher', 'exec'))"
_REACHING = {  # into other processes or into the kernel
    "x86_64": (0xC000003E, [101, 155, 165, 166, 175, 246, 248, 249, 250, 272, 298, 304, 308, 310, 311, 313, 321, 323, 425, 438]),
    "aarch64": (0xC00000B7, [39, 40, 41, 97, 104, 105, 117, 217, 218, 219, 241, 265, 268, 270, 271, 273, 280, 282, 425, 438]),
}  # fmt: skip
"""Architecture of the kernel's filter, and the numbers of: ptrace, pivot_root, mount, umount2, init_module,
kexec_load, add_key, request_key, keyctl, unshare, perf_event_open, open_by_handle_at, setns, process_vm_readv and
-writev, finit_module, bpf, userfaultfd, io_uring_setup, pidfd_getfd."""

_SOCKET = {"x86_64": [41], "aarch64": [198]}
_SIGNALS = {"x86_64": [62, 129, 200, 234, 297, 424], "aarch64": [129, 130, 131, 138, 240, 424]}
"""kill, rt_sigqueueinfo, tkill, tgkill, rt_tgsigqueueinfo, pidfd_send_signal: refused where the program is the same
user as we are, because it could end us and everything else of ours."""

_FIRST_USER = 1_879_048_192
"""Users above belong to nobody: no distribution hands them out."""


@cache
def launcher_arguments() -> tuple[str, ...]:
    """The arguments of an interpreter that launches programs."""
    return ("-I", "-S", "-c", _FEED, *(path.read_text("utf-8") for path in _SOURCES))


def pick_unused_user() -> int | None:
    """A user that no other process has, where we may choose one."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return None
    return _FIRST_USER + random.SystemRandom().randrange(1 << 24)


@cache
def readable_folders(interpreter: str = sys.executable) -> tuple[str, ...]:
    """What a program needs to run: the system's libraries and tools, the interpreter and its packages."""
    wanted = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"]
    wanted += [
        f"/etc/{name}" for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")
    ]
    wanted += interpreter_folders(interpreter)
    known = {path for path in wanted if Path(path).exists() and path not in link_targets()}
    kept: list[str] = []
    for path in sorted(known, key=len):
        if path != "/" and not any(Path(path).is_relative_to(folder) for folder in kept):
            kept.append(path)
    return tuple(kept)


def interpreter_folders(interpreter: str) -> list[str]:
    """Where an interpreter and its packages are."""
    if interpreter != sys.executable:
        return [str(Path(interpreter).resolve().parent.parent), str(Path(interpreter).parent.parent)]
    paths = sysconfig.get_paths()
    places = [
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        *(paths[key] for key in ("purelib", "platlib", "stdlib")),
    ]
    places += [str(Path(place).resolve()) for place in places]
    return [*places, str(Path(sys.executable).resolve().parent)]


def is_readable_by_all(interpreter: str) -> bool:
    """Another user can run it: no folder on the way is closed to others."""
    places = [Path(interpreter).resolve(), *map(Path, interpreter_folders(interpreter))]
    return all(folder.stat().st_mode & 0o5 for place in places for folder in (place, *place.parents))


@cache
def link_targets() -> dict[str, str]:
    """Links at the top of the file system, such as `/lib` to `/usr/lib`."""
    names = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
    return {name: str(Path(name).readlink()) for name in names if Path(name).is_symlink()}


def build_launch_spec(
    program: Program, *, mode: str, folder: str, pipes: tuple[int, int], **more: Any
) -> bytes:
    """The launcher's message. `more` replaces what is said for programs in general."""
    bounds = program.limits
    limits = {name: getattr(bounds, name) for name in bounds.__slots__}
    limits["processes"] += more.pop("shared_tasks", 0)  # the kernel counts what the user has already
    interpreter = more.pop("interpreter", sys.executable)
    word, *rest = program.command
    order: dict[str, Any] = {
        "mode": mode,
        "folder": folder,
        "status": pipes[0],
        "control": pipes[1],
        "command": [interpreter if word == "python" else word, *rest],
        "environment": _environment(folder),
        "files": {
            name: base64.b64encode(content).decode() for name, content in program.files_with_source.items()
        },
        "stdin": base64.b64encode(program.stdin).decode(),
        "bounds": limits,
        "refused_calls": _refused(
            network=mode == "limits", signals=mode == "limits" and more.get("uid") is None
        ),
        "readable": [],
        "links": {},
        "uid": None,
        "own_user": False,
        "most_processes": bounds.processes,
    }
    order.update(more)
    return json.dumps(order).encode()


def _environment(folder: str) -> dict[str, str]:
    """Nothing of ours, so no keys; one thread per program, because several run at once."""
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    path = f"{Path(sys.executable).parent}:{os.defpath}"
    return {"PATH": path, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8", **dict.fromkeys(threads, "1")}


def _refused(*, network: bool, signals: bool) -> dict[str, tuple[int, list[int]]]:
    return {
        machine: (
            architecture,
            [*numbers, *(_SOCKET[machine] if network else ()), *(_SIGNALS[machine] if signals else ())],
        )
        for machine, (architecture, numbers) in _REACHING.items()
    }
