"""One untrusted program in a process of its own, with limits on time and memory.

This is not a sandbox: the process can still read the user's files and use the network. It protects against
programs that loop, allocate, print or exit, it hides the environment, where keys are kept, and it takes away calls no
solution needs (deleting, killing, starting programs), as the published scores were computed. Real sandboxes will take
this module's place; nothing else knows how candidates are run.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress

__all__ = ["run_candidate"]

_CHILD = """
import sys
word, memory, seconds = sys.stdin.readline().split()
program = sys.stdin.read()
try:
    import resource
    for kind, most in (("AS", int(memory)), ("CPU", int(seconds)), ("FSIZE", 1 << 24), ("CORE", 0)):
        try:
            resource.setrlimit(getattr(resource, "RLIMIT_" + kind), (most, most))
        except (ValueError, OSError):
            pass
except ImportError:
    pass
import builtins, os, shutil, subprocess
out, write = os.dup(1), os.write
nowhere = os.open(os.devnull, os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(nowhere, number)
for owner, names in (
    (builtins, "exit quit"),
    (os, "kill killpg system putenv remove removedirs rmdir rename renames truncate replace unlink fork forkpty "
         "fchmod fchown chmod chown chroot lchown setuid lchmod getcwd chdir"),
    (shutil, "rmtree move chown"),
    (subprocess, "Popen"),
):
    for name in names.split():
        setattr(owner, name, None)
for name in ("ipdb", "joblib", "resource", "psutil", "tkinter"):
    sys.modules[name] = None
try:
    exec(program, {})
except BaseException as problem:
    ending = "failed: " + str(problem)[:2000]
else:
    ending = "passed"
write(out, (word + " " + ending).encode("utf-8", "replace"))
"""


def run_candidate(program: str, *, timeout_s: float = 3.0, memory_bytes: int = 4 << 30) -> str:
    """`passed`, `timed out`, or `failed: …` with what it raised.

    >>> run_candidate("assert 1 + 1 == 2")
    'passed'
    """
    word = secrets.token_hex(16)  # so that printing "passed" is not passing
    given = f"{word} {memory_bytes} {int(timeout_s) + 3}\n{program}"
    with tempfile.TemporaryDirectory(prefix="assay-candidate-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-I", "-X", "utf8", "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={"PATH": os.defpath, "HOME": folder},
            start_new_session=True,
        )
        try:
            shown, _ = process.communicate(
                given.encode("utf-8", "replace"), timeout=timeout_s + _START_ALLOWANCE_S
            )
        except subprocess.TimeoutExpired:
            return "timed out"
        finally:
            _end(process)
    said, _, ending = shown.decode("utf-8", "replace").partition(" ")
    return ending if said == word else "failed: no result"


_START_ALLOWANCE_S = 1.0
"""A new interpreter needs a moment; the candidate's own time starts after it."""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program and whatever it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
