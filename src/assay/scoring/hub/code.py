"""`code_eval`: the share of programs, written by a model, that pass their tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import comb
from typing import Any

from assay.scoring.hub.candidates import run_candidate

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

    Raises:
        ValueError: Nobody allowed the execution of code written by a model.
    """
    if os.environ.get("HF_ALLOW_CODE_EVAL", "0") != "1":
        raise ValueError(
            "`code_eval` executes programs written by a model on this machine. They run in processes of their own "
            "with limits on time and memory, but could still read files and use the network. "
            "If that is acceptable, set the environment variable HF_ALLOW_CODE_EVAL=1"
        )
    programs = [
        (problem, number, f"{candidate}\n{tests}")
        for problem, (candidates, tests) in enumerate(zip(predictions, references, strict=True))
        for number, candidate in enumerate(candidates)
    ]
    with ThreadPoolExecutor(max_workers=max(1, num_workers)) as pool:
        texts = list(dict.fromkeys(text for _, _, text in programs))  # the same program is run once
        ran = pool.map(lambda text: run_candidate(text, timeout_s=timeout), texts)
        endings = dict(zip(texts, ran, strict=True))
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
