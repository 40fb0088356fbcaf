"""Tests of separating reasoning from answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.models.reasoning.formats import (
    FORMATS,
    SplitText,
    TaggedReasoning,
    detect_format,
    split_known_format,
)

TAGGED = [one for one in FORMATS if isinstance(one, TaggedReasoning)]
THINK = next(one for one in TAGGED if one.name == "think")

TRANSCRIPTS = [
    ("think", "<think>\nmaybe 7\n</think>\n\n42", False),  # Qwen3, QwQ
    ("think", "maybe 7\n</think>\n\n42", True),  # DeepSeek-R1: the template writes <think>
    ("think", "<think>maybe 7</think><response>42</response>", False),  # Granite 3.3
    ("thinking", "<thinking>maybe 7</thinking>42", False),
    ("mistral", "[THINK]maybe 7[/THINK]42", False),  # Magistral
    ("gemma", "<|channel>thought\nmaybe 7<channel|>42", False),  # Gemma 4
    ("granite", "Here is my thought process: maybe 7 Here is my response: 42", False),  # Granite 3.2
    ("granite", "Here's my thought process: maybe 7 Here's my response: 42", False),
    ("cohere", "<|START_THINKING|>maybe 7<|END_THINKING|><|START_RESPONSE|>42<|END_RESPONSE|>", False),
    ("seed", "<seed:think>maybe 7</seed:think>42", False),
    ("kimi", "◁think▷maybe 7◁/think▷42", False),
    ("apertus", "<|inner_prefix|>maybe 7<|inner_suffix|>42", False),
    (
        "harmony",
        "<|channel|>analysis<|message|>maybe 7<|end|><|start|>assistant<|channel|>final<|message|>42<|return|>",
        False,
    ),
]


@pytest.mark.parametrize(("name", "text", "is_open"), TRANSCRIPTS)
def test_each_family_is_split(name: str, text: str, is_open: bool) -> None:
    found = next(one for one in FORMATS if one.name == name)
    assert found.split(text, is_open=is_open) == SplitText("42", "maybe 7", True)


@pytest.mark.parametrize(("name", "text", "is_open"), TRANSCRIPTS)
def test_the_beginning_of_a_response_tells_its_format(name: str, text: str, is_open: bool) -> None:
    assert split_known_format(text) == SplitText("42", "maybe 7", True)


@pytest.mark.parametrize(
    ("text", "is_open", "expected"),
    [
        ("42", False, SplitText("42")),
        ("<think>maybe 7", False, SplitText("", "maybe 7", False)),
        ("maybe 7", True, SplitText("", "maybe 7", False)),
        ("<think>\n\n</think>\n\n42", False, SplitText("42", "", True)),
        ("<think>7</think>4<think>8</think>2", False, SplitText("42", "7\n8", True)),
        ("<think>a <think> b</think>42", False, SplitText("42", "a <think> b", True)),
        ("a<think>7</think>b", False, SplitText("ab", "7", True)),
        ("<think>7</think>", False, SplitText("", "7", True)),
    ],
)
def test_odd_texts_are_split(text: str, is_open: bool, expected: SplitText) -> None:
    assert THINK.split(text, is_open=is_open) == expected


def test_harmony_without_an_answer_is_unfinished() -> None:
    (harmony,) = (one for one in FORMATS if one.name == "harmony")
    assert harmony.split("<|channel|>analysis<|message|>maybe 7") == SplitText("", "maybe 7", False)
    assert harmony.split("maybe 7<|end|>", is_open=True) == SplitText("", "maybe 7", False)
    assert harmony.split("plain 42") == SplitText("plain 42")


@pytest.mark.parametrize(
    ("template", "tokens", "expected"),
    [
        ("{{ '<think>\\n' }}{% if '</think>' in content %}…", [], "think"),
        ("{{ content }}", ["<s>", "[THINK]", "[/THINK]"], "mistral"),
        ("{{ '<|start|>assistant<|channel|>analysis<|message|>' }}", [], "harmony"),
        ("{{ '<|channel>thought\\n<channel|>' }}", [], "gemma"),
        ("{{ content }}", ["<s>"], None),
    ],
)
def test_the_template_and_the_special_tokens_tell_the_format(
    template: str, tokens: list[str], expected: str | None
) -> None:
    found = detect_format(template, tokens)
    assert (found and found.name) == expected


@pytest.mark.parametrize("text", ["say <think> now", "a[THINK]", "", "<thin", "no marks"])
def test_text_that_does_not_begin_with_reasoning_is_the_answer(text: str) -> None:
    assert split_known_format(text) == SplitText(text)


@given(st.sampled_from(TAGGED), st.text(), st.text())
def test_splitting_undoes_writing(format: TaggedReasoning, thought: str, answer: str) -> None:
    marks = [
        format.opening,
        format.closing,
        *format.other_openings,
        *format.other_closings,
        *format.answer_marks,
    ]
    text = format.opening + thought + format.closing + answer
    if any(text.count(mark) > (mark in (format.opening, format.closing)) for mark in marks):
        return  # the text contains a mark by chance
    found = format.split(text)
    assert found.answer == answer.lstrip()
    assert found.is_finished
    assert found.reasoning == thought.strip().removeprefix(format.label).strip()


@pytest.mark.parametrize(
    ("text", "expected"), [("", True), ("<th", True), ("<think>a", True), ("42", False), ("a</think>", False)]
)
def test_the_beginning_of_reasoning_is_recognised(text: str, expected: bool) -> None:
    assert THINK.can_begin(text) == expected
    assert THINK.opens("<|assistant|>\n<think>\n")
    assert not THINK.opens("<think>\n\n</think>\n\n")
