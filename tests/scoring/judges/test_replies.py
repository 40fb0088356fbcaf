"""A judge's reply counts only in the form that was asked for."""

from __future__ import annotations

import pytest

from assay.scoring.judges.replies import UnreadableReply, read_number, read_numbers, read_word

WORDS = {"correct": "correct", "incorrect": "incorrect"}


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        ("VERDICT: CORRECT", "correct"),
        ("The 1st answer is right.\nVerdict: incorrect", "incorrect"),
        ("**Verdict:** Correct.", "correct"),
        ("## VERDICT: **[INCORRECT]**\n", "incorrect"),
        ("correct", "correct"),
        ("*Incorrect*.", "incorrect"),
        ('{"verdict": "Correct", "why": "incorrect units, but fine"}', "correct"),
        ('Thinking about {x}.\n```json\n{"verdict": "incorrect"}\n```', "incorrect"),
        ('So: {"why": {"a": 1}, "verdict": "correct"}', "correct"),
        ("<think>VERDICT: INCORRECT? No.</think>VERDICT: CORRECT", "correct"),
        ("it was prefilled: VERDICT: INCORRECT\n</think>\nVERDICT: CORRECT", "correct"),
        ("VERDICT: CORRECT\nVerdict: correct", "correct"),
    ],
)
def test_a_verdict_in_the_form_that_was_asked_for_is_read(reply: str, word: str) -> None:
    assert read_word(reply, "verdict", WORDS) == word


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "1",
        "The answer is correct.",
        "I would not call this incorrect, so 1.",
        "VERDICT: probably correct",
        "VERDICT: CORRECT or INCORRECT",
        "VERDICT: CORRECT\nVERDICT: INCORRECT",
        '{"verdict": 1}',
        '{"result": "correct"}',
        "<think>VERDICT: CORRECT</think>",
        "MY VERDICT: CORRECT",
    ],
)
def test_anything_else_is_no_verdict(reply: str) -> None:
    with pytest.raises(UnreadableReply):
        read_word(reply, "verdict", WORDS)


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        ("SCORE: 7", 7.0),
        ("Score: 7.5/10", 7.5),
        ("3 facts of 4.\n**SCORE: 6**", 6.0),
        ("10", 10.0),
        ('{"score": "8"}', 8.0),
    ],
)
def test_a_number_in_the_range_is_read(reply: str, number: float) -> None:
    assert read_number(reply, "score", 1, 10) == number


@pytest.mark.parametrize(
    "reply",
    ["SCORE: 11", "SCORE: 0", "SCORE: 7/9", "SCORE: high", "I give it 7", '{"score": true}', '{"score": null}',
     "SCORE: 7\nSCORE: 8", "SCORE: 7 or 8", "7 8"],
)  # fmt: skip
def test_a_number_elsewhere_or_outside_the_range_is_not(reply: str) -> None:
    with pytest.raises(UnreadableReply):
        read_number(reply, "score", 1, 10)


def test_a_rubric_is_read_from_an_object_or_from_lines_and_must_be_complete() -> None:
    ranges = {"accuracy": (1.0, 5.0), "Style": (1.0, 5.0)}
    assert read_numbers('{"Accuracy": 4, "style": 2, "total": 6}', ranges) == {"accuracy": 4, "Style": 2}
    assert read_numbers("accuracy: 5\nstyle: 1", ranges) == {"accuracy": 5, "Style": 1}
    for reply in ('{"accuracy": 4}', "accuracy: 4", '{"accuracy": 4, "style": 9}', "4 2"):
        with pytest.raises(UnreadableReply):
            read_numbers(reply, ranges)


def test_the_reason_shows_what_was_said() -> None:
    with pytest.raises(UnreadableReply, match="`verdict` is `probably correct`"):
        read_word("VERDICT: probably correct", "verdict", WORDS)
    with pytest.raises(UnreadableReply, match="which is not between 1 and 10"):
        read_number("SCORE: 11", "score", 1, 10)
    with pytest.raises(UnreadableReply, match="the reply is empty"):
        read_word("", "verdict", WORDS)
