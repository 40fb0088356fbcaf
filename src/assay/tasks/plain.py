"""Requests of tasks that are plain text: the same as `Task` makes, by one function put together once for all documents.

Most tasks ask in plain text and run no code of their own. What their YAML says is the same for every document, so it is
looked up once here and not again for each of a million documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from assay.core.documents import Document
from assay.core.errors import BadTask
from assay.core.messages import Prompt
from assay.core.requests import Generate, Likelihood, Request
from assay.tasks.fewshot import Turn

if TYPE_CHECKING:
    from assay.tasks.task import Task

__all__ = ["plain_requests"]

Fields = Mapping[str, Any]
Shots = Callable[[Fields], list[Turn]]
Make = Callable[[Document], tuple[Request, ...]]


def plain_requests(task: Task, shots: Shots) -> Make | None:
    """What is asked about a document, for a task `Task` itself would ask in plain text; None for one that is more."""
    if not task.is_plain or task.media_columns or task.is_dialogue:
        return None
    match task.spec.output_type:
        case "generate_until":
            return _generations(task, _contexts(task, shots))
        case "multiple_choice" if not task.wants_mutual_information:
            return _choices(task, _contexts(task, shots))
        case _:
            return None


def _contexts(task: Task, shots: Shots) -> Callable[[Fields], str]:
    """Description, examples and question as one text."""
    if task.spec.description or task.rendering.system_instruction:
        return lambda fields: task.context_text(fields, shots(fields))
    question, place = task.make_text, task.spec.place("doc_to_text")
    alone = task.num_fewshot == 0

    def context(fields: Fields) -> str:
        examples = "" if alone else "".join([turn.content + turn.delimiter for turn in shots(fields)])
        text = question(fields)
        if not isinstance(text, str):
            raise BadTask(f"`doc_to_text` must give a text here, not {text!r}", where=place)
        return examples + text

    return context


def _generations(task: Task, context: Callable[[Fields], str]) -> Make:
    name, settings, repeats, of_text = task.name, task.request_settings, task.spec.repeats, Prompt.of_text

    def once(document: Document) -> tuple[Request, ...]:
        prompt = of_text(context(document.fields))
        return (Generate(task=name, document=document.index, prompt=prompt, settings=settings),)

    def repeated(document: Document) -> tuple[Request, ...]:
        prompt, index = of_text(context(document.fields)), document.index
        return tuple(
            [
                Generate(task=name, document=index, repeat=repeat, prompt=prompt, settings=settings)
                for repeat in range(repeats)
            ]
        )

    return once if repeats == 1 else repeated


def _choices(task: Task, context: Callable[[Fields], str]) -> Make:
    name, delimiter, of_text = task.name, task.spec.target_delimiter, Prompt.of_text
    choices_of, place = task.choices, task.spec.place("doc_to_choice")

    def requests(document: Document) -> tuple[Request, ...]:
        fields, index = document.fields, document.index
        choices = choices_of(fields)
        if not choices:
            raise BadTask("the document has no choices", where=place)
        prompt = of_text(context(fields))
        return tuple(
            [
                Likelihood(
                    task=name, document=index, index=at, prompt=prompt, continuation=f"{delimiter}{choice}"
                )
                for at, choice in enumerate(choices)
            ]
        )

    return requests
