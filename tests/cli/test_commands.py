"""`assay ls`, `show`, `plan`, help and version: output, and that no model is opened."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Assay
from tests.dialogues import write_guessing
from tests.making import Function, write_choices, write_task

from assay import models
from assay.cli.app import COMMANDS, run_command_line
from assay.models.embedded.adapter import EmbeddedModel

QUICKSTART = ["addition", "copy", "facts", "shapes", "stories", "vote"]
KINDS = {
    "tasks": "quickstart_addition",
    "groups": "quickstart",
    "tags": "my_tag",
    "models": "embedded",
    "metrics": "exact_match",
    "filters": "take_first",
    "aggregations": "mean",
    "options": "num_fewshot",
    "solvers": "tool_loop",
    "environments": "sandbox",
}


@pytest.fixture(autouse=True)
def no_model_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(self: object) -> None:
        raise AssertionError("a model was opened")

    monkeypatch.setattr(EmbeddedModel, "open", refuse)


# --- help ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize(
    "command", [[], *([name] for name in COMMANDS)], ids=lambda words: " ".join(words) or "assay"
)
def test_help_has_examples_and_exits_0(assay_command: Assay, command: list[str], flag: str) -> None:
    code, out, err = assay_command(*command, flag)
    assert (code, err) == (0, "")
    assert "Examples:" in out
    assert " ".join(["  assay", *command]) in out


def test_no_arguments_show_the_help(assay_command: Assay) -> None:
    assert assay_command() == assay_command("--help")


def test_help_names_every_option_of_a_run(assay_command: Assay) -> None:
    from assay.core.options.run_spec import list_options

    out = assay_command("run", "--help").out
    assert [name for name, _, _ in list_options() if f"--{name}" not in out] == []


def test_the_version_is_the_installed_one(assay_command: Assay) -> None:
    from importlib.metadata import version

    assert assay_command("--version") == (0, f"assay {version('assay-harness')}\n", "")


# --- ls ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), KINDS.items())
def test_every_kind_is_listed(workspace: Path, assay_command: Assay, kind: str, name: str) -> None:
    write_task(workspace / "tasks", tag="my_tag")
    code, out, err = assay_command("ls", kind, "--include_path", "tasks")
    assert code == 0
    assert name in [line.split()[0] for line in out.splitlines()]
    assert err.strip().endswith(kind), "the count goes to standard error"
    rows = json.loads(assay_command("ls", kind, "--include_path", "tasks", "--json").out)
    assert name in [row["name"] for row in rows]
    assert len(rows) == len(out.splitlines())


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("quickstart_a*", ["quickstart_addition"]), ("tart_shape", ["quickstart_shapes"]), ("zzz", [])],
)
def test_a_pattern_is_a_glob_or_a_part_of_a_name(
    assay_command: Assay, pattern: str, found: list[str]
) -> None:
    rows = json.loads(assay_command("ls", "tasks", pattern, "--json").out)
    assert [row["name"] for row in rows] == found


def test_without_a_kind_the_kinds_are_listed(assay_command: Assay) -> None:
    called = assay_command("ls")
    listed = [line.split()[2] for line in called.out.splitlines()]
    assert set(KINDS) <= set(listed)
    assert [row["name"] for row in json.loads(assay_command("ls", "--json").out)] == listed
    assert all(assay_command("ls", kind).code == 0 for kind in listed)


def test_tasks_show_output_type_documents_and_modality(assay_command: Assay) -> None:
    (shapes,) = json.loads(assay_command("ls", "tasks", "quickstart_shapes", "--json").out)
    assert (shapes["output_type"], shapes["documents"], shapes["modality"]) == (
        "generate_until",
        60,
        "visual",
    )
    rows = json.loads(assay_command("ls", "tasks", "--tag", "ai2_arc", "--json").out)
    assert {row["name"] for row in rows} == {"arc_easy", "arc_challenge"}
    rows = json.loads(assay_command("ls", "tasks", "--type", "loglikelihood_rolling", "--json").out)
    assert "quickstart_stories" in {row["name"] for row in rows}
    assert {row["output_type"] for row in rows} == {"loglikelihood_rolling"}
    assert assay_command("ls", "metrics", "--tag", "x").code == 2
    assert "did you mean" in assay_command("ls", "tasks", "--tag", "ai2_arcc").err


def test_ls_reads_the_task_files_of_short_lists_only(assay_command: Assay, workspace: Path) -> None:
    (workspace / "many").mkdir()
    text = "task: many_{0}\noutput_type: multiple_choice\n"
    for number in range(501):
        (workspace / "many" / f"{number}.yaml").write_text(text.format(number))
    arguments = ("--include_path", "many", "--json")
    rows = json.loads(assay_command("ls", "tasks", *arguments).out)
    assert len(rows) > 501
    assert not any("output_type" in row for row in rows)
    (row,) = json.loads(assay_command("ls", "tasks", "many_500", *arguments).out)
    assert row["output_type"] == "multiple_choice"
    rows = json.loads(assay_command("ls", "tasks", "--type", "multiple_choice", *arguments).out)
    assert {"many_0", "many_500"} <= {row["name"] for row in rows}


def test_all_search_words_occur_in_the_name_or_the_description(assay_command: Assay) -> None:
    rows = json.loads(assay_command("ls", "tasks", "competition", "geometry", "--json").out)
    assert rows
    for row in rows:
        assert "geometry" in f"{row['name']} {row['about']}".lower()


@pytest.mark.parametrize(
    ("model", "argument", "default"),
    [("dummy", "latency_s", "0.0"), ("openai", "max_retries", "8"), ("hf", "max_gen_toks", "256")],
)
def test_a_model_shows_its_arguments_with_defaults(
    assay_command: Assay, model: str, argument: str, default: str
) -> None:
    assert argument in assay_command("ls", "models", model).out
    (row,) = json.loads(assay_command("ls", "models", model, "--json").out)
    assert {one["name"]: one["default"] for one in row["arguments"]}[argument] == default


def test_metrics_say_what_they_measure(assay_command: Assay) -> None:
    rows = json.loads(assay_command("ls", "metrics", "--json").out)
    assert not [row for row in rows if "unchanged" in row["about"] or row["about"].startswith("mean")]


def test_help_and_version_are_commands(assay_command: Assay) -> None:
    assert assay_command("help", "show").out == assay_command("show", "--help").out
    assert assay_command("help").out == assay_command("--help").out
    assert assay_command("version").out == assay_command("--version").out


def test_every_entry_has_a_description(assay_command: Assay) -> None:
    for kind in ("models", "metrics", "filters", "aggregations", "options"):
        rows = json.loads(assay_command("ls", kind, "--json").out)
        assert [row["name"] for row in rows if not row["about"]] == [], kind


def test_tasks_are_described_by_their_first_comment(workspace: Path, assay_command: Assay) -> None:
    (workspace / "tasks").mkdir()
    (workspace / "tasks" / "mine.yaml").write_text("# Riddles of my own.\ntask: riddles\n")
    (workspace / "tasks" / "silent.yaml").write_text("task: riddles_silent\n")
    rows = json.loads(assay_command("ls", "tasks", "riddles*", "--include_path", "tasks", "--json").out)
    assert [row["about"] for row in rows] == ["Riddles of my own.", "tasks"]
    (mmlu,) = json.loads(assay_command("ls", "groups", "mmlu", "--json").out)[:1]
    assert mmlu["about"].startswith("57 tasks  MMLU: exam questions")


def test_broken_and_shadowed_task_files_are_reported(workspace: Path, assay_command: Assay) -> None:
    write_task(workspace / "tasks", "quickstart_copy")
    (workspace / "tasks" / "bad.yaml").write_text("task: [\n")
    code, out, err = assay_command("ls", "tasks", "--include_path", "tasks")
    assert code == 0
    assert "cannot read tasks/bad.yaml" in err
    assert "`quickstart_copy` is defined twice" in err
    assert "warning" not in out


# --- show ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", QUICKSTART)
def test_show_prints_the_prompt_and_target_of_every_quickstart_task(assay_command: Assay, name: str) -> None:
    code, out, err = assay_command("show", f"quickstart_{name}")
    assert (code, err) == (0, "")
    assert out.count(f"── quickstart_{name}, document") == 2
    assert out.count("target") >= 2
    rows = json.loads(assay_command("show", f"quickstart_{name}", "-n", "3", "--json").out)
    assert [row["document"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert row["task"] == f"quickstart_{name}"
        assert row["requests"][0]["prompt"]
        assert "target" in row


def test_show_prints_exact_prompts(assay_command: Assay) -> None:
    (row,) = json.loads(assay_command("show", "quickstart_facts", "-n", "1", "--json").out)
    assert row["requests"][0]["prompt"].endswith("\nAnswer:")
    assert [request["continuation"] for request in row["requests"]] == [
        f" {choice}" for choice in row["choices"]
    ]
    (row,) = json.loads(assay_command("show", "quickstart_vote", "-n", "1", "--json").out)
    assert row["requests"][0]["repeats"] == 8
    assert row["requests"][0]["settings"]["temperature"] == 1.5
    (row,) = json.loads(assay_command("show", "quickstart_shapes", "-n", "1", "--json").out)
    assert row["requests"][0]["media"][0].startswith("image ")


def test_plan_and_show_tell_which_prompts_are_truncated(workspace: Path, assay_command: Assay) -> None:
    rows = [{"question": "word " * count + "end", "answer": "1"} for count in (250, 10)]
    task = str(write_task(workspace, "long", rows, generation_kwargs={"max_gen_toks": 8, "until": ["\n"]}))
    out = assay_command("plan", "--tasks", task, "--model", "embedded").out
    warning = "warning: long: 1 of 2 prompts exceed the context length and will be truncated: 1016 of 1272 tokens remain"
    assert warning in out
    plan = json.loads(assay_command("plan", "--tasks", task, "--model", "embedded", "--json").out)
    assert plan["tasks"]["long"]["truncated_prompts"] == {
        "requests": 1, "truncated_tokens": 256, "input_tokens": 1016,
    }  # fmt: skip
    out = assay_command("show", task, "--model", "embedded").out
    assert "prompt truncated: 1016 of 1272 tokens remain" in out
    assert out.count("Question: ") == 1
    shown = json.loads(assay_command("show", task, "--model", "embedded", "--json").out)
    (cut,), (whole,) = (row["requests"] for row in shown)
    assert cut["prompt"].endswith(cut["truncated"]["text"]) and len(cut["truncated"]["text"]) == 1016
    assert "truncated" not in whole


def test_show_prints_fewshot_examples(assay_command: Assay) -> None:
    def prompt(*arguments: str) -> str:
        (row,) = json.loads(assay_command("show", "quickstart_copy", "-n", "1", "--json", *arguments).out)
        return str(row["requests"][0]["prompt"])

    assert prompt().count("Copy:") == 4
    assert prompt("--num_fewshot", "1").count("Copy:") == 2
    assert prompt("--seed", "5") != prompt()


def test_show_applies_the_chat_template_of_the_model(assay_command: Assay) -> None:
    def prompt(*arguments: str) -> str:
        (row,) = json.loads(assay_command("show", "quickstart_copy", "-n", "1", "--json", *arguments).out)
        return str(row["requests"][0]["prompt"])

    chat = prompt("--apply_chat_template", "--system_instruction", "Be brief.")
    assert "Be brief." in chat
    assert chat != prompt("--system_instruction", "Be brief.")
    assert prompt("--apply_chat_template", "--fewshot_as_multiturn", "false") != prompt(
        "--apply_chat_template"
    )


def test_show_accepts_samples(assay_command: Assay) -> None:
    rows = json.loads(
        assay_command("show", "quickstart_facts", "--samples", '{"quickstart_facts": [7, 3]}', "--json").out
    )
    assert [row["document"] for row in rows] == [3, 7]


def test_show_works_for_models_without_a_preview(
    workspace: Path, assay_command: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.testing import ScriptedModel

    monkeypatch.setitem(models.MODELS._items, "plain", ScriptedModel)
    code, out, _ = assay_command("show", "quickstart_shapes", "--model", "plain")
    assert code == 0
    assert "<image>" in out


def test_show_reports_a_document_that_cannot_be_rendered(workspace: Path, assay_command: Assay) -> None:
    helpers = "def text(doc):\n    return doc['question'] if doc['answer'] != '2' else doc['x']\n"
    path = write_task(workspace, helpers=helpers, doc_to_text=Function("utils.text"))
    code, out, err = assay_command("show", str(path))
    assert code == 2
    assert out == ""
    assert "KeyError: 'x'" in err
    assert "utils.py:2, text" in err


# --- plan ----------------------------------------------------------------------------------------------


def test_plan_prints_counts_and_folder(assay_command: Assay) -> None:
    code, out, err = assay_command("plan", "--limit", "5")
    assert (code, err) == (0, "")
    for name in QUICKSTART:
        assert f"quickstart_{name}" in out
    assert "30 documents" in out
    assert "requests to `embedded`; results folder: assay-runs/embedded-quickstart-" in out
    assert "no problems found" in out
    assert not Path("assay-runs").exists()


def test_plan_json_is_the_only_output(assay_command: Assay) -> None:
    code, out, err = assay_command("plan", "quickstart", "--limit", "5", "--json")
    assert (code, err) == (0, "")
    plan = json.loads(out)
    assert plan["documents"] == 30
    assert plan["tasks"]["quickstart_vote"]["requests"] == {"generate": 40}
    assert plan["tasks"]["quickstart_copy"]["num_fewshot"] == 3
    assert plan["groups"]["quickstart"] == [f"quickstart_{name}" for name in QUICKSTART]
    assert plan["requests"] == sum(sum(task["requests"].values()) for task in plan["tasks"].values())


def test_plan_and_run_agree_on_the_folder(
    workspace: Path, assay_command: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.testing import ScriptedModel

    monkeypatch.setitem(models.MODELS._items, "scripted", ScriptedModel)
    arguments = [str(write_choices(workspace)), "--model", "scripted", "--output_path", "out"]
    folder = json.loads(assay_command("plan", *arguments, "--json").out)["folder"]
    assay_command("run", *arguments)
    assert (workspace / folder / "journal.sqlite").is_file()


def test_plan_finds_a_document_that_cannot_be_rendered(workspace: Path, assay_command: Assay) -> None:
    helpers = "def text(doc):\n    return doc['question'] if doc['answer'] != '4' else doc['x']\n"
    path = write_task(workspace, helpers=helpers, doc_to_text=Function("utils.text"))
    code, out, err = assay_command("plan", str(path))
    assert (code, out) == (2, "")
    assert "KeyError: 'x'" in err


def test_dialogue_is_counted_with_its_first_round(workspace: Path, assay_command: Assay) -> None:
    path = str(write_guessing(workspace))
    out = assay_command("plan", path).out
    assert "8+" in out and "8 documents, at least 8 requests" in out
    plan = json.loads(assay_command("plan", path, "--json").out)
    assert plan["tasks"]["guessing"]["requests"] == {"generate": 8}
    assert plan["tasks"]["guessing"]["at_least"] is True
    assert "later rounds depend on the answers" in assay_command("show", path).out
    assert json.loads(assay_command("show", path, "-n", "1", "--json").out)[0]["dialogue"] is True


def test_plan_reports_an_invalid_dialogue(workspace: Path, assay_command: Assay) -> None:
    helpers = "def doc_to_text(doc):\n    return 'x'\n"
    path = write_guessing(workspace, helpers=helpers, doc_to_visual=None, process_results=None)
    code, out, err = assay_command("plan", str(path))
    assert (code, out) == (2, "")
    assert "`doc_to_text` does not accept arguments about previous rounds" in err
    assert "it needs the arguments previous_output, round_idx, previous_round_info" in err


def test_long_names_are_not_cut(workspace: Path, assay_command: Assay) -> None:
    name = "a_task_with_a_name_that_goes_on_and_on_" * 3
    path = write_task(workspace, name)
    assert name in assay_command("plan", str(path)).out


# --- colour --------------------------------------------------------------------------------------------


def on_a_terminal(folder: Path, *arguments: str, columns: int = 160) -> str:
    """What the command prints when a terminal is listening."""
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-c", "from assay.cli import main; main()", *arguments],
        cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env={**environment, "TERM": "xterm-256color", "COLUMNS": str(columns)},
    )  # fmt: skip
    os.close(theirs)
    pieces = []
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        pieces.append(piece)
    process.wait(timeout=60)
    os.close(ours)
    return b"".join(pieces).decode("utf-8", "replace")


def test_descriptions_wrap_between_words_on_a_terminal(workspace: Path) -> None:
    lines = on_a_terminal(workspace, "ls", "metrics", columns=80).replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 80
    place = next(at for at, line in enumerate(lines) if line.startswith("exact_match "))
    shown = " ".join(" ".join(lines[place : place + 3]).split())
    assert "exact_match The share of predictions that equal their reference; mean over documents" in shown


def test_colour_only_on_a_terminal(workspace: Path, assay_command: Assay) -> None:
    assert "\x1b[" not in assay_command("show", "quickstart_copy").out
    assert "\x1b[" in on_a_terminal(workspace, "show", "quickstart_copy")
    assert "\x1b[31m" in on_a_terminal(workspace, "plan", "nowhere"), "errors are red"


def test_a_run_on_a_terminal_draws_bars_and_ends_with_the_table(workspace: Path) -> None:
    shown = on_a_terminal(workspace, "run", "quickstart_copy", "--limit", "3")
    assert "━" in shown
    assert "exact_match" in shown
    assert "stored in" in shown


def test_prompts_of_a_judged_task_are_shown_without_a_judge(workspace: Path, assay_command: Assay) -> None:
    path = write_task(workspace, metric_list=[{"metric": "right", "judge": {"kind": "binary"}}])
    assert assay_command("show", str(path)).code == 0
    assert "needs a judge" in assay_command("plan", str(path)).err


HEARD = "def hear(doc):\n    return {'type': 'audio', 'array': [0.0] * 16, 'sampling_rate': 16000}\n"


def test_show_works_for_tasks_the_default_model_cannot_answer(workspace: Path, assay_command: Assay) -> None:
    path = write_task(workspace, helpers=HEARD, doc_to_visual=Function("utils.hear"))
    called = assay_command("show", str(path), "-n", "1")
    assert called.code == 0, called.err
    assert "<audio>" in called.out
    assert assay_command("show", str(path), "--model", "ocr").code == 2, (
        "a model that is named is asked about"
    )


def test_options_that_reach_no_prompt_are_noted(workspace: Path, assay_command: Assay) -> None:
    seen = "from PIL import Image\n\n\ndef look(doc):\n    return [Image.new('RGB', (8, 8))]\n"
    path = write_task(workspace, helpers=seen, doc_to_visual=Function("utils.look"))
    said = "sums: chat models get only the media and the question, so --num_fewshot has no effect"
    assert said in "".join(assay_command("plan", str(path), "--num_fewshot", "2")[1:])
    assert "changes nothing" not in "".join(assay_command("plan", str(path))[1:])


# --- closed output -------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["version"], ["ls", "metrics"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_command_ends_quietly_if_nothing_reads_its_output(
    workspace: Path, arguments: list[str], unbuffered: str
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-c", "from assay.cli import main; main()", *arguments],
        stdout=writer, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": unbuffered}, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_a_closed_output_leaves_the_streams_of_the_process_as_they_were(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    error_stream = sys.stderr
    with os.fdopen(writer, "wb", buffering=0) as raw:
        output = io.TextIOWrapper(raw, write_through=True)
        monkeypatch.setattr(sys, "stdout", output)
        code = run_command_line(["ls", "metrics"])
        assert sys.stdout is output
        monkeypatch.undo()
        output.detach()
    assert code == 1
    assert sys.stderr is error_stream and not error_stream.closed


def test_a_broken_pipe_that_is_not_the_output_is_an_error(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_pipe() -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("assay.cli.version.command.callback", break_pipe)
    with pytest.raises(RuntimeError, match="pipe"):
        run_command_line(["version"])
