from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assay.core.errors import TaskError
from assay.core.records.messages import Prompt
from assay.tasks.prompts.turns import Turn, build_question_turns, join_texts, prompt_from_turns

POOL = [{"n": number} for number in range(20)]


@pytest.mark.parametrize(
    ("prefix", "suffix", "delimiter", "expected"),
    [
        ("a", "b", " ", "a b"),
        ("a ", "b", " ", "a b"),
        ("a", " b", " ", "a b"),
        ("a\n", "b", "--", "a\nb"),
        ("a", "\tb", "--", "a\tb"),
        ("", "b", " ", "b"),
        ("a", "", " ", "a"),
        (None, "b", " ", "b"),
        ("a", None, " ", "a"),
        (None, None, " ", ""),
        ("a", "b", "", "ab"),
    ],
)
def test_join_puts_a_delimiter_only_where_both_borders_are_not_white(
    prefix: str | None, suffix: str | None, delimiter: str, expected: str
) -> None:
    assert join_texts(prefix, suffix, delimiter) == expected


# --- turns -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "answer", "options", "expected"),
    [
        pytest.param("Q", None, {}, [("user", "Q", "")], id="the question itself"),
        pytest.param("Q", "A", {}, [("user", "Q", "->"), ("assistant", "A", "|")], id="an example"),
        pytest.param("Q", "", {}, [("user", "Q", "")], id="an empty answer has no turn and no delimiter"),
        pytest.param(
            "Q", 1, {"choices": ["x", "y"]}, [("user", "Q", "->"), ("assistant", "y", "|")], id="an index"
        ),
        pytest.param(
            "Q", 0, {"choices": ["x", "y"]}, [("user", "Q", "->"), ("assistant", "x", "|")], id="index 0"
        ),
        pytest.param(
            "Q", "y", {"choices": ["x", "y"]}, [("user", "Q", "->"), ("assistant", "y", "|")], id="a choice"
        ),
        pytest.param(
            "Q", ["b", "c"], {}, [("user", "Q", "->"), ("assistant", "b", "|")], id="the first of a list"
        ),
        pytest.param(
            "Q", None, {"prefix": "P:"}, [("user", "Q", "->"), ("assistant", "P:", "")], id="an open prefix"
        ),
        pytest.param(
            "Q",
            "A",
            {"prefix": "P:"},
            [("user", "Q", "->"), ("assistant", "P: A", "|")],
            id="a prefix and an answer",
        ),
        pytest.param(
            "Q",
            "A",
            {"prefix": "P: "},
            [("user", "Q", "->"), ("assistant", "P: A", "|")],
            id="a prefix with a space",
        ),
        pytest.param(
            "Q ", None, {"prefix": "P"}, [("user", "Q ", ""), ("assistant", "P", "")], id="white question"
        ),
        pytest.param(
            "Q", None, {"prefix": "\nP"}, [("user", "Q", ""), ("assistant", "\nP", "")], id="white prefix"
        ),
        pytest.param(
            "", None, {"prefix": "P"}, [("user", "", ""), ("assistant", "P", "")], id="an empty question"
        ),
        pytest.param(
            "Q ", "A", {}, [("user", "Q ", "->"), ("assistant", "A", "|")], id="white space changes nothing"
        ),
        pytest.param(
            "", "A", {}, [("user", "", "->"), ("assistant", "A", "|")], id="an empty question with answer"
        ),
        pytest.param(
            "Q", "A", {"prefix": ""}, [("user", "Q", "->"), ("assistant", "A", "|")], id="no prefix"
        ),
    ],
)
def test_the_turns_of_a_question(
    question: str, answer: Any, options: dict[str, Any], expected: list[Any]
) -> None:
    turns = build_question_turns(question, answer, target_delimiter="->", after="|", **options)
    assert [tuple(turn) for turn in turns] == expected


@pytest.mark.parametrize(
    ("question", "answer", "choices", "message"),
    [
        (5, None, None, "the question must be text"),
        (None, None, None, "the question must be text"),
        ("Q", 2, ["x", "y"], "choice 2 of 2"),
        ("Q", [None], None, "answer of a few-shot example must be text"),
        ("Q", {"a": 1}, None, "answer of a few-shot example must be text"),
    ],
)
def test_what_is_not_text_is_refused(question: Any, answer: Any, choices: Any, message: str) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        build_question_turns(question, answer, choices=choices, where="a.yaml:5")
    assert caught.value.where == "a.yaml:5"


# --- prompts ---------------------------------------------------------------------------------------

SHOT = [Turn("user", "Q1", " "), Turn("assistant", "A1", "\n\n")]
SYSTEM, LAST, OPEN = Turn("system", "Be brief."), Turn("user", "Q2"), Turn("assistant", "The answer is")


def list_messages(prompt: Prompt) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in prompt.messages]


@pytest.mark.parametrize(
    ("turns", "text", "several", "single"),
    [
        pytest.param([LAST], "Q2", [("user", "Q2")], [("user", "Q2")], id="a question"),
        pytest.param(
            [*SHOT, LAST],
            "Q1 A1\n\nQ2",
            [("user", "Q1"), ("assistant", "A1"), ("user", "Q2")],
            [("user", "Q1 A1\n\nQ2")],
            id="an example",
        ),
        pytest.param(
            [SYSTEM, *SHOT, LAST],
            "Be brief.Q1 A1\n\nQ2",
            [("system", "Be brief."), ("user", "Q1"), ("assistant", "A1"), ("user", "Q2")],
            [("system", "Be brief."), ("user", "Q1 A1\n\nQ2")],
            id="a system turn",
        ),
        pytest.param(
            [SYSTEM, *SHOT, LAST._replace(delimiter=" "), OPEN],
            "Be brief.Q1 A1\n\nQ2 The answer is",
            [
                ("system", "Be brief."),
                ("user", "Q1"),
                ("assistant", "A1"),
                ("user", "Q2"),
                ("assistant", "The answer is"),
            ],
            [("system", "Be brief."), ("user", "Q1 A1\n\nQ2"), ("assistant", "The answer is")],
            id="an open answer",
        ),
    ],
)
def test_turns_become_a_text_a_chat_or_one_message(turns: Any, text: str, several: Any, single: Any) -> None:
    plain = prompt_from_turns(turns, chat=False, multiturn=True)
    assert (list_messages(plain), plain.chat) == ([("user", text)], False)
    many = prompt_from_turns(turns, chat=True, multiturn=True)
    assert (list_messages(many), many.chat) == (several, True)
    one = prompt_from_turns(turns, chat=True, multiturn=False)
    assert (list_messages(one), one.chat) == (single, True)
    assert many.continues is (turns[-1] is OPEN)


@pytest.mark.parametrize(
    ("answer", "choices", "expected"),
    [
        (5, None, "5"),
        (1.5, None, "1.5"),
        ([7, 8], None, "7"),
        (np.int32(1), ["a", "b"], "b"),
        (np.int64(3), None, "3"),
    ],
)
def test_a_number_is_an_answer(answer: Any, choices: Any, expected: str) -> None:
    assert build_question_turns("Q", answer, choices=choices)[1].content == expected
