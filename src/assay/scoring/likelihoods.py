"""Score log-probabilities: the metrics of `loglikelihood`, `loglikelihood_rolling` and `multiple_choice` tasks.

An answer is `(log-probability, is_greedy)`, or one number for rolling tasks. Only the metrics of the task are computed.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from assay.scoring.metrics import Metric

__all__ = [
    "CHOICE_METRICS",
    "argmax",
    "is_pair_of_choices",
    "judge_choices",
    "judge_likelihood",
    "judge_rolling",
]

CHOICE_METRICS = frozenset(
    "acc acc_norm acc_bytes acc_mutual_info exact_match f1 mcc brier_score likelihood bypass".split()
)
"""The built-in metrics that a multiple-choice task can report."""

_PAIR_METRICS = ("f1", "mcc")

_SPACES = re.compile(r"\s+")
_NOT_A_CHOICE = -100
"""The gold index of a target that is not one of the choices. It is never correct."""

_log = logging.getLogger(__name__)


def judge_likelihood(wanted: Collection[str], answers: Sequence[Any]) -> dict[str, Any]:
    """Score one continuation by its log-probability and whether it is the greedy continuation.

    >>> judge_likelihood(["perplexity", "acc"], [(-1.5, True)])
    {'perplexity': -1.5, 'acc': 1}
    """
    log_probability, greedy = answers[0]
    found = {"perplexity": log_probability, "acc": int(greedy)}
    return {name: value for name, value in found.items() if name in wanted}


def judge_rolling(wanted: Collection[str], answers: Sequence[Any], text: str) -> dict[str, Any]:
    """Score a whole text by its log-probability and its number of words or bytes.

    >>> judge_rolling(["word_perplexity"], [-7.0], "a b c")
    {'word_perplexity': (-7.0, 3)}
    """
    (log_probability,) = answers
    found: dict[str, Any] = {}
    if "word_perplexity" in wanted:
        found["word_perplexity"] = (log_probability, len(_SPACES.split(text)))
    size = len(text.encode("utf-8"))
    for name in ("byte_perplexity", "bits_per_byte"):
        if name in wanted:
            found[name] = (log_probability, size)
    return found


def judge_choices(
    wanted: Collection[str],
    answers: Sequence[Any],
    target: Any,
    choices: Sequence[str],
    *,
    several: bool = False,
    pairs: Sequence[str] = (),
) -> dict[str, Any]:
    """Score one continuation per choice. The most likely one is the answer. `several` means the target is a list.

    The value of `f1`, `mcc` and the metrics in `pairs` is the pair of target and answer, for their aggregation.

    >>> judge_choices(["acc", "acc_norm"], [(-4.0, False), (-5.0, False)], 1, ["no", "perhaps"])
    {'acc': 0.0, 'acc_norm': 1.0}
    """
    count = len(choices)
    values = [answer[0] for answer in answers]
    unconditional: list[float] | None = None
    if len(values) == 2 * count and "acc_mutual_info" in wanted:
        values, unconditional = values[:count], values[count:]
    if len(values) != count:
        raise ValueError(f"{len(values)} log-probabilities for {count} choices")
    gold = _gold_index(target, choices)
    greedy = _match_greedy(gold, [answer[1] for answer in answers], several)

    found: dict[str, Any] = {}
    likeliest = argmax(values)
    right = (lambda index: index in gold) if several else (lambda index: index == gold)
    if "acc" in wanted:
        found["acc"] = 1.0 if right(likeliest) else 0.0
    for name in (*_PAIR_METRICS, *pairs):
        if name in wanted:
            found[name] = (gold, likeliest)
    if "acc_norm" in wanted:
        found["acc_norm"] = _score_per_length(values, [len(choice) for choice in choices], right)
    if "acc_bytes" in wanted:
        found["acc_bytes"] = _score_per_length(
            values, [len(choice.encode("utf-8")) for choice in choices], right
        )
    if "exact_match" in wanted:
        found["exact_match"] = greedy
    if "brier_score" in wanted:
        found["brier_score"] = (gold, _softmax(values))
    if "likelihood" in wanted:
        found["likelihood"] = (gold, tuple(values))
    if "acc_mutual_info" in wanted:
        found["acc_mutual_info"] = _mutual_information(values, unconditional, gold)
    return found


def is_pair_of_choices(metric: Metric) -> bool:
    """Whether a metric of task code or a plugin is registered for multiple choice: its aggregation gets pairs of target
    and answer, as in lm-eval's guide to new metrics."""
    return "multiple_choice" in metric.output_types and metric.name not in CHOICE_METRICS


def argmax(values: Sequence[float]) -> int:
    """Return the index of the largest value, the first of equal values. NaN counts as largest.

    >>> argmax([-3.0, -1.0, -1.0])
    1
    """
    best, top = 0, values[0]
    for index, value in enumerate(values):
        if value != value:
            return index
        if value > top:
            best, top = index, value
    return best


def _gold_index(target: Any, choices: Sequence[str]) -> Any:
    """Return the target as an index or a list of indices. A target that is not one of the choices becomes -100."""
    count = len(choices)
    gold = target
    if isinstance(target, list):
        gold = [index if index < count else _NOT_A_CHOICE for index in target]
    elif isinstance(target, int):
        gold = target if target < count else _NOT_A_CHOICE
    elif isinstance(target, str):
        gold = choices.index(target) if target in choices else _NOT_A_CHOICE
    if gold == _NOT_A_CHOICE or (isinstance(gold, list) and _NOT_A_CHOICE in gold):
        _log.warning("the target %r is not one of the %d choices and is never correct", target, count)
    return gold


def _match_greedy(gold: Any, greedy: list[bool], several: bool) -> int:
    """Return 1 if a correct choice is the greedy continuation, otherwise 0."""
    try:
        if several:
            return int(any(greedy[index] for index in gold if index != _NOT_A_CHOICE))
        return int(greedy[gold]) if gold != _NOT_A_CHOICE else 0
    except (TypeError, IndexError):
        expected = "a list of indices" if several else "an index"
        raise ValueError(f"the target {gold!r} is not {expected} of the {len(greedy)} choices") from None


def _score_per_length(values: Sequence[float], lengths: Sequence[int], right: Callable[[int], bool]) -> float:
    shares = [
        value / length if length else _divide_by_zero(value)
        for value, length in zip(values, lengths, strict=True)
    ]
    return 1.0 if right(argmax(shares)) else 0.0


def _divide_by_zero(value: float) -> float:
    """Divide by zero as IEEE arithmetic does, for a choice without characters."""
    return math.nan if value == 0 or value != value else math.copysign(math.inf, value)


def _softmax(values: Sequence[float]) -> list[float]:
    import numpy as np

    powers = np.exp(np.array(values) - max(values))
    return [float(share) for share in powers / powers.sum()]


def _mutual_information(values: Sequence[float], unconditional: Sequence[float] | None, gold: Any) -> float:
    """Return 1.0 if the correct choice gains most from the question compared with its unconditional probability."""
    if unconditional is None:
        raise ValueError("`acc_mutual_info` needs the log-probability of each choice without the question")
    gains = [value - base for value, base in zip(values, unconditional, strict=True)]
    index = argmax(gains)
    if isinstance(gold, list):
        if len(gold) != 1:
            raise ValueError("`acc_mutual_info` does not support several targets")
        return 1.0 if index == gold[0] else 0.0
    return 1.0 if index == gold else 0.0
