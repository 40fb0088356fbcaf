"""Messages that fit the command: places, hints, counts, interrupts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.cli.conftest import Assay
from tests.making import write_task

from assay.testing import ScriptedModel


def test_all_wrong_arguments_of_a_filter_are_reported_with_a_hint(
    assay_command: Assay, workspace: Path
) -> None:
    steps = [{"function": "regex", "regex_patern": "a", "group_selct": 1}, {"function": "take_first"}]
    write_task(workspace, filter_list=[{"name": "x", "filter": steps}])
    called = assay_command("check", "sums.yaml")
    assert "unknown arguments `regex_patern`, `group_selct`" in called.out
    assert "did you mean `regex_pattern`, `group_select`?" in called.out


@pytest.mark.parametrize("flag", ["--model_args", "--gen_kwargs", "--metadata"])
def test_incomplete_json_names_its_flag_and_place(assay_command: Assay, flag: str) -> None:
    called = assay_command("run", flag, '{"a": 1')
    assert called.code == 2
    assert "invalid JSON: Expecting ',' delimiter at the end\n" in called.err
    assert f"  at {flag}\n" in called.err
    assert "hint: write a complete JSON object" in called.err


def test_a_wrong_generation_setting_names_where_it_comes_from(
    assay_command: Assay, workspace: Path, scripted: ScriptedModel
) -> None:
    write_task(workspace, generation_kwargs={"until": ["\n"], "temperature": 0})
    called = assay_command("plan", "sums.yaml", "--model", "scripted", "--gen_kwargs", "temperature=hot")
    assert "`temperature`: 'hot'\n  at --gen_kwargs\n" in called.err
    write_task(workspace, generation_kwargs={"until": ["\n"], "temperature": "hot"})
    called = assay_command("plan", "sums.yaml", "--model", "scripted")
    assert "\n  at sums.yaml:" in called.err


def test_the_place_of_an_unknown_task_is_a_flag_only_if_it_was_given(assay_command: Assay) -> None:
    assert "--tasks" not in assay_command("show", "nothing_like_it").err
    assert "at --tasks" in assay_command("plan", "--tasks", "nothing_like_it").err


def test_one_task_is_not_plural(assay_command: Assay) -> None:
    assert assay_command("ls", "tasks", "quickstart_copy").err.splitlines()[-1] == "1 task"
    assert "\n1 document, 1 request to " in assay_command("plan", "quickstart_copy", "-L", "1").out


def test_an_unknown_output_type_is_an_error(assay_command: Assay) -> None:
    called = assay_command("ls", "tasks", "--type", "generate")
    assert (called.code, called.out) == (2, "")
    assert "no output type is called `generate`\n  at --type\n" in called.err
    assert "generate_until" in called.err


def test_a_folder_named_like_a_task_is_mentioned(assay_command: Assay, workspace: Path) -> None:
    write_task(workspace / "quickstart_copy", "own")
    called = assay_command("check", "quickstart_copy", "--no_data")
    assert "use `./quickstart_copy` for the folder" in called.out
    assert "use `./quickstart_copy` for the folder" in assay_command("plan", "quickstart_copy").out
    assert "1 task checked" in assay_command("check", "./quickstart_copy").out


@pytest.mark.parametrize("folder", [".", "lm_eval", "lm_eval/tasks"])
def test_tasks_of_a_checkout_are_selected_by_the_name_of_the_harness(
    assay_command: Assay, workspace: Path, scripted: ScriptedModel, folder: str
) -> None:
    write_task(workspace / "code" / "lm_eval" / "tasks" / "arc", "arc_easy")
    place = f"code/{folder}"
    for command in ("plan", "check"):
        words = ["--model", "scripted"] if command == "plan" else []
        called = assay_command(command, "lm_eval/arc_easy", "--include_path", place, *words)
        assert called.code == 0, called.err + called.out


def test_each_note_is_printed_once(assay_command: Assay, workspace: Path, scripted: ScriptedModel) -> None:
    for name in ("one", "two", "three"):
        write_task(workspace / "quickstart_copy", name)
    called = assay_command("plan", "quickstart_copy", "quickstart_copy", "--tasks", "quickstart_copy")
    notes = [line for line in called.out.splitlines() if line.startswith("note:")]
    assert notes
    assert len(notes) == len(set(notes))
    shutil.rmtree(workspace / "quickstart_copy")


@pytest.mark.parametrize(("command", "resumable"), [("check", False), ("show", False), ("run", True)])
def test_an_interrupted_command_promises_only_what_it_stored(
    assay_command: Assay, monkeypatch: pytest.MonkeyPatch, command: str, resumable: bool
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for place in ("assay.api.plan", "assay.api.run", "assay.checks.checker.check_tasks"):
        monkeypatch.setattr(place, interrupt)
    called = assay_command(command, "quickstart_copy")
    assert called.code == 130
    assert ("all responses are saved" in called.err) is resumable
    assert "interrupted" in called.err
