"""`code_eval`: the share of programs, written by a model, that pass their tests."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Any

from assay.scoring.hub.candidates import run_candidates

__all__ = ["code_eval", "pass_at_k"]


def code_eval(
    *,
    predictions: Sequence[Sequence[str]],
    references: Sequence[str],
    k: Sequence[int] = (1, 10, 100),
    num_workers: int = 4,
    timeout: float = 3.0,
) -> tuple[dict[str, float], dict[int, list[tuple[int, dict[str, Any]]]]]:
    """pass@k over the problems, and what became of each candidate, by problem.

    `num_workers` is taken and not needed: the sandbox knows how many the machine bears.

    Raises:
        AssayError: Nobody allowed the execution of code written by a model, or there is no sandbox for it.
    """
    programs = [
        (problem, number, f"{candidate}\n{tests}")
        for problem, (candidates, tests) in enumerate(zip(predictions, references, strict=True))
        for number, candidate in enumerate(candidates)
    ]
    texts = list(dict.fromkeys(text for _, _, text in programs))  # the same program is run once
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
    """How likely one of `k` candidates drawn from `total` is among the `right` ones.

    >>> round(pass_at_k(10, 3, 1), 6), pass_at_k(4, 2, 3)
    (0.3, 1.0)
    """
    return 1.0 if total - right < k else 1.0 - comb(total - right, k) / comb(total, k)
