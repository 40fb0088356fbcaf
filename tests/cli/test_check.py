"""`assay check`: output, JSON and exit code."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Assay
from tests.making import Function, write_task


def test_correct_task_has_no_findings(workspace: Path, assay_command: Assay) -> None:
    write_task(workspace)
    called = assay_command("check", "sums.yaml")
    assert (called.code, called.err) == (0, "")
    assert called.out.splitlines()[0] == "1 task checked: no errors, no warnings, no notes"


def test_the_quickstart_tasks_have_one_note(assay_command: Assay) -> None:
    code, out, _ = assay_command("check", "quickstart")
    assert code == 0
    assert out.startswith("quickstart_addition\n  note: the target is not a complete answer")
    assert "6 tasks, 1 group checked: no errors, no warnings, 1 note\n" in out


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
        "5 of 6 documents looked at; --documents all looks at every one\n"
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
        "documents": {"looked_at": 5, "total": 6},
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
    assert "1 task checked: 1 error, no warnings, no notes\n" in out


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
    assert "uses `qestion`" in out
    assert "not checked" not in out


@pytest.mark.parametrize("jobs", ["0", "many"])
def test_jobs_must_be_a_number(assay_command: Assay, jobs: str) -> None:
    assert assay_command("check", "quickstart", "--jobs", jobs).code == 2


def test_check_requires_tasks(assay_command: Assay) -> None:
    code, _, err = assay_command("check")
    assert code == 2
    assert "assay check --help" in err


MISSING = """
import no_package_one


def text(doc): return "x"
"""
DEFERRED = """
def text(doc):
    import no_package_one, sklearn_nothing
    return "x"


def target(doc):
    import no_package_one
    return "y"
