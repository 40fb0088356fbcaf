"""Stored prompts as messages for display."""

from __future__ import annotations

import json

from assay.viewer.documents.prompts import (
    FewshotText,
    MediaPart,
    ToolPart,
    find_prompt_media,
    parse_prompt,
    parse_stored_messages,
    preview_prompt,
)

FIELDS = {"question": "What is 2 + 2?"}
FEWSHOT = "What is 1 + 1?\n2\n\nWhat is 2 + 2?\n"


def test_plain_text_is_one_message_with_its_fewshot_examples_split_off() -> None:
    (message,) = parse_prompt(FEWSHOT, fields=FIELDS, n_shot=1)
    assert message.role == ""
    assert message.parts == (FewshotText(text="What is 1 + 1?\n2\n\n", examples=1), "What is 2 + 2?\n")
    (whole,) = parse_prompt(FEWSHOT, fields=FIELDS)
    assert whole.parts == (FEWSHOT,)


def test_chat_messages_before_the_last_one_of_the_user_are_examples() -> None:
    content = [{"type": "image", "digest": "ab", "source": "a.png"}, {"type": "text", "text": "And this?"}]
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is this?"},
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": content},
    ]
    prompt = json.dumps({"messages": messages, "chat": True})
    parsed = parse_prompt(prompt, fields={}, n_shot=1)
    assert [(message.role, message.example) for message in parsed] == [
        ("system", False),
        ("user", True),
        ("assistant", True),
        ("user", False),
    ]
    assert parsed[-1].parts[0] == MediaPart(kind="image", digest="ab", source="a.png")
    assert preview_prompt(prompt, {}, 1, "\n\n") == ("And this?", ["image"])


def test_text_that_looks_like_json_is_not_parsed_as_messages() -> None:
    for text in ('{"messages": [', '{"messages": ["x"], "chat": true}', '{"messages": [], "other": 1}'):
        assert parse_stored_messages(text) is None


def test_tool_calls_are_parts_of_their_own() -> None:
    messages = [
        {"role": "user", "content": "Area?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_call", "name": "area", "arguments": "{}", "id": "1"}],
        },
        {"role": "tool", "content": [{"type": "tool_result", "content": "12", "id": "1"}]},
        {"role": "user", "content": [{"type": "tool_result", "content": "13", "id": "1"}]},
    ]
    prompt = json.dumps({"messages": messages, "chat": True})
    _, call, result, other = parse_prompt(prompt, fields={})
    assert call.parts == (ToolPart(kind="tool call", tool="area", text="{}"),)
    assert result.parts == ("12",)
    assert other.parts == (ToolPart(kind="tool result", tool="", text="13"),)
    assert find_prompt_media(prompt) == []
    assert preview_prompt(prompt, {}, 0, "\n\n") == ("Area? 12", [])
