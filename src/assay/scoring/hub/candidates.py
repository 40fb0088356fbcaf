"""A model's candidate and its tests as one program, judged as the published scores were.

The runner hides the candidate's output and takes away calls no solution needs (deleting, killing, starting programs),
because programs that use them count as failed there. Safety is the sandbox's business, not its.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Sequence

from assay.core.executing import execute_all
from assay.core.programs import Bounds, Execution, Program

__all__ = ["run_candidates"]

_RUNNER = """
import sys
word, seconds = sys.stdin.readline().split()
program = sys.stdin.read()
import builtins, os, shutil, signal, subprocess
out, write, leave = os.dup(1), os.write, os._exit
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
signal.setitimer(signal.ITIMER_REAL, float(seconds))
try:
    exec(program, {})
except BaseException as problem:
    ending = "failed: " + str(problem)[:2000]
else:
    ending = "passed"
signal.setitimer(signal.ITIMER_REAL, 0)
write(out, (word + " " + ending).encode("utf-8", "replace"))
leave(0)
"""
"""The time of a candidate starts when it starts, not with its interpreter: a busy machine must not cost it its score."""

_START_S = 5.0
"""What an interpreter may take to start; past this and the candidate's time, the sandbox ends both."""


def run_candidates(
    candidates: Sequence[str], *, timeout_s: float = 3.0, memory_bytes: int = 4 << 30
) -> list[str]:
    """`passed`, `timed out`, or `failed: …` with what it raised, for each candidate.

    Raises:
        AssayError: They could not be run, which says nothing about them.
    """
    bounds = Bounds(time_s=timeout_s + _START_S, memory_bytes=memory_bytes, file_bytes=16 << 20)
    words = [secrets.token_hex(16) for _ in candidates]  # so that printing "passed" is not passing
    programs = [
        Program(source=_RUNNER, stdin=f"{word} {timeout_s}\n{text}".encode("utf-8", "replace"), bounds=bounds)
        for word, text in zip(words, candidates, strict=True)
    ]
    return [_ending(word, done) for word, done in zip(words, execute_all(programs), strict=True)]


def _ending(word: str, done: Execution) -> str:
    said, _, ending = done.stdout.partition(" ")
    if said == word:
        return ending
    timed_out = done.ending == "time" or done.signal == signal.SIGALRM
    return "timed out" if timed_out else "failed: no result"
