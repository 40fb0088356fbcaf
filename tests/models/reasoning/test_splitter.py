"""Tests of following reasoning while a text is generated."""

from __future__ import annotations

import pytest

from assay.models.reasoning import FORMATS, ReasoningSplitter, SplitText

THINK = next(one for one in FORMATS if one.name == "think")


@pytest.mark.parametrize(
    ("prompt", "text", "expected"),
    [
        ("[assistant]", "<think>Q: 7?", False),
        ("[assistant]", "<think>Q: 7?</think>42", False),
        ("[assistant]", "<think>Q: 7?</think>42 Q:", True),
        ("[assistant]", "42 Q:", True),
        ("[assistant]<think>", "Q: 7?", False),
        ("[assistant]<think>", "Q: 7?</think>42 Q:", True),
    ],
)
def test_stop_strings_count_in_the_answer_only(prompt: str, text: str, expected: bool) -> None:
    assert ReasoningSplitter.for_prompt(THINK, prompt).has_stop(text, ["Q:"]) == expected


def test_an_end_mark_replaces_the_format() -> None:
    splitter = ReasoningSplitter.for_prompt(THINK, "[assistant]<think>", end_mark="###")
    assert splitter.split("a</think>b###c") == SplitText("c", "a</think>b")
    assert splitter.end_marks == ("###",)
    assert not splitter.has_stop("Q:", ["Q:"])


def test_without_a_format_everything_is_the_answer() -> None:
    splitter = ReasoningSplitter.for_prompt(None, "<think>")
    assert not splitter.is_active
    assert splitter.split_and_cut("<think>a</think> Q: b", ["Q:"]) == SplitText("<think>a</think> ")
