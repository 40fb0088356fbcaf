"""`variants:` in a task file: what is accepted, and the errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.making import write_choices

from assay.core.errors import AssayError
from assay.tasks.files.task_loader import load_task


def load(workspace: Path, variants: Any, **keys: Any) -> Any:
    return load_task(write_choices(workspace, variants=variants, **keys))


def test_each_variant_names_what_it_varies(workspace: Path) -> None:
    spec = load(
        workspace,
        [
            {"name": "short", "doc_to_text": "{{question}}"},
            {"name": "mixed", "choice_order": "shuffle", "choice_letters": ["1", "2"], "fewshot_seed": 3},
            {"name": "polite", "system_instruction": "Please.", "target_delimiter": "\n"},
        ],
    )
    assert [one.factors for one in spec.variants] == [
        ("template",),
        ("order", "letters", "shots"),
        ("delimiter", "system"),
    ]
    assert [one.describe() for one in spec.variants] == [
        "doc_to_text '{{question}}'",
        "order shuffle, letters 1 2, few-shot seed 3",
        "system 'Please.', target_delimiter '\\n'",
    ]


@pytest.mark.parametrize(
    ("variants", "said"),
    [
        ("short", "`variants` must be a list"),
        ([], "`variants` must be a list"),
        (["short"], "a variant must be a mapping"),
        ([{"doc_to_text": "a"}], "a variant needs a name"),
        ([{"name": "a b", "doc_to_text": "a"}], "a variant needs a name"),
        ([{"name": "same"}], "the variant changes nothing"),
        ([{"name": "base", "doc_to_text": "a"}], "`base` is the name of the unchanged prompt"),
        ([{"name": "a", "doc_to_text": "a"}, {"name": "a", "doc_to_text": "b"}], "used twice: `a`"),
        ([{"name": "a", "doc_to_txt": "a"}], "a variant has no key `doc_to_txt`"),
        ([{"name": "a", "choice_order": "backwards"}], "invalid `choice_order`: 'backwards'"),
        ([{"name": "a", "choice_letters": ["x", "x"]}], "must be a list of different texts"),
        ([{"name": "a", "fewshot_order": "sorted"}], "invalid `fewshot_order`: 'sorted'"),
        ([{"name": "a", "fewshot_seed": "3"}], "`fewshot_seed` must be a whole number"),
        ([{"name": "a", "system_instruction": 3}], "`system_instruction` must be a text"),
    ],
)
def test_errors_name_the_key(workspace: Path, variants: Any, said: str) -> None:
    with pytest.raises(AssayError, match="variants") as caught:
        load(workspace, variants)
    assert said in str(caught.value)


def test_letters_of_a_task_need_a_choice_column(workspace: Path) -> None:
    with pytest.raises(AssayError, match="the task has no `choice_column`"):
        load(workspace, None, choice_letters=["x", "y"])
    assert load(workspace, None, choice_column="choices", choice_letters=["x", "y"]).choice_letters == (
        "x",
        "y",
    )
