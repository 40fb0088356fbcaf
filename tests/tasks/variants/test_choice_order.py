"""Permuted choices and other letters: the prompt, the choices and the target change together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.making import Function, make_model, plan_run, write_task

from assay.core.errors import AssayError
from assay.core.records.requests import Request
from assay.tasks.task import Task

OPTIONS = [["red", "blue", "green"], ["one", "two", "three"], ["cat", "dog", "cow"], ["sun", "moon", "star"]]
ROWS: list[dict[str, Any]] = [
    {"question": f"Number {n}?", "options": options, "answer": n % 3} for n, options in enumerate(OPTIONS)
]
LISTED = "{{question}}\nA. {{options[0]}}\nB. {{options[1]}}\nC. {{options[2]}}\nAnswer:"


def write_listed(folder: Path, rows: list[dict[str, Any]] | None = None, **keys: Any) -> Path:
    return write_task(
        folder,
        "colours",
        rows or ROWS,
        **{
            "output_type": "multiple_choice",
            "doc_to_text": LISTED,
            "doc_to_choice": ["A", "B", "C"],
            "doc_to_target": "answer",
            "metric_list": [{"metric": "acc"}],
            **keys,
        },
    )


def open_variant(path: Path, variant: dict[str, Any], **options: Any) -> Task:
    """Return the variant of a task whose file defines only this one."""
    text = path.read_text("utf-8")
    import yaml

    path.write_text(f"{text}\n{yaml.safe_dump({'variants': [{'name': 'other', **variant}]})}", "utf-8")
    plan = plan_run(make_model(), tasks=[str(path)], **options)
    return plan.tasks[f"{path.stem}@other"].task


def render(task: Task, document: int = 0) -> list[Request]:
    return list(list(task.render())[document][1])


def read_prompt(task: Task, document: int = 0) -> str:
    return render(task, document)[0].prompt.text


def find_gold_text(task: Task, document: int) -> str:
    """Return the text behind the letter of the target, as a reader of the prompt finds it."""
    fields = ROWS[document]
    letter = (task.choices(fields) or ())[task.target(fields)]
    lines = read_prompt(task, document).splitlines()
    return next(line for line in lines if line.startswith(f"{letter}. ")).partition(". ")[2]


@pytest.mark.parametrize("order", ["reverse", "rotate:1", "rotate:5", "gold:0", "gold:2", "shuffle"])
def test_the_letter_of_the_target_stands_before_the_same_text(workspace: Path, order: str) -> None:
    task = open_variant(write_listed(workspace), {"choice_order": order, "seed": 3})
    for document, row in enumerate(ROWS):
        assert find_gold_text(task, document) == row["options"][row["answer"]]


def test_the_correct_choice_swaps_places(workspace: Path) -> None:
    task = open_variant(write_listed(workspace), {"choice_order": "gold:2"})
    assert [task.target(row) for row in ROWS] == [2, 2, 2, 2]
    assert read_prompt(task) == "Number 0?\nA. green\nB. blue\nC. red\nAnswer:"


def test_shuffled_orders_differ_between_documents_and_not_between_passes(workspace: Path) -> None:
    task = open_variant(write_listed(workspace), {"choice_order": "shuffle"})
    orders = [task.choice_fields.find_order(row) for row in ROWS]  # type: ignore[attr-defined]
    assert len({tuple(order) for order in orders}) > 1
    assert [read_prompt(task, n) for n in range(4)] == [read_prompt(task, n) for n in range(4)]


def test_letters_change_in_the_prompt_and_in_the_choices(workspace: Path) -> None:
    task = open_variant(write_listed(workspace), {"choice_letters": ["1", "2", "3"]})
    assert read_prompt(task) == "Number 0?\n1. red\n2. blue\n3. green\nAnswer:"
    assert [request.continuation for request in render(task)] == [" 1", " 2", " 3"]  # type: ignore[union-attr]
    assert find_gold_text(task, 1) == "two"


def test_the_format_of_letters_is_kept(workspace: Path) -> None:
    path = write_listed(
        workspace,
        doc_to_text="{{question}} (A) {{options[0]}} (B) {{options[1]}} (C) {{options[2]}}",
        doc_to_choice=["(A)", "(B)", "(C)"],
    )
    task = open_variant(path, {"choice_letters": ["x", "y", "z"], "choice_order": "reverse"})
    assert read_prompt(task) == "Number 0? (x) green (y) blue (z) red"
    assert task.choices(ROWS[0]) == ["(x)", "(y)", "(z)"]
    assert task.target(ROWS[0]) == 2


def test_a_target_that_is_a_letter_becomes_another_letter(workspace: Path) -> None:
    rows = [{**row, "answer": "ABC"[row["answer"]]} for row in ROWS]
    path = write_listed(workspace, rows)
    task = open_variant(path, {"choice_order": "reverse", "choice_letters": ["1", "2", "3"]})
    assert [task.target(row) for row in rows] == ["3", "2", "1", "3"]


def test_choices_that_are_texts_move_with_the_prompt(workspace: Path) -> None:
    path = write_listed(
        workspace, doc_to_text="{{question}} {{options | join(' or ')}}?", doc_to_choice="options"
    )
    task = open_variant(path, {"choice_order": "reverse"})
    assert read_prompt(task) == "Number 0? green or blue or red?"
    assert [request.continuation for request in render(task)] == [" green", " blue", " red"]  # type: ignore[union-attr]
    assert task.target(ROWS[0]) == 2


def test_one_column_per_choice_is_found(workspace: Path) -> None:
    rows = [
        {
            "question": row["question"],
            "answer": row["answer"],
            **dict(zip(("opa", "opb", "opc"), row["options"], strict=True)),
        }
        for row in ROWS
    ]
    path = write_listed(
        workspace, rows, doc_to_text="{{question}}\nA. {{opa}}\nB. {{opb}}\nC. {{opc}}\nAnswer:"
    )
    task = open_variant(path, {"choice_order": "reverse"})
    assert read_prompt(task) == "Number 0?\nA. green\nB. blue\nC. red\nAnswer:"
    assert task.target(rows[0]) == 2


def test_a_function_that_lists_the_choices_is_supported(workspace: Path) -> None:
    (workspace / "utils.py").write_text(
        "def ask(doc):\n"
        "    lines = [f'{letter}. {text}' for letter, text in zip('ABC', doc['options'])]\n"
        "    return '\\n'.join([doc['question'], *lines, 'Answer:'])\n"
    )
    task = open_variant_of_function(workspace)
    assert read_prompt(task) == "Number 0?\n1. green\n2. blue\n3. red\nAnswer:"


def open_variant_of_function(workspace: Path) -> Task:
    path = write_listed(workspace, doc_to_text=Function("utils.ask"))
    return open_variant(path, {"choice_order": "reverse", "choice_letters": ["1", "2", "3"]})


def test_few_shot_examples_are_permuted_too(workspace: Path) -> None:
    path = write_listed(workspace, fewshot_split="test", fewshot_config={"sampler": "first_n"})
    task = open_variant(path, {"choice_order": "reverse", "choice_letters": ["1", "2", "3"]}, num_fewshot=1)
    assert read_prompt(task) == (
        "Number 1?\n1. three\n2. two\n3. one\nAnswer: 2\n\nNumber 0?\n1. green\n2. blue\n3. red\nAnswer:"
    )


def test_generated_letters_are_supported(workspace: Path) -> None:
    rows = [{**row, "answer": "ABC"[row["answer"]]} for row in ROWS]
    path = write_listed(
        workspace,
        rows,
        output_type="generate_until",
        doc_to_choice=None,
        metric_list=[{"metric": "exact_match"}],
    )
    task = open_variant(path, {"choice_order": "reverse"})
    assert read_prompt(task) == "Number 0?\nA. green\nB. blue\nC. red\nAnswer:"
    assert [task.target(row) for row in rows] == ["C", "B", "A", "C"]


@pytest.mark.parametrize(
    ("keys", "variant", "said"),
    [
        ({"doc_to_text": "{{question}} {{hidden}}"}, {"choice_order": "reverse"}, "no column of the document lists"),
        ({"doc_to_text": LISTED + " {{more[0]}} {{more[1]}} A. {{more[0]}} B. {{more[1]}}"},
         {"choice_order": "reverse"}, "shows several lists, `options` and `more`"),
        ({"doc_to_text": "Say A or B or C.\n" + LISTED}, {"choice_letters": ["1", "2", "3"]}, "names them not only"),
        ({}, {"choice_letters": ["1", "2"]}, "has 2 letters, but the document has more choices"),
        ({"process_results": Function("utils.judge")}, {"choice_order": "reverse"}, "`process_results` reads the document"),
    ],
)  # fmt: skip
def test_prompts_that_cannot_be_permuted_are_refused(
    workspace: Path, keys: dict[str, Any], variant: dict[str, Any], said: str
) -> None:
    (workspace / "utils.py").write_text("def judge(doc, results):\n    return {'acc': 1.0}\n")
    rows = [{**row, "hidden": "A. red B. blue C. green", "more": ["x", "y"]} for row in ROWS]
    with pytest.raises(AssayError, match=said):
        open_variant(write_listed(workspace, rows, **keys), variant)


def test_letters_in_the_text_of_a_document_do_not_matter(workspace: Path) -> None:
    rows = [{**ROWS[0], "question": "Is it A or B?"}, *ROWS[1:]]
    task = open_variant(write_listed(workspace, rows), {"choice_letters": ["1", "2", "3"]})
    assert read_prompt(task) == "Is it A or B?\n1. red\n2. blue\n3. green\nAnswer:"


def test_a_target_out_of_range_stays_wrong(workspace: Path) -> None:
    rows = [{**ROWS[0], "answer": 7}, *ROWS[1:]]
    task = open_variant(write_listed(workspace, rows), {"choice_order": "reverse"})
    assert task.target(rows[0]) == 7


def test_the_variables_of_a_choice_column_change_with_the_variant(workspace: Path) -> None:
    path = write_listed(
        workspace,
        choice_column="options",
        doc_to_text="{{question}}\n{{choice_list}}\n{{choice_letters | join('/')}}: {{choice_texts[0]}}",
        doc_to_choice="{{choice_letters}}",
    )
    plain = plan_run(make_model(), tasks=[str(path)]).tasks["colours"].task
    assert read_prompt(plain) == "Number 0?\nA. red\nB. blue\nC. green\nA/B/C: red"
    task = open_variant(path, {"choice_order": "reverse", "choice_letters": ["1", "2", "3"]})
    assert read_prompt(task) == "Number 0?\n1. green\n2. blue\n3. red\n1/2/3: green"
    assert task.choices(ROWS[0]) == ["1", "2", "3"]
    assert task.target(ROWS[0]) == 2
