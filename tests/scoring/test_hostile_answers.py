"""Whatever a model says: built-in filters do not raise, lose no document, and treat each by itself."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from assay.core.errors import AssayError
from assay.core.records.specs import FilterStep, PipelineSpec
from assay.scoring.filters import FILTERS
from assay.scoring.pipelines import Pipeline, build_pipeline

PIECES = (
    "(|)|[|]|{|}|\\|.|*|+|?|^|$|A|(A)|b.|#### 7|-1,000.50|<think>|</think>|<think|\x00|\ud800|\udfff|\u2028|\n|\r| |"
    "'|\"|\u0130|\ufb01|\u0661|\u00bd|\U0001f600|e\u0301|None|nan|{{7 * 7}}|{% raw %}|%s|[invalid]"
).split("|")
TEXTS = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
REPEATS = 3
ANSWERED = st.lists(st.lists(TEXTS, min_size=REPEATS, max_size=REPEATS), min_size=1, max_size=4)

STEPS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "regex": [("regex", {"regex_pattern": r"(-?[0-9.,]+)|####\s*(\S+)"})],
    "last regex": [("regex", {"regex_pattern": r"(\S+)", "group_select": -1})],
    "positions": [("regex_pos", {"regex_pattern": r"\b([A-D])\b"})],
    "choices": [
        ("multi_choice_regex", {"ignore_case": True, "ignore_punctuation": True, "regexes_to_ignore": [","]})
    ],
    "vote": [("majority_vote", {})],
    "first two, then vote": [("take_first_k", {"k": 2}), ("majority_vote", {})],
    "case and space": [
        ("lowercase", {}),
        ("uppercase", {}),
        ("remove_whitespace", {}),
        ("remove_leading_space", {}),
    ],
    "map": [("map", {"mapping_dict": {"A": 1, "\x00": None}, "default_value": "?"})],
    "letters": [("letter", {})],
    "thinking": [("strip_thinking", {})],
    "span": [("format_span", {})],
    "all of it": [
        ("strip_thinking", {}),
        ("remove_whitespace", {}),
        ("regex", {"regex_pattern": "(.)"}),
        ("majority_vote", {}),
        ("take_first", {}),
    ],
}
TASK_CODE = {"call", "custom"}
"""Filters that run the task's own code."""

CHOICES: list[Any] = [["(", "[A", "\\"], ["yes", "no"], ["", " "], ["\ud800", "A" * 50]]


def make_pipeline(steps: list[tuple[str, dict[str, Any]]]) -> Pipeline:
    made = [FilterStep(function=name, arguments=given, where="t.yaml:1") for name, given in steps]
    return build_pipeline(PipelineSpec(name="p", steps=tuple(made)))


def test_every_built_in_filter_is_tried() -> None:
    tried = {name for steps in STEPS.values() for name, _ in steps}
    assert tried == {*FILTERS} - TASK_CODE


@pytest.mark.parametrize("case", sorted(STEPS))
@given(responses=ANSWERED, choices=st.sampled_from(CHOICES))
@example(responses=[[""] * REPEATS], choices=[])
@example(responses=[["(" * 30, ")" * 30, "\\" * 30]], choices=["(", ")", "\\"])
def test_whatever_is_said_every_document_gets_its_answer_from_its_own_responses(
    case: str, responses: list[list[str]], choices: list[str]
) -> None:
    pipeline = make_pipeline(STEPS[case])
    documents = [{"choices": choices}] * len(responses)
    before = copy.deepcopy((responses, documents))
    together = pipeline.apply(responses, documents)
    assert len(together) == len(responses)
    assert (responses, documents) == before, "what was said stays as it was said"
    assert together == make_pipeline(STEPS[case]).apply(responses, documents), "the same again"
    alone = [
        pipeline.apply([said], [document])[0] for said, document in zip(responses, documents, strict=True)
    ]
    assert together == alone, "one document's answer depends on no other document"


ARGUMENTS = st.dictionaries(
    st.sampled_from(
        "regex_pattern group_select fallback k mapping_dict default_value tag_pairs ignore_case regexes_to_ignore "
        "ignore_punctuation nonsense".split()
    ),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(), TEXTS),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
        max_leaves=5,
    ),
    max_size=4,
)


@given(name=st.sampled_from(sorted({*FILTERS} - TASK_CODE)), arguments=ARGUMENTS)
@example(name="regex", arguments={"regex_pattern": "("})
@example(name="take_first_k", arguments={"k": -1})
@example(name="strip_thinking", arguments={"tag_pairs": [["<a>"]]})
def test_whatever_the_arguments_a_filter_is_built_or_refused_with_its_place(
    name: str, arguments: dict[str, Any]
) -> None:
    with suppress(AssayError):
        make_pipeline([(name, arguments)])
