"""The launch specification: readable folders, allowed system calls, user and limits of a sandboxed program."""

from __future__ import annotations

import base64
import json
import os
import random
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from assay.core.records.programs import Program
from assay.sandboxes.seccomp import build_filters

__all__ = [
    "Descriptors",
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
_FIRST_UNUSED_USER = 1_879_048_192
"""The first of the user ids that no distribution assigns."""


class Descriptors(NamedTuple):
    """The file descriptors that a launcher inherits; -1 for those it does not have."""

    status: int = -1
    """Where it writes its reports."""

    control: int = -1
    """Closed to stop it."""

    cgroup: int = -1
    """`cgroup.procs` of the program's cgroup."""


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
    program: Program, *, mode: str, folder: str, descriptors: Descriptors, **more: Any
) -> bytes:
    """Build the launch specification as JSON. `more` overrides the defaults."""
    bounds = program.limits
    limits = {name: getattr(bounds, name) for name in bounds.__slots__}
    limits["processes"] += more.pop("shared_tasks", 0)  # the kernel counts the existing processes of the user
    interpreter = more.pop("interpreter", sys.executable)
    signals = more.pop("signals", True)
    executable, *rest = program.command
    spec: dict[str, Any] = {
        "mode": mode,
        "folder": folder,
        **descriptors._asdict(),
        "command": [interpreter if executable == "python" else executable, *rest],
        "environment": _build_environment(folder),
        "files": {
            name: base64.b64encode(content).decode() for name, content in program.files_with_source.items()
        },
        "stdin": base64.b64encode(program.stdin).decode(),
        "bounds": limits,
        "seccomp": {
            machine: base64.b64encode(code).decode()
            for machine, code in build_filters(network=mode != "limits", signals=signals).items()
        },
        "landlock": False,
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
