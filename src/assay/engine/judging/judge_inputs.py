"""Build what a judge reads about a document: question, response, reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.core.records.agents import AgentAnswer, format_transcript
from assay.core.records.documents import Document
from assay.core.records.messages import Media
from assay.core.records.requests import Request
from assay.scoring.judges.panel import JudgePanel
from assay.scoring.judges.prompts import to_text
from assay.scoring.judges.records import JudgeInput
from assay.tasks.prompts.field_compilers import copy_fields
from assay.tasks.task import Task

__all__ = ["build_judge_input"]


def build_judge_input(
    task: Task,
    panel: JudgePanel,
    document: Document,
    requests: Sequence[Request],
    response: Any,
    target: Any,
    media: Sequence[Media] = (),
) -> JudgeInput:
    """Build the input of a judge panel; `media` are those the model got.

    Raises:
        TaskError: A text for the judge cannot be rendered.
    """
    spec = panel.spec
    fields = document.fields
    prompt = requests[0].prompt
    if spec.question is not None:
        question = spec.question(fields)
    else:
        asked = task.question(copy_fields(fields)) if task.spec.doc_to_messages is None else None
        question = asked if isinstance(asked, str) else prompt.text
    if spec.reference is not None:
        reference = spec.reference(fields)
    else:
        reference = _reference(task, fields, target)
    return JudgeInput(
        question=question,
        response=_join_turns(response),
        reference=reference,
        fields=fields,
        media=tuple(media) if spec.media else (),
    )


def _join_turns(response: Any) -> str:
    """Return the response as text; the answers of a dialogue are joined, an agent is judged by its whole conversation."""
    if isinstance(response, AgentAnswer):
        return response.transcript_text
    return "\n\n".join(map(str, response)) if isinstance(response, (list, tuple)) else str(response)


def _reference(task: Task, fields: Any, target: Any) -> str:
    """Return the task's target; for a choice, its text; for an agent, the turns of a perfect one as a conversation."""
    if target is None:
        target = task.target(copy_fields(fields))
    if task.spec.agent is not None and (turns := _format_turns(target)):
        return turns
    choices = task.choices(copy_fields(fields)) if task.spec.doc_to_choice is not None else None
    if choices is not None and isinstance(target, int) and 0 <= target < len(choices):
        target = choices[target]
    return "" if target is None else to_text(target)


def _format_turns(target: Any) -> str:
    """Return the turns of a perfect agent as a conversation; empty for other targets, such as alternative answers."""
    if not isinstance(target, (list, tuple)) or not any(isinstance(turn, (list, tuple)) for turn in target):
        return ""
    turns = [
        {"role": "assistant", "text": turn} if isinstance(turn, str) else {"role": "assistant", "calls": turn}
        for turn in target
    ]
    try:
        return format_transcript(turns)
    except (KeyError, TypeError, AttributeError):
        return ""
