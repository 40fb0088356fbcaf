from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assay.core.errors import TaskError
from assay.core.records.specs import TaskSpec
from assay.tasks.data.rows import Rows
from assay.tasks.prompts.named_prompts import list_prompts
from assay.tasks.prompts.promptsource_templates import load_templates
from assay.tasks.task import Task

ROWS = Rows([{"premise": "It rains.", "label": 1}])


def make_task(tmp_path: Path, use_prompt: str, **more: Any) -> Task:
    spec = TaskSpec(
        name="t",
        path=str(tmp_path / "t.yaml"),
        dataset_path="nli",
        test_split="test",
        doc_to_text="never",
        doc_to_target="used",
        use_prompt=use_prompt,
        **more,
    )
    return Task(spec, None, {"test": ROWS})


def test_a_file_of_prompts_replaces_question_and_target(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "prompts:\n  plain:\n    doc_to_text: 'Premise: {{premise}}'\n    doc_to_target: 'no {{label}}'\n"
    )
    task = make_task(tmp_path, "own.yaml:plain")
    assert (task.question(ROWS[0]), task.target(ROWS[0])) == ("Premise: It rains.", "no 1")


@pytest.mark.parametrize(
    ("use_prompt", "content", "message"),
    [
        ("plain", "", "is not the name of a prompt"),
        ("shelf:plain", "", "`shelf` is not a source of prompts"),
        (
            "own.yaml:plane",
            "prompts: {plain: {doc_to_text: a, doc_to_target: b}}",
            "unknown prompt: `plane`",
        ),
        ("own.yaml:plain", "prompts: {plain: {doc_to_text: a}}", "no template `doc_to_target`"),
        ("own.yaml:plain", "- 1", "not a file of prompts"),
        ("gone.yaml:plain", "", "cannot read the prompts"),
    ],
)
def test_a_prompt_that_is_not_there_is_refused(
    tmp_path: Path, use_prompt: str, content: str, message: str
) -> None:
    (tmp_path / "own.yaml").write_text(content)
    with pytest.raises(TaskError, match=message):
        make_task(tmp_path, use_prompt).question(ROWS[0])


def test_without_promptsource_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "promptsource", None)
    with pytest.raises(TaskError, match="promptsource, which has no release for Python") as caught:
        make_task(tmp_path, "promptsource:GPT-3 style").question(ROWS[0])
    assert "pip download promptsource==0.2.3" in caught.value.hint


TEMPLATES = """
dataset: nli
templates:
  1f: !Template
    answer_choices: "No ||| Yes, {{label}}"
    jinja: "{{premise}} True?\\n|||\\n{{ answer_choices[label] }}"
    metadata: !TemplateMetadata {original_task: true}
    name: GPT-3 style
    reference: ''
  2f: !Template
    answer_choices: null
    jinja: "{{premise}}"
    name: no target
"""


def write_checkout(folder: Path, dataset: str) -> Path:
    file = folder / "promptsource" / "templates" / dataset / "templates.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(TEMPLATES)
    return folder


def test_templates_are_read_from_a_checkout_of_promptsource(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_PROMPTSOURCE", str(write_checkout(tmp_path / "checkout", "nli")))
    task = make_task(
        tmp_path, "promptsource:GPT-3 style", output_type="multiple_choice", doc_to_choice=["a", "b"]
    )
    fields = {"premise": "It ||| rains.", "label": 1}
    assert task.question(fields) == "It ||| rains. True?"
    assert task.target(fields) == "Yes, 1"
    assert task.choices(fields) == ["No", "Yes, 1"]
    long = make_task(tmp_path, "promptsource:no target")
    assert long.question({"premise": "a" * 3000}) == long.spec.fewshot_delimiter
    with pytest.raises(TaskError, match="unknown prompt: `GPT-4 style`"):
        make_task(tmp_path, "promptsource:GPT-4 style").question(ROWS[0])


def test_prompts_that_match_a_pattern_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_PROMPTSOURCE", str(write_checkout(tmp_path / "promptsource-0.2.3", "nli")))
    found = list_prompts("promptsource:*", "nli", None, folder=tmp_path)
    assert found == ["promptsource:GPT-3 style", "promptsource:no target"]
    assert list_prompts("promptsource:GPT*", "nli", None, folder=tmp_path) == found[:1]
    with pytest.raises(TaskError, match="no templates for `nli`, `rte`"):
        list_prompts("promptsource:*", "nli", "rte", folder=tmp_path)


def test_templates_of_a_dataset_are_found_without_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_PROMPTSOURCE", str(write_checkout(tmp_path, "super_glue/cb")))
    known = load_templates(tmp_path / "promptsource" / "templates", "aps/super_glue", "cb")
    assert list(known) == ["GPT-3 style", "no target"]
    assert len(known["no target"].apply({"premise": "x" * 3000})[0]) == 2048
    with pytest.raises(TaskError, match="no templates for `aps/super_glue`, `rte`"):
        load_templates(tmp_path / "promptsource" / "templates", "aps/super_glue", "rte")


def test_a_folder_without_templates_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_PROMPTSOURCE", str(tmp_path))
    with pytest.raises(TaskError, match="no folder with the templates of promptsource"):
        make_task(tmp_path, "promptsource:x").question(ROWS[0])


class Template:
    """A template with the methods promptsource's have."""

    def apply(self, fields: Any) -> list[str]:
        return [f"{fields['premise']} True?", "Yes"]

    def get_answer_choices_list(self, fields: Any) -> list[str]:
        return ["No", "Yes"]


class DatasetTemplates(dict[str, Template]):
    def __init__(self, dataset: str, subset: str | None = None) -> None:
        super().__init__({"GPT-3 style": Template()})
        assert (dataset, subset) == ("nli", None)

    @property
    def all_template_names(self) -> list[str]:
        return list(self)


def test_a_template_of_promptsource_gives_question_target_and_choices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, templates = ModuleType("promptsource"), ModuleType("promptsource.templates")
    templates.DatasetTemplates = DatasetTemplates  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "promptsource", package)
    monkeypatch.setitem(sys.modules, "promptsource.templates", templates)
    task = make_task(
        tmp_path, "promptsource:GPT-3 style", output_type="multiple_choice", doc_to_choice=["a", "b"]
    )
    assert task.question(ROWS[0]) == "It rains. True?"
    assert task.target(ROWS[0]) == "Yes"
    assert task.choices(ROWS[0]) == ["No", "Yes"]
    with pytest.raises(TaskError, match="unknown prompt: `GPT-4 style`"):
        make_task(tmp_path, "promptsource:GPT-4 style").question(ROWS[0])
