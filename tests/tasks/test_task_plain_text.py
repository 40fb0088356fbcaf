"""The quick way to the requests of a plain task gives what the long way gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assay.core.errors import TaskError
from assay.core.records.requests import Request
from assay.tasks.task import Task

MakeTask = Callable[..., Task]

TRAIN = [{"q": f"T{number}", "a": f"R{number}", "options": ["x", "y"]} for number in range(8)]
ROWS = [{"q": f"Q{number}", "options": ["x", "y", "ü"], "a": number % 3} for number in range(4)]
CHOICE: dict[str, Any] = {"output_type": "multiple_choice", "doc_to_choice": "options", "doc_to_target": "a"}
SHOTS: dict[str, Any] = {"splits": {"train": TRAIN}, "fewshot_split": "train", "num_fewshot": 2}


def quick(task: Task) -> list[tuple[Request, ...]]:
    make = task.compile_plain_requests(task.fewshot.start_sampling())
    assert make is not None
    return [make(document) for document in task.documents()]


def long(task: Task) -> list[tuple[Request, ...]]:
    shots = task.fewshot.start_sampling()
    return [
        tuple(task._requests(document, document.fields, shots(document.fields)))
        for document in task.documents()
    ]


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"doc_to_text": "q"},
        {"repeats": 3},
        {"description": "Answer these.\n\n"},
        SHOTS,
        {**SHOTS, "description": "{{q}}: ", "fewshot_delimiter": "#", "repeats": 2},
        CHOICE,
        {**CHOICE, "target_delimiter": ""},
        {**CHOICE, **SHOTS, "description": "Choose."},
    ],
    ids=[
        "a template",
        "a column",
        "repeats",
        "a description",
        "examples",
        "a description of the document, examples and repeats",
        "choices",
        "choices without a space",
        "choices, a description and examples",
    ],
)
@pytest.mark.parametrize("rendering", [{}, {"system_instruction": "Be brief."}], ids=str)
def test_both_ways_ask_the_same(
    make_task: MakeTask, content: dict[str, Any], rendering: dict[str, Any]
) -> None:
    first, second = (make_task(ROWS, rendering=rendering, **content) for _ in range(2))
    asked, expected = quick(first), long(second)
    assert asked == expected
    assert [[one.id for one in requests] for requests in asked] == [
        [one.id for one in requests] for requests in expected
    ]


@pytest.mark.parametrize(
    ("content", "rendering"),
    [
        ({}, {"chat": True}),
        ({"gen_prefix": "So:"}, {}),
        ({"doc_to_text": lambda fields: fields["q"]}, {}),
        ({"output_type": "loglikelihood"}, {}),
        ({**CHOICE, "metric_list": [{"metric": "acc_mutual_info"}]}, {}),
        ({**CHOICE, "doc_to_text": "{{a}}", "doc_to_target": "{{a}}"}, {}),
    ],
    ids=[
        "chat",
        "answer begun",
        "own code",
        "log-probability",
        "mutual information",
        "choices that are inputs",
    ],
)
def test_whatever_is_more_than_plain_takes_the_long_way(
    make_task: MakeTask, content: dict[str, Any], rendering: dict[str, Any]
) -> None:
    task = make_task(ROWS, rendering=rendering, **content)
    assert task.compile_plain_requests(task.fewshot.start_sampling()) is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"doc_to_text": "a"}, "`doc_to_text` must return text here, not 0"),
        ({**CHOICE, "doc_to_choice": "none"}, "the document has no choices"),
    ],
    ids=["a number for a question", "no choices"],
)
def test_what_cannot_be_asked_is_said_as_on_the_long_way(
    make_task: MakeTask, content: dict[str, Any], said: str
) -> None:
    rows = [{**row, "none": []} for row in ROWS]
    for way in (quick, long):
        with pytest.raises(TaskError, match=said):
            way(make_task(rows, **content))
