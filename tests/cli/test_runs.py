"""`assay runs`, `resume`, `run --from`, `run --refresh` and `export`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Assay
from tests.making import answer_correctly, write_task

from assay.core.records.responses import Failure
from assay.store.journal.journal import JOURNAL_FILE, Journal
from assay.store.runs.lookup import list_runs
from assay.testing import ScriptedModel

RUN = ["run", "--model", "scripted", "tasks/one.yaml"]


@pytest.fixture(autouse=True)
def one_task(workspace: Path, scripted: ScriptedModel) -> None:
    write_task(workspace / "tasks", "one")


def only_run() -> Path:
    (summary,) = list_runs()
    return summary.folder


# --- list, show, path, rm, repair ----------------------------------------------------------------------


def test_runs_are_listed_with_state_documents_and_score(assay_command: Assay) -> None:
    assert assay_command("runs") == (0, "", "0 runs in ./assay-runs\n")
    assay_command(*RUN)
    assay_command(*RUN, "--limit", "2")
    called = assay_command("runs")
    assert called.code == 0
    assert called.out.count("finished") == 2
    assert "exact_match 1.0000" in called.out
    assert called.err == "2 runs in ./assay-runs\n"
    assert assay_command("runs", "list").out == called.out


def test_runs_json(assay_command: Assay) -> None:
    assay_command(*RUN, "--output_path", "out")
    assert json.loads(assay_command("runs", "--json").out) == []
    (row,) = json.loads(assay_command("runs", "--in", "out", "--json").out)
    assert (row["state"], row["documents"], row["tasks"]) == ("finished", 6, ["one"])
    assert row["scores"] == [{"task": "one", "metric": "exact_match", "value": 1.0}]
    assert Path(row["folder"]).is_dir()


def test_a_damaged_run_is_listed_shown_and_repaired(assay_command: Assay, scripted: ScriptedModel) -> None:
    assay_command(*RUN, "--no_cache")
    folder = only_run()
    data = bytearray((folder / JOURNAL_FILE).read_bytes())
    data[-3000:] = b"\xff" * 3000
    (folder / JOURNAL_FILE).write_bytes(data)
    assert "damaged" in assay_command("runs").out
    shown = assay_command("runs", "show", "latest")
    assert shown.code == 0
    assert "assay runs repair" in shown.err
    repaired = assay_command("runs", "repair", "latest")
    assert repaired.code == 0
    assert "; the damaged file was moved to" in repaired.out
    assert assay_command("runs", "repair", "latest").out == f"no damage found in {folder}\n"
    assert json.loads(assay_command("runs", "repair", "latest", "--json").out)["damaged"] is False
    assert "unfinished" in assay_command("runs").out
    called = assay_command("resume", "latest")
    assert (called.code, "1.0000" in called.out) == (0, True), called.err
    assert "finished" in assay_command("runs").out


def test_one_run_is_shown_with_its_command_and_results(assay_command: Assay) -> None:
    assay_command(*RUN, "--limit", "3")
    called = assay_command("runs", "show", "latest")
    assert called.code == 0
    assert "command  assay run --model scripted tasks/one.yaml --limit 3" in called.out
    assert "exact_match" in called.out
    shown = json.loads(assay_command("runs", "show", "latest", "--json").out)
    assert shown["manifest"]["options"]["limit"] == 3
    assert shown["results"]["one"]["exact_match,none"] == 1.0


def test_runs_path_prints_the_folder(assay_command: Assay) -> None:
    assay_command(*RUN)
    assert assay_command("runs", "path", "latest").out == f"{only_run()}\n"


def test_removing_a_run_keeps_other_files(assay_command: Assay) -> None:
    assay_command(*RUN)
    assay_command(*RUN, "--limit", "2")
    one, two = (summary.folder for summary in list_runs())
    (one / "notes.txt").write_text("mine")
    refused = assay_command("runs", "rm", one.name)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    called = assay_command("runs", "rm", one.name, two.name, "--yes")
    assert called.code == 0, called.err
    assert "notes.txt" in called.err
    assert ([path.name for path in one.iterdir()], two.exists()) == (["notes.txt"], False)


def test_run_in_progress_is_not_removed(assay_command: Assay) -> None:
    assay_command(*RUN)
    journal = Journal.open_for_writing(only_run())
    called = assay_command("runs", "rm", "latest", "--yes")
    journal.close()
    assert called.code == 2
    assert "is locked by process" in called.err
    assert (only_run() / JOURNAL_FILE).exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs", "show", "nothing"],
        ["runs", "path", "latest"],
        ["runs", "rm", "nothing", "--yes"],
        ["runs", "repair", "no/where"],
        ["runs", "--in", "nowhere"],
        ["resume", "latest"],
        ["run", "--from", "nothing"],
        ["run", "--from", "nothing/manifest.json"],
    ],
    ids=" ".join,
)
def test_unknown_run_is_a_user_error(assay_command: Assay, arguments: list[str]) -> None:
    called = assay_command(*arguments)
    assert called.code == 2
    assert called.err.startswith("error: ")
    assert "Traceback" not in called.err


# --- resume --------------------------------------------------------------------------------------------


def test_a_run_is_resumed_with_the_options_it_was_started_with(
    workspace: Path, assay_command: Assay, scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = Failure(request_id="", kind="timeout", message="too slow")
    monkeypatch.setattr(scripted, "_answers", lambda r: failure if r.document == 1 else answer_correctly(r))
    assert assay_command(*RUN, "--limit", "4", "--num_fewshot", "1", "--output_path", "out").code == 1
    assert "with failures" in assay_command("runs", "--in", "out").out
    monkeypatch.setattr(scripted, "_answers", answer_correctly)
    monkeypatch.chdir(workspace / "tasks")
    asked = len(scripted.asked)
    called = assay_command("resume", "latest", "--in", "../out", "--batch_size", "4", "--json")
    assert called.code == 0, called.err
    assert "continuing scripted on 1 task, 4 documents" in called.err
    assert [request.document for request in scripted.asked[asked:]] == [1]
    results = json.loads(called.out)
    assert (results["n-shot"], results["n-samples"]["one"]["effective"]) == ({"one": 1}, 4)


@pytest.mark.parametrize("output", ["out", "out/numbers.json"])
def test_moved_run_is_resumed_in_its_new_folder(assay_command: Assay, output: str) -> None:
    assay_command(*RUN, "--output_path", output)
    Path("out").rename("moved")
    before = set(Path("moved").rglob("*.json"))
    called = assay_command("resume", "latest", "--in", "moved")
    assert called.code == 0, called.err
    assert not Path("out").exists()
    (shown,) = [line.split()[1] for line in called.out.splitlines() if line.startswith("results ")]
    assert Path(shown).parts[0] == "moved"
    assert before <= set(Path("moved").rglob("*.json"))


def test_resuming_a_finished_run_shows_it(assay_command: Assay, scripted: ScriptedModel) -> None:
    assay_command(*RUN)
    asked = len(scripted.asked)
    called = assay_command("resume", only_run().name)
    assert called.code == 0
    assert "already finished: scripted" in called.err
    assert len(scripted.asked) == asked


def test_run_with_a_changed_task_is_not_resumed(workspace: Path, assay_command: Assay) -> None:
    assay_command(*RUN)
    write_task(workspace / "tasks", "one", doc_to_text="Q: {{question}}")
    called = assay_command("resume", "latest")
    assert called.code == 2
    assert "task: one: the task file" in called.err
    assert "assay run --from" in called.err


# --- from ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["run", "manifest"])
def test_a_run_is_repeated_exactly(assay_command: Assay, scripted: ScriptedModel, given: str) -> None:
    assay_command(*RUN, "--limit", "3", "--seed", "7", "--num_fewshot", "2", "--no_cache")
    first = [request.id for request in scripted.asked]
    folder = only_run()
    word = folder.name if given == "run" else str(folder / "manifest.json")
    called = assay_command("run", "--from", word, "--output_path", "again")
    assert called.code == 0, called.err
    assert "overrides options of" in called.err
    assert "--output_path" in called.err
    assert sorted(request.id for request in scripted.asked[len(first) :]) == sorted(first)
    (again,) = list_runs(["again"])
    assert again.id == folder.name


def test_flags_override_the_repeated_run_and_are_reported(
    assay_command: Assay, scripted: ScriptedModel
) -> None:
    assay_command(*RUN, "--limit", "3")
    called = assay_command("run", "--from", "latest", "--limit", "2", "--json")
    assert "overrides options of latest: --limit\n" in called.err
    assert json.loads(called.out)["n-samples"]["one"]["effective"] == 2


def test_changes_since_the_repeated_run_are_reported(workspace: Path, assay_command: Assay) -> None:
    assay_command(*RUN)
    write_task(workspace / "tasks", "one", generation_kwargs={"max_gen_toks": 9})
    called = assay_command("run", "--from", "latest")
    assert called.code == 0
    assert (
        "changed since latest: settings: one: generation settings changed: temperature, do_sample, max_gen_toks"
        in called.err
    )


# --- again ---------------------------------------------------------------------------------------------


def test_a_finished_run_writes_its_files_once(workspace: Path, assay_command: Assay) -> None:
    command = [*RUN, "--output_path", "out"]
    first = assay_command(*command)
    files = sorted((workspace / "out" / "scripted").iterdir())
    again = assay_command(*command)
    assert sorted((workspace / "out" / "scripted").iterdir()) == files
    assert again.out == first.out
    files[0].unlink()
    assay_command(*command)
    assert len(list((workspace / "out" / "scripted").iterdir())) == 3, "what is missing is written"


def test_additional_result_files_are_written(workspace: Path, assay_command: Assay) -> None:
    assay_command(*RUN, "--output_path", "out", "--log_samples", "false")
    assert [path.name[:7] for path in (workspace / "out" / "scripted").iterdir()] == ["results"]
    assay_command(*RUN, "--output_path", "out")
    assert sorted(path.name[:7] for path in (workspace / "out" / "scripted").iterdir()) == [
        "results",
        "results",
        "samples",
    ]


def test_refresh_asks_again_replaces_and_keeps_the_old_journal(
    assay_command: Assay, scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assay_command(*RUN)
    assert len(scripted.asked) == 6
    monkeypatch.setattr(scripted, "_answers", lambda request: "wrong")
    assert "1.0000" in assay_command(*RUN).out, "a finished run is not asked again"
    called = assay_command(*RUN, "--refresh")
    assert "running scripted" in called.err
    assert ("0.0000" in called.out, len(scripted.asked)) == (True, 12)
    assert len(list(only_run().glob("journal.replaced-*.sqlite"))) == 1
    elsewhere = assay_command(*RUN, "--output_path", "out")
    assert ("0.0000" in elsewhere.out, len(scripted.asked)) == (True, 12), "the shared cache has the new ones"


def test_missing_data_folder_is_an_error(assay_command: Assay) -> None:
    called = assay_command(*RUN, "--data_root", "nowhere")
    assert called.code == 2
    assert "the data folder `nowhere` does not exist" in called.err


def test_a_bare_folder_name_is_a_folder_of_tasks(assay_command: Assay) -> None:
    called = assay_command("run", "tasks", "--model", "scripted")
    assert called.code == 0, called.err
    assert "one " in called.out


# --- export --------------------------------------------------------------------------------------------


def test_a_run_is_exported_to_standard_output_or_a_file(workspace: Path, assay_command: Assay) -> None:
    assay_command(*RUN)
    called = assay_command("export", "latest", "--format", "jsonl")
    assert called.code == 0, called.err
    assert [json.loads(line)["document"] for line in called.out.splitlines()] == [0, 1, 2, 3, 4, 5]
    called = assay_command("export", "latest", "--format", "csv", "-o", "out/documents.csv")
    assert (called.code, called.out, called.err) == (0, "", "wrote out/documents.csv\n")
    assert (workspace / "out" / "documents.csv").read_text().startswith("task,document,filter")


def test_missed_threshold_sets_the_exit_code(assay_command: Assay) -> None:
    assay_command(*RUN)
    passed = assay_command("export", "latest", "--format", "junit", "--threshold", "one:exact_match=0.9")
    assert passed.code == 0
    missed = assay_command(
        "export", "latest", "--format", "junit", "--threshold", "one=1.5", "-o", "report.xml"
    )
    assert missed.code == 3
    assert "one: exact_match is 1.0000" in missed.err
    assert "<failure" in Path("report.xml").read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing", "--format", "csv"],
        ["latest", "--format", "xlsx"],
        ["latest"],
        ["latest", "--format", "lm-eval"],
        ["latest", "--format", "csv", "--threshold", "one=1"],
        ["latest", "--format", "csv", "--tasks", "other"],
    ],
    ids=" ".join,
)
def test_invalid_export_is_rejected(assay_command: Assay, arguments: list[str]) -> None:
    assay_command(*RUN)
    called = assay_command("export", *arguments)
    assert called.code == 2
    assert called.err.startswith("error: ")
