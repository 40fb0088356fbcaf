"""Checks of groups and of the selection: every problem is reported, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.making import write_choices, write_task

from assay.checks.checker import CheckOptions, check_tasks
from assay.checks.findings import Finding
from assay.tasks.files.index import TaskIndex


def collect_findings(folder: Path, *words: str, data: bool = True, **options: Any) -> list[Finding]:
    """Return the findings of a folder, or of the selected tasks."""
    index = TaskIndex.build([folder])
    report = check_tasks(words or ["*"], index, CheckOptions(data=data), **options)
    return [finding for subject in report.subjects for finding in subject.findings]


def list_kinds(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(finding.severity, finding.kind) for finding in findings]


# --- groups --------------------------------------------------------------------------------------------


def write_group(folder: Path, name: str = "both", **keys: Any) -> Path:
    """Write a group of two tasks with further keys."""
    write_choices(folder, "first", metric_list=[{"metric": "acc"}, {"metric": "exact_match"}])
    write_choices(folder, "second")
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({"group": name, "task": ["first", "second"], **keys}))
    return path


GROUPS: list[tuple[str, dict[str, Any], list[tuple[str, str]], str]] = [
    ("nothing wrong", {"aggregate_metric_list": [{"metric": "acc"}]}, [], ""),
    ("an unknown member", {"task": ["first", "secnod"]}, [("error", "member")], "did you mean `second`"),
    ("a member of a wrong type", {"task": ["first", 5]}, [("error", "group")], "must be a name"),
    ("no members", {"task": []}, [("warning", "group")], "no members"),
    ("itself inside", {"task": ["both"]}, [("error", "cycle")], "both > both"),
    ("a metric that no member reports", {"aggregate_metric_list": [{"metric": "acc_nrom"}]}, [("warning", "group-metric")], "they report: acc, exact_match"),
    ("a metric that one member reports", {"aggregate_metric_list": [{"metric": "exact_match"}]}, [("warning", "group-metric")], "is missing in 1 of 2 tasks: second"),
    ("a pipeline that no member has", {"aggregate_metric_list": [{"metric": "acc", "filter_list": "strict"}]}, [("warning", "group-metric")], "they have: none"),
    ("a metric without name", {"aggregate_metric_list": [{"aggregation": "mean"}]}, [("error", "key")], "needs a `metric`"),
    ("an unknown aggregation", {"aggregate_metric_list": [{"metric": "acc", "aggregation": "meen"}]}, [("error", "scoring")], "did you mean `mean`"),
    ("a weight that is not a boolean", {"aggregate_metric_list": [{"metric": "acc", "weight_by_size": "truez"}]}, [("warning", "key")], "truez"),
    ("an unknown key", {"aggregate_metrics": []}, [("error", "key")], "did you mean `aggregate_metric_list`"),
    ("a task with settings", {"task": [{"task": "first", "repeats": 3}]}, [("note", "repeats")], "`repeats` has no effect"),
    ("an inline task", {"task": [{"task": "new", "dataset_path": "x/y", "doc_to_text": "{{"}]}, [("error", "key"), ("warning", "no-target"), ("error", "template")], "no split"),
    ("an inline task with include", {"task": [{"task": "new", "include": "first.yaml", "metric_list": [{"metric": "acc"}]}]}, [], ""),
    ("an inline task with a missing include", {"task": [{"task": "new", "include": "x", "doc_to_text": "x"}]}, [("error", "yaml")], "x"),
    ("tasks that the group defines", {"dataset_path": "x/y", "doc_to_text": "{{", "task": ["new"]}, [("error", "key"), ("warning", "no-target"), ("error", "template")], "no split"),
    ("an inline group", {"task": [{"group": "inner", "task": ["frist"]}]}, [("error", "member")], "did you mean `first`"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "expected", "part"), [case[1:] for case in GROUPS], ids=[case[0] for case in GROUPS])  # fmt: skip
def test_findings_of_a_group(
    tmp_path: Path, keys: dict[str, Any], expected: list[tuple[str, str]], part: str
) -> None:
    write_group(tmp_path, **keys)
    found = collect_findings(tmp_path, "both")
    assert list_kinds(found) == expected, found
    assert any(part in f"{finding.what} {finding.hint}" for finding in found) or not expected


def test_mutually_nested_groups_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("group: a\ntask: [b]\n")
    (tmp_path / "b.yaml").write_text("group: b\ntask: [a]\n")
    found = collect_findings(tmp_path, "a")
    assert list_kinds(found) == [("error", "cycle")] * 2
    assert "a > b > a" in found[0].what


def test_group_includes_its_tasks(tmp_path: Path) -> None:
    write_group(tmp_path)
    report = check_tasks(["both"], TaskIndex.build([tmp_path]))
    assert [(subject.kind, subject.name) for subject in report.subjects] == [
        ("group", "both"),
        ("task", "first"),
        ("task", "second"),
    ]


# --- selection -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["sums", "su*", "numbers", "{folder}", "{folder}/sums.yaml"])
def test_a_task_is_found_by_name_glob_tag_folder_and_file(tmp_path: Path, word: str) -> None:
    write_task(tmp_path, tag="numbers")
    report = check_tasks([word.format(folder=tmp_path)], TaskIndex.build([tmp_path]))
    assert [subject.name for subject in report.subjects] == ["sums"]


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("smus", "did you mean `sums`"),
        ("x*", "no task is called"),
        ("{folder}/gone.yaml", "cannot read"),
        ("{folder}/empty", "no task file in folder"),
        ("{folder}/template.yaml", "neither a task nor a group"),
    ],
)
def test_unknown_word_is_an_error_and_the_rest_is_checked(tmp_path: Path, word: str, part: str) -> None:
    write_task(tmp_path, unsafe_code=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "template.yaml").write_text("output_type: generate_until\n")
    found = collect_findings(tmp_path, word.format(folder=tmp_path), "sums")
    assert [finding.severity for finding in found] == ["error", "note"]
    assert part in f"{found[0].what} {found[0].hint}"


def test_a_member_with_a_class_defines_a_task(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("class Mine: ...\n")
    (tmp_path / "g.yaml").write_text("group: g\ntask:\n  - task: mine\n    class: !function task.Mine\n")
    assert "member" not in [kind for _, kind in list_kinds(collect_findings(tmp_path, data=False))]


def test_a_pattern_of_prompts_is_a_task_for_each(tmp_path: Path) -> None:
    write_choices(tmp_path, "first")
    prompts = {
        "one": {"doc_to_text": "{{", "doc_to_target": "x"},
        "two": {"doc_to_text": "", "doc_to_target": "x"},
    }
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "p.yaml").write_text(json.dumps({"prompts": prompts}))
    member = {
        "include": "first.yaml",
        "doc_to_choice": None,
        "metric_list": [{"metric": "exact_match"}],
        "use_prompt": "prompts/p.yaml:*",
    }
    (tmp_path / "g.yaml").write_text(json.dumps({"group": "g", "task": [{"task": "new", **member}]}))
    found = [
        finding for finding in collect_findings(tmp_path, "g", data=False) if finding.severity == "error"
    ]
    assert [finding.kind for finding in found] == ["template"], "of the prompt `one`"
    (tmp_path / "prompts" / "p.yaml").unlink()
    found = collect_findings(tmp_path, "g", data=False)
    assert [(finding.kind, "cannot read the prompts" in finding.what) for finding in found] == [
        ("template", True)
    ]


def test_a_member_that_is_a_task_may_include_a_file(tmp_path: Path) -> None:
    write_choices(tmp_path, "first")
    (tmp_path / "_more_yaml").write_text('doc_to_text: "{{"\n')
    member = {"task": "first", "include": "_more_yaml"}
    (tmp_path / "g.yaml").write_text(json.dumps({"group": "g", "task": [member]}))
    assert ("error", "template") in list_kinds(collect_findings(tmp_path, "g", data=False))
    (tmp_path / "_more_yaml").unlink()
    assert list_kinds(collect_findings(tmp_path, "g", data=False)) == [("error", "yaml")]


def test_members_of_a_folder_with_a_registry(tmp_path: Path) -> None:
    folder = tmp_path / "lm_eval" / "tasks"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("GROUP_REGISTRY = {}\n")
    (folder / "task.py").write_text(
        'def register_task(name): ...\n\n\n@register_task("mine")\nclass Mine: ...\n'
    )
    (folder / "g.yaml").write_text("group: g\ntask: [mine, gone]\n")
    found = [one for one in collect_findings(folder, "g", data=False) if one.kind == "member"]
    assert [(one.severity, "without `gone`" in one.what) for one in found] == [("warning", True)]
