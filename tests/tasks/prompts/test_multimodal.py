from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pictures

from assay.core.errors import TaskError
from assay.core.records.messages import Image, Prompt, Text
from assay.core.records.tools import ToolCall, ToolResult
from assay.tasks.prompts.multimodal import select_model_keywords
from assay.tasks.task import Task

MakeTask = Callable[..., Task]
KEYWORDS = {"default": {"post": "."}, "qwen": {"post": "!"}}


def first_prompt(task: Task) -> Prompt:
    return next(iter(task.render()))[1][0].prompt


def picture(fields: Any) -> list[Pictures.Image]:
    return [Pictures.new("RGB", (2, 2))]


def messages(fields: Any, lmms_eval_specific_kwargs: Any = None) -> list[dict[str, Any]]:
    post = (lmms_eval_specific_kwargs or {}).get("post", "")
    content = [{"type": "image", "url": picture(fields)[0]}, {"type": "text", "text": fields["q"] + post}]
    return [
        {"role": "system", "content": [{"type": "text", "text": "Look."}]},
        {"role": "user", "content": content},
    ]


@pytest.mark.parametrize(
    ("given", "model", "expected"),
    [
        (None, "qwen", None),
        (KEYWORDS, "qwen", {"post": "!"}),
        (KEYWORDS, "llava", {"default": {"post": "."}, "qwen": {"post": "!"}, "post": "."}),
        (KEYWORDS, "", {"default": {"post": "."}, "qwen": {"post": "!"}, "post": "."}),
        ({"dataset": {"post": ","}, "x": 1}, "qwen", {"dataset": {"post": ","}, "x": 1, "post": ","}),
        (
            {"default": {"a": 1}, "dataset": {"a": 2}},
            "qwen",
            {"default": {"a": 1}, "dataset": {"a": 2}, "a": 1},
        ),
        ({"post": ";"}, "qwen", {"post": ";"}),
        ({}, "qwen", {}),
    ],
)
def test_the_keywords_of_the_model_else_everything_with_the_defaults_on_top(
    given: Any, model: str, expected: Any
) -> None:
    assert select_model_keywords(given, model) == expected


def test_visuals_stand_before_the_text_in_one_user_message(make_task: MakeTask) -> None:
    prompt = first_prompt(make_task(doc_to_visual=picture))
    [message] = prompt.messages
    assert message.role == "user"
    assert [type(part) for part in message.parts] == [Image, Text]
    assert message.text == "Q0"


@pytest.mark.parametrize(
    ("visuals", "count"),
    [([], 0), (None, 0), (picture({}) * 3, 3), (picture({})[0], 1), ([picture({}), picture({}) * 2], 3)],
)
def test_there_may_be_none_or_several_visuals(make_task: MakeTask, visuals: Any, count: int) -> None:
    assert len(first_prompt(make_task(doc_to_visual=lambda fields: visuals)).media) == count


def test_the_text_helper_gets_the_keywords_of_the_model(make_task: MakeTask) -> None:
    def text(fields: Any, lmms_eval_specific_kwargs: Any = None) -> str:
        return f"{fields['q']}{lmms_eval_specific_kwargs['post']}"

    given = {"doc_to_text": text, "doc_to_visual": picture, "lmms_eval_specific_kwargs": KEYWORDS}
    assert first_prompt(make_task(**given, rendering={"model_name": "qwen"})).text == "Q0!"
    assert first_prompt(make_task(**given, rendering={"model_name": "other"})).text == "Q0."


def test_a_text_helper_of_a_task_without_keywords_gets_the_document_alone(make_task: MakeTask) -> None:
    task = make_task(doc_to_text=lambda *given: f"{len(given)}", doc_to_visual=picture)
    assert first_prompt(task).text == "1"


def test_a_visual_helper_gets_the_keywords_only_if_it_takes_two(make_task: MakeTask) -> None:
    seen: list[Any] = []

    def two(fields: Any, keywords: Any) -> list[Any]:
        seen.append(keywords)
        return []

    keywords = {"lmms_eval_specific_kwargs": {"post": ";"}}

    def one(fields: Any) -> list[Any]:
        return []

    for maker in (two, one):
        first_prompt(make_task(doc_to_visual=maker, doc_to_text=lambda fields, given: "x", **keywords))
    assert seen == [{"post": ";"}]


