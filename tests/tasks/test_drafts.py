from __future__ import annotations

from typing import Any

import pytest

from assay.core.errors import DatasetError, InvalidOption
from assay.tasks.drafts import ColumnRoles, draft_task, guess_columns, to_template_name

Rows = list[dict[str, Any]]


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"id": "1", "question": "2+2?", "answer": "4"}, ColumnRoles(question="question", answer="answer")),
        (
            {"ctx": "A man", "endings": ["sits", "runs"], "label": "1", "ind": 3},
            ColumnRoles(question="ctx", answer="label", choices=("endings",)),
        ),
        (
            {"question": "Which?", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"},
            ColumnRoles(question="question", answer="answerKey", choices=("choices",)),
        ),
        (
            {"sentence": "_ ran", "option1": "Ann", "option2": "Bob", "answer": "2"},
            ColumnRoles(question="sentence", answer="answer", choices=("option1", "option2")),
        ),
        (
            {"Question": "Which?", "A": "x", "B": "y", "C": "z", "Answer": "C"},
            ColumnRoles(question="Question", answer="Answer", choices=("A", "B", "C")),
        ),
        ({"page": "Once upon a time."}, ColumnRoles(question="page")),
        (
            {"image": {"bytes": b"", "path": None}, "query": "What?", "final_answer": "a cat"},
            ColumnRoles(question="query", answer="final_answer", image="image"),
        ),
    ],
)
def test_columns_are_guessed_from_names_and_contents(row: dict[str, Any], columns: ColumnRoles) -> None:
    assert guess_columns([row], {}) == columns


def test_what_somebody_says_goes_before_every_guess() -> None:
    row = {"question": "?", "prompt": "!", "answer": "1", "gold": "2"}
    assert guess_columns([row], {"question": "prompt", "answer": "gold"}) == ColumnRoles(
        question="prompt", answer="gold"
    )


@pytest.mark.parametrize(
    ("answers", "template"),
    [
        (["b", "a"], "{{options.index(gold)}}"),
        ([0, 1], "{{gold}}"),
        ([1, 2], "{{gold - 1}}"),
        (["B", "A"], '{{"ABCDEFGHIJ".index(gold.strip().upper())}}'),
        (["0", "1"], "{{gold | int}}"),
        (["1", "2"], "{{(gold | int) - 1}}"),
    ],
)
def test_the_right_choice_is_found_by_text_number_or_letter(answers: list[Any], template: str) -> None:
    rows: Rows = [{"q": "?", "options": ["a", "b"], "gold": answer} for answer in answers]
    draft = draft_task(rows, ColumnRoles(question="q", answer="gold", choices=("options",)))
    assert (draft.output_type, draft.doc_to_target) == ("multiple_choice", template)


def test_an_answer_that_is_no_choice_is_said() -> None:
    rows: Rows = [{"q": "?", "options": ["a", "b"], "gold": "neither"}]
    with pytest.raises(InvalidOption, match="does not identify one of the choices"):
        draft_task(rows, ColumnRoles(question="q", answer="gold", choices=("options",)))


@pytest.mark.parametrize(
    ("answers", "exact", "numbers"),
    [(["4", "-1,000.5"], True, True), (["Paris", "4"], True, False), (["long " * 30, "x"], False, False)],
)
def test_how_an_answer_can_be_judged_is_seen_in_the_answers(
    answers: list[str], exact: bool, numbers: bool
) -> None:
    rows: Rows = [{"q": "?", "a": answer} for answer in answers]
    draft = draft_task(rows, ColumnRoles(question="q", answer="a"))
    assert (draft.output_type, draft.exact, draft.numbers) == ("generate_until", exact, numbers)


def test_without_an_answer_the_text_itself_is_scored() -> None:
    draft = draft_task([{"text": "Once."}], ColumnRoles(question="text"))
    assert (draft.output_type, draft.doc_to_target) == ("loglikelihood_rolling", "{{text}}")


def test_awkward_names_become_names_templates_can_say() -> None:
    assert [to_template_name(name) for name in ("Final Question", "class", "2nd")] == [
        "Final_Question",
        "column_class",
        "column_2nd",
    ]


@pytest.mark.parametrize(
    ("rows", "said", "what"),
    [
        ([], {}, "no documents"),
        ([{"n": 3}], {}, "no column looks like a question"),
        ([{"q": "?"}], {"answer": "gold"}, "no column `gold`"),
    ],
)
def test_what_cannot_be_guessed_is_said(rows: Rows, said: dict[str, str], what: str) -> None:
    with pytest.raises((DatasetError, InvalidOption), match=what):
        guess_columns(rows, said)
