"""Filter expressions select the documents that match them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.store.filters.conftest import SUMS

from assay.store.filters.evaluation import (
    EvaluationCancelled,
    check_expression,
    match_documents,
    read_display_values,
)
from assay.store.filters.selection import select_matching_documents
from assay.store.filters.syntax import FilterError
from assay.store.index.document_index import DocumentIndex, index_folder
from assay.store.runs.labels import append_label
from assay.store.runs.run import Run

EVERY = [*(("sums", n) for n in range(SUMS)), *(("errors", n) for n in range(4))]

CASES: dict[str, Callable[[str, int], bool]] = {
    "task=sums and score<1": lambda task, n: task == "sums" and n % 2 == 1,
    "right": lambda task, n: n % 2 == 0,
    "wrong": lambda task, n: n % 2 == 1,
    "truncated": lambda task, n: task == "sums" and n % 10 == 9,
    "ending=truncated or document=2": lambda task, n: (task == "sums" and n % 10 == 9) or n == 2,
    "not truncated and task != errors": lambda task, n: task == "sums" and n % 10 != 9,
    "exact_match[all]=0": lambda task, n: task == "sums",
    "exact_match[find]=1": lambda task, n: task == "sums" and n % 2 == 0,
    "f1>=0.5": lambda task, n: task == "sums" and n >= 20,
    "not f1": lambda task, n: task == "errors",
    "bleu[all]>=130": lambda task, n: task == "sums" and n >= 30,  # not among the indexed scores
    "length>100": lambda task, n: (
        task == "sums" and len(f"I think about it. The answer is {n + 1}." + " More." * n) > 100
    ),
    'subject="Number Theory"': lambda task, n: task == "sums" and n % 3 == 0,
    "subject in (Algebra, Speech)": lambda task, n: task == "errors" or n % 3 != 0,
    "subject not in (Algebra, Speech)": lambda task, n: task == "sums" and n % 3 == 0,
    "subject~theory": lambda task, n: task == "sums" and n % 3 == 0,
    "level>=3": lambda task, n: task == "sums" and n % 5 >= 3,
    "level=3": lambda task, n: task == "sums" and n % 5 == 3,
    "level != 3": lambda task, n: task == "errors" or n % 5 != 3,
    "hard": lambda task, n: task == "sums" and n % 2 == 0,
    "hard=false": lambda task, n: task == "sums" and n % 2 == 1,
    "meta.year<2005": lambda task, n: task == "sums" and n < 5,
    "`two words`='value 7'": lambda task, n: task == "sums" and n == 7,
    "doc.answer=7": lambda task, n: task == "sums" and n == 6,
    r"answer~/^\d$/": lambda task, n: task == "errors" or n < 9,
    "answer=1": lambda task, n: task == "errors" or n == 0,  # the most likely choice is the second one
    "answer[all]~'answer is 7.'": lambda task, n: task == "sums" and n == 6,
    "target=7": lambda task, n: task == "sums" and n == 6,
    r"response~/is \d\d\./": lambda task, n: task == "sums" and n >= 9,
    "response": lambda task, n: task == "sums",
    "prompt~/Question 1$/": lambda task, n: task == "sums" and n == 1,
    "output_tokens>30": lambda task, n: task == "sums" and n > 30,
    "tokens<=12": lambda task, n: task == "sums" and n <= 2,
    "finish=length": lambda task, n: task == "sums" and n % 10 == 9,
    "why~long": lambda task, n: task == "sums" and n % 10 == 9,
    "judge=gpt-strict": lambda task, n: task == "sums" and n < 10,
    "judge_reply~/^No/": lambda task, n: task == "sums" and n % 2 == 1,
    '"answer is 7."': lambda task, n: task == "sums" and n == 6,
    '(task=sums and document<2) or (task=errors and not "nothing" and document=3)': lambda task, n: (
        n < 2 if task == "sums" else n == 3
    ),
    r'score<1 and length>60 and not truncated and answer~/\d+/ and subject="Algebra"': lambda task, n: (
        task == "sums" and n % 2 == 1 and n >= 4 and n % 10 != 9 and n % 3 != 0
    ),
}


def select(index: DocumentIndex, where: str) -> list[tuple[str, int]]:
    columns = index.columns
    rows = np.flatnonzero(match_documents(index, columns, where)).tolist()
    return [(columns.tasks[columns.task[row]], int(columns.position[row])) for row in rows]


@pytest.mark.parametrize("where", CASES)
def test_an_expression_selects_the_matching_documents(index: DocumentIndex, where: str) -> None:
    assert select(index, where) == [document for document in EVERY if CASES[where](*document)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    expression=st.recursive(
        st.sampled_from(sorted(CASES)).map(lambda where: (f"({where})", CASES[where])),
        lambda inner: st.one_of(
            inner.map(lambda one: (f"not ({one[0]})", lambda task, n: not one[1](task, n))),
            st.tuples(inner, inner).map(
                lambda two: (
                    f"({two[0][0]} and {two[1][0]})",
                    lambda task, n: two[0][1](task, n) and two[1][1](task, n),
                )
            ),
            st.tuples(inner, inner).map(
                lambda two: (
                    f"({two[0][0]} or {two[1][0]})",
                    lambda task, n: two[0][1](task, n) or two[1][1](task, n),
                )
            ),
        ),
        max_leaves=5,
    )
)
def test_combinations_follow_logic(index: DocumentIndex, expression: tuple[str, Callable[..., bool]]) -> None:
    where, expected = expression
    assert select(index, where) == [document for document in EVERY if expected(*document)]


@pytest.mark.parametrize(
    ("where", "what", "position", "hint"),
    [
        ("score<1 and scor>0", "unknown name `scor`", 12, "did you mean `score`?"),
        ("subjct=Algebra", "unknown name `subjct`", 0, "did you mean `subject`?"),
        ("doc.nothing=1", "unknown column `nothing`", 0, "columns: "),
        ("score~/a/", "`score` is a number", 6, "compare it with"),
        ("score=high", "`score` is a number, `high` is not", 6, "for example"),
        ("truncated=1", "`truncated` is true or false", 0, "not truncated"),
        ("ending=cut", "no ending is called `cut`", 7, "truncated"),
        ("task=sum", "no task is called `sum`", 5, "sums, errors"),
        ("exact_match[findd]=1", "no filter is called `findd`", 0, "find, all"),
        ("length[find]=1", "`length` has no parts", 0, "only metrics"),
    ],
)
def test_names_and_values_are_checked(
    index: DocumentIndex, where: str, what: str, position: int, hint: str
) -> None:
    with pytest.raises(FilterError) as caught:
        check_expression(index, where)
    assert (caught.value.what, caught.value.position) == (what, position)
    assert hint in caught.value.hint


def test_values_for_display(index: DocumentIndex) -> None:
    rows = np.array([3, 42])
    assert read_display_values(index, index.columns, "subject", rows) == ["Number Theory", "Speech"]
    assert read_display_values(index, index.columns, "output_tokens", rows) == [3.0, None]
    assert read_display_values(index, index.columns, "wrong", rows) == ["yes", ""]
    assert read_display_values(index, index.columns, "`two words`", rows) == ["value 3", None]
    with pytest.raises(FilterError):
        read_display_values(index, index.columns, "score<1", rows)


def test_labels_can_be_selected(index: DocumentIndex, run: Run) -> None:
    assert select(index, "labelled or starred or note or label=right") == []
    append_label(run.folder, "sums", 3, who="ann", verdict="right", note="it is fine")
    append_label(run.folder, "sums", 3, who="bob", verdict="wrong")
    append_label(run.folder, "errors", 1, who="bob", star=True)
    try:
        assert select(index, "label=right") == [("sums", 3)]
        assert select(index, "label=wrong") == [("sums", 3)]
        assert select(index, "starred") == [("errors", 1)]
        assert select(index, "labelled and labeller=ann") == [("sums", 3)]
        assert select(index, "note~fine") == [("sums", 3)]
    finally:
        (run.folder / "labels.jsonl").unlink()


def test_commands_keep_an_index_of_their_own(run: Run) -> None:
    assert select_matching_documents(run, "wrong and document<4") == {"sums": [1, 3], "errors": [1, 3]}
    assert select_matching_documents(run, "wrong and document<4", ["errors"]) == {"errors": [1, 3]}
    own: Path = index_folder(run.folder) / "commands"
    stored = (own / "columns.npz").stat().st_mtime_ns
    assert not (index_folder(run.folder) / "columns.npz").exists()
    assert select_matching_documents(run, "right and document<2") == {"sums": [0], "errors": [0]}
    assert (own / "columns.npz").stat().st_mtime_ns == stored


def test_columns_that_were_read_for_the_whole_run_are_kept(
    index: DocumentIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.store.filters.evaluation._MAX_ROWS_READ_DIRECTLY", 5)
    monkeypatch.setattr("assay.store.filters.evaluation._MIN_ROWS_FOR_PREFILTER", 5)
    for where, expected in CASES.items():
        assert select(index, where) == [document for document in EVERY if expected(*document)], where
    assert list(index.folder.glob("column-*.npz"))
    index.save()
    again = DocumentIndex(index.journal, index.folder, index.task_facts)
    assert again.load()

    def refuse(*_: object) -> None:
        raise AssertionError("the journal was read again")

    monkeypatch.setattr("assay.store.filters.evaluation.read_details", refuse)
    monkeypatch.setattr("assay.store.filters.evaluation.read_values", refuse)
    assert select(again, "tokens<=12 and `two words`='value 1' and answer=2") == [("sums", 1)]


def test_an_evaluation_that_reads_texts_can_be_cancelled(index: DocumentIndex) -> None:
    asked: list[int] = []

    def is_cancelled() -> bool:
        asked.append(1)
        return True

    match_documents(index, index.columns, "score<1 and subject=Algebra", is_cancelled=is_cancelled)
    assert not asked
    for where in ("response~/x+y/", "output_tokens>3", "target=1"):
        with pytest.raises(EvaluationCancelled):
            match_documents(index, index.columns, where, is_cancelled=is_cancelled)