"""


def test_missing_packages_are_listed_once_with_one_command(workspace: Path, assay_command: Assay) -> None:
    for name in ("a", "b"):
        write_task(workspace / name, name, helpers=MISSING, doc_to_text=Function("utils.text"))
    functions: dict[str, Any] = {
        "doc_to_text": Function("utils.text"),
        "doc_to_target": Function("utils.target"),
    }
    write_task(workspace / "c", "c", helpers=DEFERRED, **functions)
    code, out, _ = assay_command("check", "a/", "b/", "c/", "--no_data")
    assert code == 2
    assert out.count("no_package_one`") == 1
    assert "needed by a, b, c" in out
    assert out.count("pip install") == 1
    assert "install: pip install no_package_one sklearn_nothing\n" in out
    report = json.loads(assay_command("check", "a/", "--no_data", "--json").out)
    assert report["install"] == "pip install no_package_one"


def test_every_import_of_a_helper_file_is_listed_at_once(workspace: Path, assay_command: Assay) -> None:
    helpers = (
        "import no_package_one\nimport json, no_package_two.part\nfrom beside import text\nimport no_package_one\n"
        "try:\n    import no_package_optional\nexcept ImportError:\n    pass\n"
    )
    write_task(workspace, "a", helpers=helpers, doc_to_text=Function("utils.text"))
    (workspace / "beside.py").write_text("def text(doc): ...\n", encoding="utf-8")
    _, out, _ = assay_command("check", "a.yaml", "--no_data")
    assert "install: pip install no_package_one no_package_two\n" in out
    assert out.count("no_package_one`") == out.count("no_package_two`") == 1


def test_installation_asks_first(workspace: Path, assay_command: Assay) -> None:
    write_task(workspace, "a", helpers=MISSING, doc_to_text=Function("utils.text"))
    code, _, err = assay_command("check", "a.yaml", "--no_data", "--install")
    assert code == 2
    assert "cannot ask for confirmation" in err


def test_declined_installation_ends_like_the_check(
    workspace: Path, assay_command: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    write_task(workspace, "a", helpers=MISSING, doc_to_text=Function("utils.text"))
    code, _, err = assay_command("check", "a.yaml", "--no_data", "--install")
    assert code == 2
    assert "run `pip install no_package_one`?" in err and "interrupted" not in err


def test_failed_installation_is_an_error(
    workspace: Path, assay_command: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pip")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(workspace))
    write_task(workspace, "a", helpers=MISSING, doc_to_text=Function("utils.text"))
    code, _, err = assay_command("check", "a.yaml", "--no_data", "--install", "--yes")
    assert code == 2
    assert "`pip install no_package_one` failed (exit code 1)" in err


def test_plan_lists_each_missing_package_once(workspace: Path, assay_command: Assay) -> None:
    for name in ("a", "b"):
        helpers = f"import no_package_{name}\ndef text(doc): ...\ndef target(doc): ...\n"
        functions: dict[str, Any] = {
            "doc_to_text": Function("utils.text"),
            "doc_to_target": Function("utils.target"),
        }
        write_task(workspace / name, name, helpers=helpers, **functions)
    code, _, err = assay_command("plan", "a/a.yaml", "b/b.yaml", "--model", "dummy")
    assert code == 2
    assert err.count("needs the package `no_package_a`") == 1
    assert "install: pip install no_package_a no_package_b" in err


def test_plan_lists_every_package_of_a_helper_file(workspace: Path, assay_command: Assay) -> None:
    helpers = "import no_package_one\nfrom no_package_two import part\ndef text(doc): ...\n"
    write_task(workspace, "a", helpers=helpers, doc_to_text=Function("utils.text"))
    code, _, err = assay_command("plan", "a.yaml", "--model", "dummy")
    assert code == 2
    assert "install: pip install no_package_one no_package_two\n" in err


def test_the_number_of_documents_looked_at_is_an_option_and_is_printed(
    assay_command: Assay, workspace: Path
) -> None:
    rows = [{"question": f"What is {n}?", "answer": str(n)} for n in range(1319)]
    del rows[-1]["question"]
    write_task(workspace, rows=rows, doc_to_text="{{question.upper()}}")
    called = assay_command("check", "sums.yaml")
    assert "5 of 1,319 documents looked at; --documents all looks at every one\n" in called.out
    assert called.code == 0
    called = assay_command("check", "sums.yaml", "--documents", "all")
    assert "document 1318: " in called.out
    assert called.out.endswith("1,319 of 1,319 documents looked at\n")
    assert assay_command("check", "sums.yaml", "--documents", "0").code == 2


def test_every_file_of_the_folders_is_checked(assay_command: Assay, workspace: Path) -> None:
    write_task(workspace / "all" / "a", "sums")
    write_task(workspace / "all" / "b", "sums", doc_to_text="{{nothing}}")
    for folders in (["all"], ["all/a", "all/b"]):
        called = assay_command("check", *folders)
        assert called.code == 2
        assert "sums (all/b/sums.yaml)\n" in called.out
        assert "2 tasks checked: 1 error" in called.out


def test_a_problem_of_several_tasks_is_printed_once(assay_command: Assay, workspace: Path) -> None:
    for name in ("one", "two", "three"):
        write_task(workspace / "tasks", name, doc_to_text="{{nothing}}")
    called = assay_command("check", "tasks")
    assert called.out.count("which the document does not have") == 1
    assert "one, three, two\n" in called.out
    assert "and 2 more places" in called.out
    assert "which is not a column" not in called.out, "the error says it already"


def test_plan_and_check_name_packages_that_functions_import(workspace: Path, assay_command: Assay) -> None:
    helpers = {
        "late": "def helper(*_):\n    import no_package_late, beside\n    return {'exact_match': 1.0}\n",
        "top": "import no_package_top\ndef helper(*_):\n    import no_package_called\n",
        "beside": "",
    }
    for name, text in helpers.items():
        (workspace / f"{name}.py").write_text(text)
    late, top = (
        str(write_task(workspace, name, process_results=Function(f"{name}.helper")))
        for name in ("late", "top")
    )
    code, out, _ = assay_command("plan", late)
    assert code == 0
    assert "note: the helper `late.helper` imports `no_package_late`, which is not installed" in out
    assert "\ninstall: pip install no_package_late\n" in out and "no problems found" not in out
    assert "\ninstall: pip install no_package_late\n" in assay_command("check", late).out
    assert json.loads(assay_command("plan", late, "--json").out)["install"] == "pip install no_package_late"
    line = "\ninstall: pip install no_package_called no_package_late no_package_top\n"
    assert line in assay_command("check", late, top).out
    code, _, err = assay_command("plan", late, top)
    assert code == 2 and line in err
