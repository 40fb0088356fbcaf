"""Tests of the harmony parser, against recorded results of `openai-harmony` 0.0.8.

A line of the file is a text and its messages: channel, content, recipient. The texts were generated at random: split and
repeated tokens, missing ends, several channels.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.models.reasoning.harmony import parse_harmony

RECORDED = [
    json.loads(line)
    for line in Path(__file__).with_name("recorded_harmony.jsonl").read_text("utf-8").splitlines()
]


def test_messages_are_those_of_the_reference() -> None:
    assert len(RECORDED) == 300
    for text, expected in RECORDED:
        found = [[message.channel, message.content, message.recipient] for message in parse_harmony(text)]
        assert found == expected, text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text", [("", "plain text", True)]),
        ("<|channel|>final", []),
        ("<|channel|>analysis<|message|>hm", [("analysis", "hm", False)]),
        ("<|channel|>analysis<|message|>hm<|end|><|start|>assi", [("analysis", "hm", True)]),
        ("", []),
    ],
)
def test_a_response_can_end_anywhere(text: str, expected: list[tuple[str, str, bool]]) -> None:
    assert [(one.channel, one.content, one.is_finished) for one in parse_harmony(text)] == expected


@given(
    st.lists(
        st.sampled_from(["<|channel|>", "<|message|>", "<|end|>", "<|start|>", "final", "a", " to=f", "\n"])
    )
)
def test_any_text_is_parsed(pieces: list[str]) -> None:
    for message in parse_harmony("".join(pieces)):
        assert "<|end|>" not in message.content
