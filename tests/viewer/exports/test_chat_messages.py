"""Stored prompts and responses as conversations."""

from __future__ import annotations

import json

from assay.viewer.exports.chat_messages import build_reply, read_conversation, read_prompt


def test_a_plain_prompt_is_one_message_of_the_user() -> None:
    (message,) = read_prompt("Question: ?")
    assert (message.role, message.text) == ("user", "Question: ?")


def test_a_response_is_the_last_message() -> None:
    messages = read_conversation({"prompt": "2 + 2?", "response": "4", "reasoning": "easy"})
    assert [(one.role, one.text, one.reasoning) for one in messages] == [
        ("user", "2 + 2?", ""),
        ("assistant", "4", "easy"),
    ]
    assert len(read_conversation({"prompt": "2 + 2?", "response": None})) == 1


def test_calls_without_ids_are_answered_in_order() -> None:
    calls = [{"type": "tool_call", "name": name, "arguments": "{}"} for name in ("first", "second")]
    results = [{"type": "tool_result", "call_id": "", "name": "", "content": text} for text in ("1", "2")]
    stored = {
        "messages": [
            {"role": "assistant", "content": calls},
            {"role": "tool", "content": [results[0]]},
            {"role": "tool", "content": [results[1]]},
        ],
        "chat": True,
    }
    assistant, first, second = read_prompt(json.dumps(stored))
    assert [call["id"] for call in assistant.calls] == [first.call_id, second.call_id]
    assert first.call_id != second.call_id


def test_arguments_that_are_not_json_are_kept_as_text() -> None:
    reply = build_reply({"response": "", "tool_calls": [{"name": "f", "arguments": '{"a": '}]})
    (call,) = reply.calls
    assert call["arguments"] == {"text": '{"a": '} and "not a JSON object" in call["problem"]


def test_media_are_parts_and_placeholders_in_the_text() -> None:
    parts = [{"type": "image", "digest": "ab", "source": "x.png"}, {"type": "text", "text": "Which?"}]
    (message,) = read_prompt(json.dumps({"messages": [{"role": "user", "content": parts}], "chat": False}))
    assert message.text == "[image]Which?" and message.parts[0]["digest"] == "ab"
