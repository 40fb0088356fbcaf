"""Give the right answers to models that ask for them (`oracle`), and to no others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay.core.ports import Model, SupportsTargets
from assay.core.records.documents import Document
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import LogProbability
from assay.core.records.specs import TaskSpec
from assay.engine.open_document import OpenDocument
from assay.engine.planning.records import PlannedTask
from assay.tasks.task import Task
from assay.user_code.timeouts import current_timer

__all__ = ["find_right_answers", "give_targets", "has_no_target"]

_RIGHT = LogProbability(0.0, greedy=True)
_WRONG = LogProbability(-1000.0, greedy=False)
_UNCONDITIONAL = LogProbability(-500.0, greedy=False)
"""A choice without its question, for mutual information: all are equally likely."""


def give_targets(model: Model, planned: PlannedTask, documents: Iterable[OpenDocument]) -> None:
    """Give a model the right answers for documents, if it supports that."""
    if not isinstance(model, SupportsTargets):
        return
    for opened in documents:
        try:
            with current_timer():
                answers = find_right_answers(planned.task, opened.document, opened.requests, opened.target)
        except Exception:  # noqa: BLE001 - user code: choices may come from a helper
            answers = []
        model.tell(planned.task.name, opened.document.index, answers)


def find_right_answers(
    task: Task, document: Document, requests: Sequence[Request], target: Any
) -> list[str | LogProbability]:
    """Return the right answer to each request of a document; empty if the target does not determine it."""
    if task.spec.agent is not None:  # the target lists the turns of a perfect agent
        turns = target if isinstance(target, (list, tuple)) else [target]
        return [turn if isinstance(turn, str) else json.dumps(turn, ensure_ascii=False) for turn in turns]
    if not requests:
        return []
    if isinstance(requests[0], Generate):
        text = _find_right_text(task, document, target)
        return [] if text is None else [str(text)]
    if not task.spec.output_type.compares_choices:
        return [_RIGHT] * len(requests)  # the only text is the right one
    fields = task.copy_for_code(document.fields)
    choices = list(task.choices(fields) or ())
    gold = _find_choice_indices(task.question(fields) if task.shape[0] else target, choices)
    if not gold:
        return []
    chosen: list[str | LogProbability] = [
        _RIGHT if place in gold else _WRONG for place in range(len(choices))
    ]
    return [*chosen, *[_UNCONDITIONAL] * (len(requests) - len(chosen))]


def has_no_target(spec: TaskSpec) -> bool:
    """Whether a task has no target."""
    maker = spec.doc_to_target
    return maker is None or (isinstance(maker, str) and not maker.strip())


def _find_right_text(task: Task, document: Document, target: Any) -> str | None:
    if has_no_target(task.spec):
        return None
    if task.spec.tools is not None and isinstance(target, (list, Mapping)):
        return json.dumps(target, ensure_ascii=False, default=str)  # the calls as JSON
    if isinstance(target, (list, tuple)):
        target = next(iter(target), None)
    if target is None:
        return None
    if isinstance(target, int) and task.spec.process_results is None:
        choices = task.choices(task.copy_for_code(document.fields))
        if choices is not None:
            return str(choices[target]) if -len(choices) <= target < len(choices) else None
    return str(target)


def _find_choice_indices(target: Any, choices: Sequence[str]) -> set[int]:
    """Return the indices of the right choices, as scoring reads a target."""
    wanted = target if isinstance(target, (list, tuple)) else [target]
    found = set()
    for one in wanted:
        if isinstance(one, str):
            found |= {choices.index(one)} if one in choices else set()
        elif isinstance(one, int) and -len(choices) <= one < len(choices):
            found.add(one % len(choices))
    return found
