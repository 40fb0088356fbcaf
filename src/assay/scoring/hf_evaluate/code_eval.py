"""`code_eval`: the share of model-written programs that pass their tests.

A candidate and its tests run as one program, in the same way as for published scores. The runner hides the output of the
candidate and removes calls that no solution needs (deleting files, killing or starting processes), because programs
that use them count as failed in published scores. Isolation is the task of the sandbox.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Sequence
from math import comb
from typing import Any

from assay.core.program_executor import execute_programs
from assay.core.programs import Execution, Program, ResourceLimits

__all__ = ["code_eval", "pass_at_k", "run_candidates"]


def code_eval(
    *,
    predictions: Sequence[Sequence[str]],
    references: Sequence[str],
    k: Sequence[int] = (1, 10, 100),
    num_workers: int = 4,
    timeout: float = 3.0,
) -> tuple[dict[str, float], dict[int, list[tuple[int, dict[str, Any]]]]]:
    """Return pass@k over the problems, and the result of each candidate by problem.

    `num_workers` is ignored: the program runner decides how many programs run concurrently.

    Raises:
        AssayError: The run does not allow model-written code, or no sandbox works.
    """
    programs = [
        (problem, number, f"{candidate}\n{tests}")
        for problem, (candidates, tests) in enumerate(zip(predictions, references, strict=True))
        for number, candidate in enumerate(candidates)
    ]
    texts = list(dict.fromkeys(text for _, _, text in programs))  # run equal programs once
    endings = dict(zip(texts, run_candidates(texts, timeout_s=timeout), strict=True))
    results: dict[int, list[tuple[int, dict[str, Any]]]] = {}
    for problem, number, text in programs:
        ending = endings[text]
        entry = {"task_id": problem, "passed": ending == "passed", "result": ending, "completion_id": number}
        results.setdefault(problem, []).append((number, entry))
    counts = [
        (len(results[problem]), sum(one["passed"] for _, one in results[problem])) for problem in results
    ]
    scores = {
        f"pass@{wanted}": sum(pass_at_k(total, right, wanted) for total, right in counts) / len(counts)
        for wanted in k
        if counts and all(total >= wanted for total, _ in counts)
    }
    return scores, results


def pass_at_k(total: int, right: int, k: int) -> float:
    """Return the probability that one of `k` candidates drawn from `total` is among the `right` ones.

    >>> round(pass_at_k(10, 3, 1), 6), pass_at_k(4, 2, 3)
    (0.3, 1.0)
    """
    return 1.0 if total - right < k else 1.0 - comb(total - right, k) / comb(total, k)


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
"""The time limit starts with the candidate and not with the interpreter, so that a busy machine does not affect scores."""

_STARTUP_S = 5.0
"""Time for the interpreter to start. The sandbox kills the program after this and the candidate's time limit."""


def run_candidates(
    candidates: Sequence[str], *, timeout_s: float = 3.0, memory_bytes: int = 4 << 30
) -> list[str]:
    """Run candidates and return `passed`, `timed out` or `failed: …` with the exception for each.

    Raises:
        AssayError: The programs could not be executed.
    """
    bounds = ResourceLimits(time_s=timeout_s + _STARTUP_S, memory_bytes=memory_bytes, file_bytes=16 << 20)
    words = [
        secrets.token_hex(16) for _ in candidates
    ]  # a secret word, so that a candidate cannot pass by printing "passed"
    programs = [
        Program(source=_RUNNER, stdin=f"{word} {timeout_s}\n{text}".encode("utf-8", "replace"), limits=bounds)
        for word, text in zip(words, candidates, strict=True)
    ]
    return [_parse_result(word, done) for word, done in zip(words, execute_programs(programs), strict=True)]


def _parse_result(word: str, done: Execution) -> str:
    first, _, ending = done.stdout.partition(" ")
    if first == word:
        return ending
    timed_out = done.exit_reason == "time" or done.signal == signal.SIGALRM
    return "timed out" if timed_out else "failed: no result"
