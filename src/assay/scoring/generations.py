"""Score generated texts with the metrics of a `generate_until` task.

Follows lm_eval where its behaviour affects scores. Comments mark these places.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.records.agents import AGENT_METRICS, AgentAnswer
from assay.core.records.tools import ToolAnswer

__all__ = ["MetricCall", "accepts_answer_and_target", "accepts_keywords", "judge_text"]


@dataclass(frozen=True, slots=True)
class MetricCall:
    """A metric with its arguments."""

    name: str
    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    keywords: bool
    """True: call with `references` and `predictions`. False: call with one pair."""

    separate: bool = False
    """Whether to call with the answer and the target: `function(answer, target)`."""

    def __call__(self, references: Sequence[Any], predictions: Sequence[Any]) -> Any:
        if self.keywords:
            return self.function(references=references, predictions=predictions, **self.arguments)
        if self.separate:
            return self.function(predictions[0], references[0], **self.arguments)
        return self.function([references[0], predictions[0]])


def accepts_keywords(function: Callable[..., Any], arguments: Mapping[str, Any]) -> bool:
    """Return whether a metric accepts `references`, `predictions` and these arguments.

    Reads the signature, so that a TypeError inside a metric is not hidden.

    >>> accepts_keywords(lambda references, predictions: 1.0, {}), accepts_keywords(lambda pair: pair, {})
    (True, False)
    """
    try:
        signature = inspect.signature(function)
    except ValueError:  # implemented in C, without a signature
        return True
    try:
        signature.bind(references=(), predictions=(), **arguments)
    except TypeError:
        return False
    return True


def accepts_answer_and_target(function: Callable[..., Any]) -> bool:
    """Return whether a metric has two positional parameters, the answer and the target.

    >>> accepts_answer_and_target(lambda answer, target: 1.0), accepts_answer_and_target(lambda pair: 1.0)
    (True, False)
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in kinds and one.default is one.empty for one in parameters) == 2


def judge_text(
    calls: Sequence[MetricCall],
    answers: Sequence[Any],
    target: Any,
    choices: Sequence[Any] | None,
    *,
    several: bool,
    inherit: Callable[[str, str], None],
) -> dict[str, Any]:
    """Return the result of every metric.

    `several` means that any of the targets is correct. `inherit(key, metric)` is called for each key of a mapping that
    a metric returns.
    """
    result = answers[0]
    if choices is None and not several and type(target) is type(result):
        gold = target  # the most frequent case
    else:
        gold = _resolve_gold(calls, target, choices, result, several)
    found: dict[str, Any] = {}
    score: Any
    for call in calls:
        if call.name in AGENT_METRICS:
            score = call([gold], [result])
        elif several and call.name != "anls":
            if not isinstance(gold, list):
                gold = [gold]  # a document with one target in a task with several
            if call.name == "exact_match":
                result = [result] * len(gold)  # as in lm_eval, also for the metrics that follow
                score = 1.0 if _unwrap_score(call(gold, result), call.name) > 0.0 else 0.0
            else:
                scores = [_unwrap_score(call([option], [result]), call.name) for option in gold]
                score = 1.0 if any(scores) else 0.0
        else:
            score = call(gold if several and isinstance(gold, list) else [gold], [result])
        if isinstance(score, dict):
            for key, value in score.items():
                found[key] = value
                inherit(key, call.name)
        else:
            found[call.name] = score
    return found


def _resolve_gold(
    calls: Sequence[MetricCall], target: Any, choices: Sequence[Any] | None, result: Any, several: bool
) -> Any:
    if choices is not None:
        return choices[target]
    if several:
        return list(target)
    if type(target) is type(result) or isinstance(result, (list, ToolAnswer)):
        return target
    if isinstance(result, AgentAnswer):
        return target if isinstance(target, (str, list)) else str(target)
    if any(call.name == "bypass" for call in calls):
        return target
    return type(result)(target)  # a target 7 is compared as "7"


def _unwrap_score(score: Any, name: str) -> Any:
    return score[name] if isinstance(score, dict) else score
