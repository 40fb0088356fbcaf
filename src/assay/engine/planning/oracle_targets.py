"""What a model that knew everything would answer: told to models that ask to be told (`oracle`), and to no others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from assay.core.documents import Document
from assay.core.ports import Model, SupportsTargets
from assay.core.requests import Generate, Request
from assay.core.responses import LogProbability
from assay.core.specs import TaskSpec
from assay.tasks.task import Task
from assay.user_code.timeouts import current_timer

if TYPE_CHECKING:
    from assay.engine.open_document import OpenDocument
    from assay.engine.planning.plan import PlannedTask

__all__ = ["right_answers", "says_nothing", "tell_targets"]

_SURE = LogProbability(0.0, greedy=True)
_HARDLY = LogProbability(-1000.0, greedy=False)
_BEFORE = LogProbability(-500.0, greedy=False)
"""A choice without its question, for mutual information: as likely as any other."""


def tell_targets(model: Model, planned: PlannedTask, documents: Iterable[OpenDocument]) -> None:
    """Tell a model what is right for some documents, if it is one that asks to be told."""
    if not isinstance(model, SupportsTargets):
        return
    for opened in documents:
        try:
            with current_timer():
                answers = right_answers(planned.task, opened.document, opened.requests, opened.target)
        except Exception:  # noqa: BLE001 - helper border: choices may be made by a task's own code
            answers = []
        model.tell(planned.task.name, opened.document.index, answers)


def right_answers(
    task: Task, document: Document, requests: Sequence[Request], target: Any
) -> list[str | LogProbability]:
    """The right answer to each request of a document, by its index; empty where the target does not say."""
    if not requests:
        return []
    if isinstance(requests[0], Generate):
        text = _text(task, document, target)
        return [] if text is None else [str(text)]
    if task.spec.output_type != "multiple_choice":
        return [_SURE] * len(requests)  # one text, and it is the one
    fields = task.copy_for_code(document.fields)
    choices = list(task.choices(fields) or ())
    gold = _places(task.question(fields) if task.shape[0] else target, choices)
    if not gold:
        return []
    chosen: list[str | LogProbability] = [
        _SURE if place in gold else _HARDLY for place in range(len(choices))
    ]
    return [*chosen, *[_BEFORE] * (len(requests) - len(chosen))]


def says_nothing(spec: TaskSpec) -> bool:
    """Whether a task has no target: its scoring looks elsewhere."""
    maker = spec.doc_to_target
    return maker is None or (isinstance(maker, str) and not maker.strip())


def _text(task: Task, document: Document, target: Any) -> str | None:
    if says_nothing(task.spec):
        return None
    if isinstance(target, (list, tuple)):
        target = next(iter(target), None)
    if target is None:
        return None
    if isinstance(target, int) and task.spec.process_results is None:
        choices = task.choices(task.copy_for_code(document.fields))
        if choices is not None:
            return str(choices[target]) if -len(choices) <= target < len(choices) else None
    return str(target)


def _places(target: Any, choices: Sequence[str]) -> set[int]:
    """The places of the right choices, as scoring reads a target."""
    wanted = target if isinstance(target, (list, tuple)) else [target]
    found = set()
    for one in wanted:
        if isinstance(one, str):
            found |= {choices.index(one)} if one in choices else set()
        elif isinstance(one, int) and -len(choices) <= one < len(choices):
            found.add(one % len(choices))
    return found
