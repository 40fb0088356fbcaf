"""`assay check`: output, JSON and exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Assay
from tests.making import Function, write_task


def test_correct_task_has_no_findings(workspace: Path, assay_command: Assay) -> None:
    write_task(workspace)
    called = assay_command("check", "sums.yaml")
    assert called == (0, "1 task checked: no errors, no warnings, no notes\n", "")


def test_the_quickstart_tasks_have_no_findings(assay_command: Assay) -> None:
    code, out, _ = assay_command("check", "quickstart")
    assert (code, out) == (0, "6 tasks, 1 group checked: no errors, no warnings, no notes\n")


def test_a_finding_says_what_where_and_a_hint(workspace: Path, assay_command: Assay) -> None:
    path = write_task(workspace, doc_to_txt="x")
    line = path.read_text("utf-8").splitlines().index("doc_to_txt: x") + 1
    assert assay_command("check", "sums.yaml").out == (
        "sums\n"
        "  error: a task has no key `doc_to_txt`\n"
        f"    at sums.yaml:{line}, doc_to_txt\n"
        "    hint: did you mean `doc_to_text`?\n"
        "\n"
        "1 task checked: 1 error, no warnings, no notes\n"
    )


@pytest.mark.parametrize(
    ("keys", "code"),
    [({"doc_to_txt": "x"}, 2), ({"repeats": 3}, 0), ({"unsafe_code": True}, 0), ({}, 0)],
    ids=["an error", "a warning", "a note", "nothing"],
)
def test_it_exits_2_for_errors_only(
    workspace: Path, assay_command: Assay, keys: dict[str, Any], code: int
) -> None:
    write_task(workspace, **keys)
    assert assay_command("check", "sums.yaml").code == code
    assert assay_command("check", "sums.yaml", "--json").code == code


def test_tasks_with_the_same_findings_are_printed_together(workspace: Path, assay_command: Assay) -> None:
    for number in range(6):
        write_task(workspace / "tasks", f"sums_{number}", helpers="raise ValueError('no')", doc_to_text=Function("utils.one"))  # fmt: skip
    out = assay_command("check", "tasks/").out
    assert out.count("error:") == 1
    assert out.startswith("sums_0, sums_1, sums_2, sums_3 and 2 more\n")
    assert out.endswith("6 tasks checked: 6 errors, no warnings, no notes\n")


def test_json_contains_all_findings(workspace: Path, assay_command: Assay) -> None:
    write_task(workspace / "tasks", "good")
    path = write_task(workspace / "tasks", "bad", repeats=3, doc_to_txt="x")
    out = assay_command("check", "good,bad", "--include_path", "tasks", "--json").out
    report = json.loads(out)
    assert [subject["name"] for subject in report["subjects"]] == ["good", "bad"]
    assert report["subjects"][0] == {
        "name": "good",
        "kind": "task",
        "path": str(Path("tasks/good.yaml")),
        "findings": [],
    }
    first, second = report["subjects"][1]["findings"]
    assert first.keys() == second.keys() == {"severity", "kind", "what", "where", "hint"}
    assert (first["severity"], second["severity"]) == ("error", "warning")
    assert first["where"].startswith(f"{path.relative_to(workspace)}:")
    assert report["counts"] == {"tasks": 2, "groups": 0, "errors": 1, "warnings": 1, "notes": 0}
    assert report["kinds"] == {"key": 1, "repeats": 1}


def test_output_of_helpers_is_not_in_the_json(workspace: Path, assay_command: Assay) -> None:
    write_task(
        workspace, helpers="print('hello')\ndef one(doc): return 'x'", doc_to_text=Function("utils.one")
    )
    assert json.loads(assay_command("check", "sums.yaml", "--json").out)["counts"]["tasks"] == 1


def test_unknown_name_is_a_finding(workspace: Path, assay_command: Assay) -> None:
    code, out, err = assay_command("check", "quickstart_adition", "quickstart_copy")
    assert (code, err) == (2, "")
    assert "no task is called `quickstart_adition`" in out
    assert "did you mean `quickstart_addition`?" in out
    assert out.endswith("1 task checked: 1 error, no warnings, no notes\n")


@pytest.mark.parametrize("flag", ["--no_data", "--no-data"])
def test_no_data_does_not_open_the_dataset(workspace: Path, assay_command: Assay, flag: str) -> None:
    write_task(workspace, dataset_kwargs={"data_files": {"test": "gone.jsonl"}})
    assert assay_command("check", "sums.yaml").code == 2
    assert assay_command("check", "sums.yaml", flag).code == 0


def test_a_data_root_serves_the_dataset(workspace: Path, assay_command: Assay) -> None:
    pytest.importorskip("datasets")
    folder = workspace / "hub" / "org" / "sums"
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    write_task(workspace, dataset_path="org/sums", dataset_kwargs=None, doc_to_text="{{qestion}}")
    assert "not checked: dataset `org/sums` is not available" in assay_command("check", "sums.yaml").out
    out = assay_command("check", "sums.yaml", "--data_root", "hub").out
    assert "names `qestion`" in out
    assert "not checked" not in out


@pytest.mark.parametrize("jobs", ["0", "many"])
def test_jobs_must_be_a_number(assay_command: Assay, jobs: str) -> None:
    assert assay_command("check", "quickstart", "--jobs", jobs).code == 2


def test_check_requires_tasks(assay_command: Assay) -> None:
    code, _, err = assay_command("check")
    assert code == 2
    assert "assay check --help" in err
