"""Chat templates of model files."""

from __future__ import annotations

import pytest

from assay.core.errors import DatasetError
from assay.core.records.messages import Image, Message, Prompt, Role, Text
from assay.models.tokens import Unanswerable
from assay.models.tokens.chat_template import ChatTemplate, require_text

PLAIN = (
    "{{ bos_token }}{% for message in messages %}<{{ message['role'] }}>{{ message['content'] | trim }}</s>\n"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
STRICT = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{{ messages[-1]['content'] }}"
)


def chat(*said: tuple[Role, str]) -> Prompt:
    return Prompt(tuple(Message(role, (Text(text),)) for role, text in said), chat=True)


def test_the_reply_starts_after_the_template() -> None:
    assert ChatTemplate(PLAIN, bos="<s>").render(chat(("user", "Hi"))) == "<s><user>Hi</s>\n<assistant>"


def test_a_started_answer_is_left_open() -> None:
    text = ChatTemplate(PLAIN).render(chat(("user", "Sum?"), ("assistant", "The sum is ")))
    assert text == "<user>Sum?</s>\n<assistant>The sum is"


def test_an_empty_started_answer_is_a_new_turn() -> None:
    text = ChatTemplate(PLAIN).render(chat(("user", "Sum?"), ("assistant", "")))
    assert text == "<user>Sum?</s>\n<assistant>"


def test_a_template_error_fails_the_request_with_a_reason() -> None:
    with pytest.raises(Unanswerable, match="no system role"):
        ChatTemplate(STRICT).render(chat(("system", "Be brief."), ("user", "Hi")))


def test_system_message_support_is_found_by_rendering() -> None:
    assert ChatTemplate(PLAIN).supports_system_message
    assert not ChatTemplate(STRICT).supports_system_message
    assert not ChatTemplate("{{ messages[-1]['content'] }}").supports_system_message


def test_arguments_reach_the_template_and_json_is_not_escaped() -> None:
    template = ChatTemplate("{{ {'a': '<ü>'} | tojson }}{{ thinking }}", arguments={"thinking": "off"})
    assert template.render(chat(("user", "Hi"))) == '{"a": "<ü>"}off'


def test_an_invalid_template_is_an_error() -> None:
    with pytest.raises(DatasetError, match="invalid chat template"):
        ChatTemplate("{% for")


def test_a_template_runs_in_a_sandbox() -> None:
    with pytest.raises(Unanswerable):
        ChatTemplate("{{ messages.__class__.__mro__[1].__subclasses__() }}").render(chat(("user", "Hi")))


def test_images_are_not_supported() -> None:
    prompt = Prompt(
        (Message("user", (Image(digest="a", load=lambda: None), Text("What is it?"))),), chat=True
    )
    for read in (require_text, ChatTemplate(PLAIN).render):
        with pytest.raises(Unanswerable, match="does not support image"):
            read(prompt)
