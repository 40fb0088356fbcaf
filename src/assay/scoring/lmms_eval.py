"""Score answers as lmms_eval does: remove reasoning, strip answers, and call metrics with all answers of a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.core.errors import InvalidOption, TaskError
from assay.core.options.parsing import parse_reasoning_tags
from assay.core.records.specs import TaskSpec
from assay.scoring.generations import MetricCall

__all__ = ["judge_texts", "resolve_reasoning_tags", "strip_answers"]

Tags = tuple[tuple[str, str], ...]


def resolve_reasoning_tags(spec: TaskSpec, run: Any = None) -> Tags:
    """Return the reasoning tags to remove: those of the task, of the run, or the default of the dialect.

    >>> resolve_reasoning_tags(TaskSpec(name="a", reasoning_tags="none"), [["<a>", "</a>"]])
    ()
    """
    given = spec.reasoning_tags if spec.reasoning_tags is not None else run
    if given is None:
        return spec.dialect.default_reasoning_tags
    try:
        return parse_reasoning_tags(given)
    except InvalidOption as error:
        raise TaskError(error.what, where=spec.place("reasoning_tags"), hint=error.hint) from None


def strip_answers(answers: Sequence[Any]) -> list[Any]:
    """Strip generated answers for `process_results`. The k answers of `take_first_k` become the list.

    >>> strip_answers([[" a", "b "]]), strip_answers([" a ", None])
    (['a', 'b'], ['a', ''])
    """
    several = answers[0] if answers and isinstance(answers[0], list) else answers
    return ["" if one is None else one.strip() for one in several]


def judge_texts(
    calls: Sequence[MetricCall],
    answers: Sequence[Any],
    target: Any,
    choices: Sequence[Any] | None,
    *,
    several: bool,
) -> dict[str, Any]:
    """Return the result of every metric. `several` means that any of the targets is correct."""
    gold = choices[target] if choices is not None else list(target) if several else target
    references = gold if isinstance(gold, list) else [gold]
    found: dict[str, Any] = {}
    for call in calls:
        if several and call.name != "anls":
            scores = [_unwrap_score(_call_metric(call, option, answers), call.name) for option in references]
            found[call.name] = 1.0 if any(scores) else 0.0
        else:
            found[call.name] = _unwrap_score(_call_metric(call, references, answers), call.name)
    return found


def _call_metric(call: MetricCall, references: Any, answers: Sequence[Any]) -> Any:
    """Call a metric; one without `references` and `predictions` gets the pair of what lmms_eval passes."""
    if call.keywords:
        return call(references if isinstance(references, list) else [references], answers)
    return call.function([references, list(answers)])


def _unwrap_score(score: Any, name: str) -> Any:
    return score[name] if isinstance(score, dict) else score
