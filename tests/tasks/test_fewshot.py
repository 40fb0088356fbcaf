from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import BadTask
from assay.core.messages import Prompt
from assay.tasks import fewshot
from assay.tasks.fewshot import Sampler, Turn, join, question_turns, remembered, to_prompt

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
    assert join(prefix, suffix, delimiter) == expected


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
    turns = question_turns(question, answer, target_delimiter="->", after="|", **options)
    assert [tuple(turn) for turn in turns] == expected


@pytest.mark.parametrize(
    ("question", "answer", "choices", "message"),
    [
        (5, None, None, "the question must be a text"),
        (None, None, None, "the question must be a text"),
        ("Q", 5, None, "answer must be a text"),
        ("Q", 1.5, None, "answer must be a text"),
        ("Q", 2, ["x", "y"], "choice 2, but there are 2"),
        ("Q", [5], None, "answer must be a text"),
        ("Q", {"a": 1}, None, "answer must be a text"),
    ],
)
def test_what_is_not_text_is_refused(question: Any, answer: Any, choices: Any, message: str) -> None:
    with pytest.raises(BadTask, match=message) as caught:
        question_turns(question, answer, choices=choices, where="a.yaml:5")
    assert caught.value.where == "a.yaml:5"


# --- prompts ---------------------------------------------------------------------------------------

SHOT = [Turn("user", "Q1", " "), Turn("assistant", "A1", "\n\n")]
SYSTEM, LAST, OPEN = Turn("system", "Be brief."), Turn("user", "Q2"), Turn("assistant", "The answer is")


def shown(prompt: Prompt) -> list[tuple[str, str]]:
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
    plain = to_prompt(turns, chat=False, multiturn=True)
    assert (shown(plain), plain.chat) == ([("user", text)], False)
    many = to_prompt(turns, chat=True, multiturn=True)
    assert (shown(many), many.chat) == (several, True)
    one = to_prompt(turns, chat=True, multiturn=False)
    assert (shown(one), one.chat) == (single, True)
    assert many.continues is (turns[-1] is OPEN)


def test_an_example_is_written_once_however_often_it_is_drawn() -> None:
    written: list[int] = []

    def make(at: int) -> list[Turn]:
        written.append(at)
        return [Turn("user", str(at))]

    turns = remembered(make)
    assert [turn.content for turn in turns([3, 1]) + turns([1, 3, 2])] == ["3", "1", "1", "3", "2"]
    assert written == [3, 1, 2]


def test_of_a_huge_pool_only_some_examples_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fewshot, "_MOST_REMEMBERED", 2)
    written: list[int] = []

    def make(at: int) -> list[Turn]:
        written.append(at)
        return [Turn("user", str(at))]

    turns = remembered(make)
    for _ in range(2):
        assert [turn.content for turn in turns([5, 6, 7])] == ["5", "6", "7"]
    assert written == [5, 6, 7, 7]


# --- sampling --------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**32), size=st.integers(1, 30), count=st.integers(1, 30), documents=st.integers(1, 5)
)
def test_the_default_sampler_is_pythons_sample_consumed_in_document_order(
    seed: int, size: int, count: int, documents: int
) -> None:
    count = min(count, size)
    sampler, generator = Sampler("default", POOL * 2, seed), random.Random(seed)
    sampler.pool = (POOL * 2)[:size]
    for _ in range(documents):
        assert sampler.pick(count) == generator.sample(range(size), count)


@given(
    seed=st.integers(0, 2**32),
    asked=st.lists(st.integers(0, 19), min_size=1, max_size=5),
    count=st.integers(1, 19),
)
def test_the_document_itself_is_left_out_as_lm_eval_does_it(seed: int, asked: list[int], count: int) -> None:
    sampler, generator = Sampler("default", POOL, seed), random.Random(seed)
    for at in asked:
        expected = [row for row in generator.sample(POOL, count + 1) if row != POOL[at]][:count]
        assert [POOL[position] for position in sampler.pick(count, POOL[at])] == expected


@given(seed=st.integers(0, 1000), copies=st.integers(1, 5), count=st.integers(1, 4))
def test_all_copies_of_the_document_are_left_out(seed: int, copies: int, count: int) -> None:
    pool = [{"n": 0}] * copies + [{"n": number} for number in range(1, 6)]
    sampler, generator = Sampler("default", pool, seed), random.Random(seed)
    for _ in range(3):
        expected = [row for row in generator.sample(pool, count + 1) if row != pool[0]][:count]
        if len(expected) < count:
            expected = generator.sample([row for row in pool if row != pool[0]], count)
        assert [pool[at] for at in sampler.pick(count, pool[0])] == expected


def test_first_n_takes_the_first_without_the_document_itself() -> None:
    sampler = Sampler("first_n", POOL, 1)
    assert sampler.pick(3) == sampler.pick(3) == [0, 1, 2]
    assert sampler.pick(3, {"n": 1}) == [0, 2, 3]
    assert sampler.pick(3, {"n": 99}) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["default", "first_n"])
def test_the_whole_pool_may_be_taken(kind: str) -> None:
    assert sorted(Sampler(kind, POOL, 1).pick(20)) == list(range(20))


@pytest.mark.parametrize(
    ("kind", "pool", "document", "count", "has"),
    [
        ("default", 3, None, 4, 3),
        ("default", 0, None, 1, 0),
        ("default", 3, {"n": 0}, 3, 2),
        ("first_n", 3, None, 4, 3),
        ("first_n", 3, {"n": 0}, 3, 2),
        ("first_n", 0, None, 1, 0),
    ],
)
def test_a_pool_too_small_is_refused_with_its_size(
    kind: str, pool: int, document: Any, count: int, has: int
) -> None:
    with pytest.raises(
        BadTask, match=f"{count} few-shot examples are wanted, but the pool has {has}\\b"
    ) as caught:
        Sampler(kind, POOL[:pool], 1, where="a.yaml:5").pick(count, document)
    assert (caught.value.where, "fewshot_split" in caught.value.hint) == ("a.yaml:5", True)


def test_an_unknown_sampler_is_refused() -> None:
    with pytest.raises(BadTask, match="`balanced`") as caught:
        Sampler("balanced", POOL, 1, where="a.yaml:5")
    assert "first_n" in caught.value.hint
