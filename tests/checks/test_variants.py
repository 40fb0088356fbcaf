"""`assay check` renders every prompt variant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.making import write_choices

from assay.checks.checker import CheckOptions, check_tasks
from assay.tasks.files.index import TaskIndex

LISTED = "{{question}}\nA. {{choices[0]}}\nB. {{choices[1]}}"


def find(workspace: Path, variants: list[dict[str, Any]], **keys: Any) -> list[tuple[str, str]]:
    path = write_choices(
        workspace, variants=variants, **{"doc_to_text": LISTED, "doc_to_choice": ["A", "B"], **keys}
    )
    (subject,) = check_tasks([str(path)], TaskIndex.build([]), CheckOptions()).subjects
    return [(one.severity, one.what) for one in subject.findings if one.kind == "variant"]


def test_variants_that_render_and_differ_are_fine(workspace: Path) -> None:
    assert (
        find(workspace, [{"name": "a", "choice_order": "reverse"}, {"name": "b", "doc_to_text": "Q"}]) == []
    )


def test_a_variant_that_changes_no_prompt_is_a_warning(workspace: Path) -> None:
    assert find(workspace, [{"name": "a", "fewshot_seed": 3}]) == [
        ("warning", "the variant `a` has the same prompts as the task")
    ]


def test_a_variant_that_cannot_be_rendered_is_an_error(workspace: Path) -> None:
    ((severity, what),) = find(
        workspace, [{"name": "a", "choice_order": "reverse"}], doc_to_text="{{question}} A. no B. yes"
    )
    assert severity == "error"
    assert what.startswith("the choices cannot be permuted")


def test_the_variables_of_a_choice_column_are_known(workspace: Path) -> None:
    path = write_choices(
        workspace,
        choice_column="choices",
        doc_to_text="{{question}}\n{{choice_list}}",
        doc_to_choice="{{choice_letters}}",
    )
    (subject,) = check_tasks([str(path)], TaskIndex.build([]), CheckOptions()).subjects
    assert [one.what for one in subject.findings if one.kind == "column"] == []
