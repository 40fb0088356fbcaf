"""The launch specification: readable folders, denied system calls, user and limits of a sandboxed program."""

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
_BOOTSTRAP = "import sys\nfor text in sys.argv[1:]: exec(compile(text, 'launcher', 'exec'))"
_DENIED_CALLS = {  # other processes or the kernel
    "x86_64": (0xC000003E, [101, 155, 165, 166, 175, 246, 248, 249, 250, 272, 298, 304, 308, 310, 311, 313, 321, 323, 425, 438]),
    "aarch64": (0xC00000B7, [39, 40, 41, 97, 104, 105, 117, 217, 218, 219, 241, 265, 268, 270, 271, 273, 280, 282, 425, 438]),
}  # fmt: skip
"""The seccomp architecture and the numbers of: ptrace, pivot_root, mount, umount2, init_module,
kexec_load, add_key, request_key, keyctl, unshare, perf_event_open, open_by_handle_at, setns, process_vm_readv and
-writev, finit_module, bpf, userfaultfd, io_uring_setup, pidfd_getfd."""

_SOCKET_CALLS = {"x86_64": [41], "aarch64": [198]}
_SIGNAL_CALLS = {"x86_64": [62, 129, 200, 234, 297, 424], "aarch64": [129, 130, 131, 138, 240, 424]}
"""kill, rt_sigqueueinfo, tkill, tgkill, rt_tgsigqueueinfo, pidfd_send_signal: denied if the program runs as our user,
because it could kill our processes."""

_FIRST_UNUSED_USER = 1_879_048_192
"""The first of the user ids that no distribution assigns."""


@cache
def launcher_arguments() -> tuple[str, ...]:
    """Return the arguments of an interpreter that runs the launcher."""
    return ("-I", "-S", "-c", _BOOTSTRAP, *(path.read_text("utf-8") for path in _SOURCES))


def pick_unused_user() -> int | None:
    """Return a user id that no other process uses, or None if we are not root."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return None
    return _FIRST_UNUSED_USER + random.SystemRandom().randrange(1 << 24)


@cache
def readable_folders(interpreter: str = sys.executable) -> tuple[str, ...]:
    """Return the folders that a program may read: system libraries and tools, the interpreter and its packages."""
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
    """Return the folders of an interpreter and its packages."""
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
    """Return whether other users can run the interpreter: every folder on its path is open to them."""
    places = [Path(interpreter).resolve(), *map(Path, interpreter_folders(interpreter))]
    return all(folder.stat().st_mode & 0o5 for place in places for folder in (place, *place.parents))


@cache
def link_targets() -> dict[str, str]:
    """Return the links in the root folder, such as `/lib` to `/usr/lib`."""
    names = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
    return {name: str(Path(name).readlink()) for name in names if Path(name).is_symlink()}


def build_launch_spec(
    program: Program, *, mode: str, folder: str, pipes: tuple[int, int], **more: Any
) -> bytes:
    """Build the launch specification as JSON. `more` overrides the defaults."""
    bounds = program.limits
    limits = {name: getattr(bounds, name) for name in bounds.__slots__}
    limits["processes"] += more.pop("shared_tasks", 0)  # the kernel counts the existing processes of the user
    interpreter = more.pop("interpreter", sys.executable)
    executable, *rest = program.command
    spec: dict[str, Any] = {
        "mode": mode,
        "folder": folder,
        "status": pipes[0],
        "control": pipes[1],
        "command": [interpreter if executable == "python" else executable, *rest],
        "environment": _build_environment(folder),
        "files": {
            name: base64.b64encode(content).decode() for name, content in program.files_with_source.items()
        },
        "stdin": base64.b64encode(program.stdin).decode(),
        "bounds": limits,
        "denied_calls": _list_denied_calls(
            network=mode == "limits", signals=mode == "limits" and more.get("uid") is None
        ),
        "readable": [],
        "links": {},
        "uid": None,
        "own_user": False,
        "max_processes": bounds.processes,
    }
    spec.update(more)
    return json.dumps(spec).encode()


def _build_environment(folder: str) -> dict[str, str]:
    """Return the environment variables: none of ours, so no secrets, and one thread per program."""
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    path = f"{Path(sys.executable).parent}:{os.defpath}"
    return {"PATH": path, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8", **dict.fromkeys(threads, "1")}


def _list_denied_calls(*, network: bool, signals: bool) -> dict[str, tuple[int, list[int]]]:
    return {
        machine: (
            architecture,
            [
                *numbers,
                *(_SOCKET_CALLS[machine] if network else ()),
                *(_SIGNAL_CALLS[machine] if signals else ()),
            ],
        )
        for machine, (architecture, numbers) in _DENIED_CALLS.items()
    }
