"""`code_eval`: the share of model-written programs that pass their tests.

The verdicts are those of one program made of the candidate and its tests, as for published scores. But the tests run in another
process where they can (`candidate_protocol.py`), and call the candidate across a pipe (`candidate_runner.py`), so that a candidate cannot
reach the tests, their timer or the verdict. Isolation from the machine is the task of the sandbox.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from functools import cache
from math import comb
from pathlib import Path
from typing import Any

from assay.core.program_executor import execute_programs
from assay.core.records.programs import Execution, Program, ResourceLimits, SandboxError
from assay.scoring.hf_evaluate.candidate_protocol import choose_protocol

__all__ = ["CANDIDATE_MEMORY_BYTES", "code_eval", "pass_at_k", "run_candidates"]

CANDIDATE_MEMORY_BYTES = 4 << 30
"""Memory limit of a candidate program; other programs have that of `ResourceLimits`."""


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
        (problem, number, (candidate, tests))
        for problem, (candidates, tests) in enumerate(zip(predictions, references, strict=True))
        for number, candidate in enumerate(candidates)
    ]
    pairs = list(dict.fromkeys(pair for _, _, pair in programs))  # run equal programs once
    endings = dict(zip(pairs, run_candidates(pairs, timeout_s=timeout), strict=True))
    results: dict[int, list[tuple[int, dict[str, Any]]]] = {}
    for problem, number, pair in programs:
        ending = endings[pair]
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


_STARTUP_S = 5.0
"""Time for the interpreter to start. The sandbox kills the program after this, the candidate's time limit and what is added to it."""

_MAX_ADDED_S, _MAX_ADDED_ALONE_S = 10.0, 60.0
"""The most that waiting for a processor adds to the time limit of a candidate, at first and when it runs again alone."""

_BUSY = "busy: "
"""The start of a verdict without a result: the candidate has computed for less than its time limit."""

_KILLED = f"{_BUSY}the sandbox killed it before its own timer"


def run_candidates(
    candidates: Sequence[str | tuple[str, str]],
    *,
    timeout_s: float = 3.0,
    memory_bytes: int = CANDIDATE_MEMORY_BYTES,
) -> list[str]:
    """Run candidates, each with its tests, and return `passed`, `timed out` or `failed: …` with the exception for each.

    A candidate without tests passes if it ends without an exception. The time limit does not count waiting for a processor. A
    candidate that waits too long on a busy machine runs again, alone.

    Raises:
        AssayError: The programs could not be executed, or the machine is too busy to decide whether they keep the time limit.
    """
    pairs = [(one, "") if isinstance(one, str) else one for one in candidates]
    verdicts = _run_pairs(pairs, timeout_s, memory_bytes, _MAX_ADDED_S)
    for at, verdict in enumerate(verdicts):
        if verdict.startswith(_BUSY):
            (again,) = _run_pairs([pairs[at]], timeout_s, memory_bytes, _MAX_ADDED_ALONE_S)
            if again.startswith(_BUSY) and again != _KILLED:
                raise SandboxError(
                    f"the machine is too busy to run a program within {timeout_s:g} s: it {again.removeprefix(_BUSY)}",
                    hint="run `assay score` when the machine is less busy",
                )
            verdicts[at] = "timed out" if again == _KILLED else again
    return verdicts


def _run_pairs(
    pairs: Sequence[tuple[str, str]], timeout_s: float, memory_bytes: int, max_added_s: float
) -> list[str]:
    time_s = timeout_s + max_added_s + _STARTUP_S
    bounds = ResourceLimits(time_s=time_s, memory_bytes=memory_bytes, file_bytes=16 << 20)
    words = [
        secrets.token_hex(16) for _ in pairs
    ]  # secret, so that a candidate cannot pass by printing "passed"
    programs = [
        Program(
            source=_read_runner(),
            stdin=_build_job(word, candidate, tests, timeout_s, max_added_s),
            limits=bounds,
        )
        for word, (candidate, tests) in zip(words, pairs, strict=True)
    ]
    return [_parse_result(word, done) for word, done in zip(words, execute_programs(programs), strict=True)]


@cache
def _read_runner() -> str:
    return Path(__file__).with_name("candidate_runner.py").read_text("utf-8")


def _build_job(word: str, candidate: str, tests: str, timeout_s: float, max_added_s: float) -> bytes:
    """Return the standard input of the runner."""
    limits = {"seconds": timeout_s, "max_added_seconds": max_added_s}
    job = {"word": word, "candidate": candidate, "tests": tests, **limits}
    return json.dumps({**job, **choose_protocol(tests).to_json()}).encode()


def _parse_result(word: str, done: Execution) -> str:
    first, _, ending = done.stdout.partition(" ")
    if first == word:
        return ending
    return _KILLED if done.exit_reason == "time" else "failed: no result"
