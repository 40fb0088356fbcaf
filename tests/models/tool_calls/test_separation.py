from __future__ import annotations

from assay.models.reasoning import ReasoningSplitter
from assay.models.reasoning.formats import FORMATS as REASONING
from assay.models.tool_calls.formats import HARMONY, HERMES
from assay.models.tool_calls.separation import separate_calls

BY_NAME = {one.name: one for one in REASONING}
CALL = '<tool_call>{"name": "area", "arguments": {}}</tool_call>'


def test_calls_inside_the_reasoning_do_not_count() -> None:
    splitter = ReasoningSplitter(BY_NAME["think"])
    found, calls = separate_calls(f"<think>maybe {CALL}</think>Now: {CALL}", splitter, HERMES)
    assert (found.answer, found.reasoning) == ("Now:", f"maybe {CALL}")
    assert [call.name for call in calls] == ["area"]


def test_calls_of_gpt_oss_are_in_a_channel_of_their_own() -> None:
    text = '<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.area<|message|>{"base": 1}<|call|>'
    found, calls = separate_calls(text, ReasoningSplitter(BY_NAME["harmony"]), HARMONY)
    assert (found.answer, found.reasoning) == ("", "hm")
    assert [(call.name, call.values) for call in calls] == [("area", {"base": 1})]


def test_without_a_format_the_text_stays() -> None:
    found, calls = separate_calls(CALL, ReasoningSplitter(), None)
    assert (found.answer, calls) == (CALL, ())