def test_own_messages_are_taken_as_they_are(make_task: MakeTask) -> None:
    prompt = first_prompt(make_task(doc_to_messages=messages))
    assert prompt.chat
    assert [(message.role, message.text) for message in prompt.messages] == [
        ("system", "Look."),
        ("user", "Q0"),
    ]
    assert [type(part) for part in prompt.messages[1].parts] == [Image, Text]


def test_own_messages_may_have_tool_calls_and_results(make_task: MakeTask) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "area", "arguments": {"base": 2}}}
    given = [
        {"role": "user", "content": [{"type": "text", "text": "Area?"}]},
        {"role": "assistant", "content": "Look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
    ]
    task = make_task(doc_to_messages=lambda fields: given, rendering={"supports_tools": True})
    prompt = first_prompt(task)
    assert prompt.messages[1].parts == (Text("Look."), ToolCall("area", '{"base": 2}', "c1"))
    assert prompt.messages[2].parts == (ToolResult("4", "c1", "area"),)
    assert prompt.text == "Area?Look.4"
    as_text = first_prompt(make_task(doc_to_messages=lambda fields: given))
    assert [(message.role, message.text) for message in as_text.messages] == [
        ("user", "Area?"),
        ("assistant", 'Look.\n[{"name": "area", "arguments": {"base": 2}}]'),
        ("user", "Result of `area`: 4"),
    ]


@pytest.mark.parametrize(("model", "expected"), [("qwen", "Q0!"), ("other", "Q0.")])
def test_own_messages_get_the_keywords(make_task: MakeTask, model: str, expected: str) -> None:
    task = make_task(
        doc_to_messages=messages, lmms_eval_specific_kwargs=KEYWORDS, rendering={"model_name": model}
    )
    assert first_prompt(task).messages[-1].text == expected


def test_a_messages_helper_that_takes_no_keywords_gets_none(make_task: MakeTask) -> None:
    task = make_task(doc_to_messages=lambda fields: messages(fields), lmms_eval_specific_kwargs=KEYWORDS)
    assert first_prompt(task).messages[-1].text == "Q0"


def test_a_model_without_chat_gets_visuals_and_text_instead(make_task: MakeTask) -> None:
    task = make_task(doc_to_messages=messages, doc_to_visual=picture, rendering={"chat_messages": False})
    prompt = first_prompt(task)
    assert (prompt.chat, prompt.text, len(prompt.media), len(prompt.messages)) == (False, "Q0", 1, 1)


def test_a_helper_file_is_asked_for_its_signature(make_task: MakeTask, tmp_path: Path) -> None:
    from assay.tasks.files.helper_functions import HelperFunction

    (tmp_path / "utils.py").write_text(
        "def messages(doc, **kwargs):\n"
        "    text = kwargs['lmms_eval_specific_kwargs']['post']\n"
        "    return [{'role': 'user', 'content': [{'type': 'text', 'text': text}]}]\n"
    )
    task = make_task(
        doc_to_messages=HelperFunction("utils.messages", tmp_path, "a.yaml:3"),
        lmms_eval_specific_kwargs=KEYWORDS,
    )
    assert first_prompt(task).text == "."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"role": "user", "content": "text"}], "list `content`"),
        ([{"role": "robot", "content": []}], "must have a role"),
        ([{"role": "tool", "content": 3}], "must have text"),
        ([{"role": "assistant", "content": None, "tool_calls": ["area"]}], "a tool call needs a `name`"),
        ([{"content": []}], "must have a role"),
        (["text"], "must have a role"),
        ([{"role": "user", "content": [{"type": "smell", "url": "x"}]}], "`smell`"),
        ([{"role": "user", "content": [{"text": "x"}]}], "cannot be of type"),
        ([{"role": "user", "content": [{"type": "image"}]}], "."),
        ([{"role": "user", "content": [{"type": "text"}]}], "."),
        ([{"role": "user", "content": ["text"]}], "."),
        (None, "."),
    ],
)
def test_messages_that_make_no_sense_are_refused(make_task: MakeTask, content: Any, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        first_prompt(make_task(doc_to_messages=lambda fields: content))


@pytest.mark.parametrize("key", ["doc_to_visual", "doc_to_messages"])
def test_a_multimodal_key_must_be_a_function(make_task: MakeTask, key: str) -> None:
    with pytest.raises(TaskError, match=f"`{key}` must be a function"):
        first_prompt(make_task(**{key: "image"}))
