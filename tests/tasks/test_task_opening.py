"""Opening tasks, and media among the words of a prompt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.core.errors import TaskError
from assay.core.records.messages import Image, Message, Prompt, Text
from assay.core.records.specs import TaskSpec
from assay.tasks import task as task_module
from assay.tasks.files.task_loader import load_task
from assay.tasks.task import Task, insert_media, open_task

FIRST, SECOND = (Image(digest=name, load=lambda: None) for name in ("1", "2"))


@pytest.mark.parametrize(
    ("text", "media", "parts"),
    [
        ("What?", [], (Text("What?"),)),
        ("What?", [FIRST], (FIRST, Text("What?"))),
        (
            "See <image> and <image>.",
            [FIRST, SECOND],
            (Text("See "), FIRST, Text(" and "), SECOND, Text(".")),
        ),
        ("<image>", [FIRST], (FIRST,)),
        ("<image>: <image>", [FIRST], (FIRST, Text(": "), Text("<image>"))),
        ("<image>!", [FIRST, SECOND], (FIRST, Text("!"), SECOND)),
        ("<image> of nothing", [], (Text("<image> of nothing"),)),
    ],
)
def test_media_stand_where_the_last_message_says(
    text: str, media: list[Image], parts: tuple[object, ...]
) -> None:
    system = Message("system", (Text("<image> is a picture"),))
    prompt = insert_media(Prompt((system, Message("user", (Text(text),))), chat=True), media)
    assert prompt == Prompt((system, Message("user", parts)), chat=True)  # type: ignore[arg-type]


def test_an_ordinary_task_is_opened_here(make_spec: Callable[..., TaskSpec]) -> None:
    assert type(open_task(make_spec())) is Task


def test_a_class_needs_a_layer_that_knows_it(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("task.py", "class Mine: ...\n")
    spec = load_task(write("t.yaml", "task: t\nclass: !function task.Mine\nrecipe: anything\ntag: x\n"))
    assert (spec.name, spec.tags, spec.config["recipe"]) == ("t", ("x",), "anything")
    monkeypatch.setattr(task_module, "compatibility_layers", lambda: ())
    with pytest.raises(TaskError, match="not a task class"):
        open_task(spec)
