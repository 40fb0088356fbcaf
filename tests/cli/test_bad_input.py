"""User errors: what, where and hint; exit code 2; no model is opened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cli.conftest import Assay
from tests.making import Function, write_choices, write_task

from assay.testing import ScriptedModel

ASSAY = [sys.executable, "-c", "from assay.cli import main; main()"]


def nothing(folder: Path) -> None:
    write_task(folder)


@dataclass(frozen=True, slots=True)
class Mistake:
    """A command and the parts of its error message."""

    name: str
    command: list[str]
    says: list[str]
    before: Callable[[Path], object] = nothing


def task(**keys: object) -> Callable[[Path], object]:
    return lambda folder: write_task(folder, **keys)  # type: ignore[arg-type]


def text(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content)


def bad_row(folder: Path) -> None:
    write_task(folder)
    (folder / "sums.jsonl").write_text('{"question": "What is 1 + 1?", "answer": "2"}\n{"question": \n')


RUN = ["run", "--model", "scripted", "sums.yaml"]
MISTAKES = [
    Mistake("unknown task", ["run", "--tasks", "quickstart_adition"],
            ["no task is called `quickstart_adition`", "at --tasks", "did you mean `quickstart_addition`?", "assay ls tasks"]),
    Mistake("unknown metric", RUN, ["no metric is called `exact_macth`", "sums.yaml:", "metric_list[0]", "did you mean `exact_match`?"],
            task(metric_list=[{"metric": "exact_macth"}])),
    Mistake("unknown aggregation", RUN, ["no aggregation is called `meen`", "sums.yaml:", "did you mean `mean`?"],
            task(metric_list=[{"metric": "exact_match", "aggregation": "meen"}])),
    Mistake("unknown filter", RUN, ["no filter is called `take_frist`", "sums.yaml:", "filter_list[0]", "did you mean `take_first`?"],
            task(filter_list=[{"name": "x", "filter": [{"function": "take_frist"}]}])),
    Mistake("unknown model", ["run", "--model", "embeded"], ["no model is called `embeded`", "at --model", "did you mean `embedded`?"]),
    Mistake("unknown flag", ["run", "--modle", "embedded"], ["unknown option `--modle`", "did you mean `--model`?", "assay run --help"]),
    Mistake("unknown command", ["rnu"], ["unknown command `rnu`", "did you mean `run`?", "assay --help"]),
    Mistake("unknown kind", ["ls", "taks"], ["unknown kind `taks`", "did you mean `tasks`?"]),
    Mistake("runs as a kind", ["ls", "runs"], ["unknown kind `runs`", "`assay runs` lists stored runs"]),
    Mistake("unknown model argument", ["run", "--model_args", "wieghts=x"], ["`wieghts`", "model_args"]),
    Mistake("unknown key in a task", RUN, ["a task has no key `doc_to_txet`", "sums.yaml:", "did you mean `doc_to_text`?"],
            task(doc_to_txet="{{question}}")),
    Mistake("a key twice in a config", ["run", "--config", "c.yaml"], ["the config file has the key `limit` twice", "c.yaml:3", "line 1"],
            text("c.yaml", "limit: 3\ntasks: quickstart\nlimit: 5\n")),
    Mistake("unknown flag of a subcommand", ["bench", "model", "--modle", "embedded"], ["unknown option `--modle`", "`assay bench model --help`"]),
    Mistake("unknown option in a config", ["run", "--config", "c.yaml"], ["no option is called `taks`", "c.yaml", "did you mean `tasks`?"],
            text("c.yaml", "taks: [a]\n")),
    Mistake("YAML that is broken", ["run", "broken.yaml"], ["not valid YAML", "broken.yaml:2"],
            text("broken.yaml", "task: broken\ndoc_to_text: a: b\n")),
    Mistake("YAML that is a list", ["run", "list.yaml"], ["must be a mapping", "list.yaml"], text("list.yaml", "- a\n")),
    Mistake("YAML that is not there", ["run", "gone.yaml"], ["cannot read the task file", "gone.yaml"]),
    Mistake("data file that is not there", RUN, ["data file not found: `gone.jsonl`", "sums.yaml:", "relative to"],
            task(dataset_kwargs={"data_files": {"test": "gone.jsonl"}})),
    Mistake("data that is not JSON", RUN, ["not valid JSON", "sums.jsonl:2"], bad_row),
    Mistake("template with a missing column", RUN, ["the template uses `qestion`", "sums.yaml:", "did you mean `question`?"],
            task(doc_to_text="{{qestion}}")),
    Mistake("template that is not Jinja", RUN, ["invalid template", "sums.yaml:", "doc_to_text"], task(doc_to_text="{{question")),
    Mistake("missing helper file", RUN, ["helper file not found", "sums.yaml:", "utils.py"], task(doc_to_text=Function("utils.text"))),
    Mistake("missing helper function", RUN, ["`utils` has no function `text`", "sums.yaml:", "did you mean `texts`?"],
            task(doc_to_text=Function("utils.text"), helpers="def texts(doc): ...\n")),
    Mistake("helper that raises", RUN, ["fails: KeyError: 'x'", "utils.py:1, text"],
            task(doc_to_text=Function("utils.text"), helpers="def text(doc): return doc['x']\n")),
    Mistake("zero documents", RUN, ["has no documents", "sums.yaml:"], task(rows=[])),
    Mistake("zero documents selected", [*RUN, "--samples", '{"sums": []}'], ["no document of `sums` is selected", "--samples"]),
    Mistake("a model without likelihoods", ["run", "--model", "scripted", "choices.yaml"],
            ["the model `scripted` cannot answer `choices`", "does not support likelihood", "choices.yaml:", "it supports: "],
            lambda folder: write_choices(folder)),
    Mistake("code that is not allowed", RUN, ["executes code written by the model", "--confirm_run_unsafe_code"], task(unsafe_code=True)),
    Mistake("output path under a file", [*RUN, "--output_path", "sums.yaml/out"], ["is not a folder", "--output_path"]),
    Mistake("cache under a file", [*RUN, "--use_cache", "sums.yaml/cache"], ["cannot open", "--no_cache"]),
    Mistake("limit that is not a number", ["run", "--limit", "many"], ["`many` is not a number", "--limit", "a number of documents (100) or a fraction"]),
    Mistake("limit of nothing", ["run", "--limit", "0"], ["neither a number nor a fraction", "--limit"]),
    Mistake("limit with a fraction", ["run", "--limit", "2.5"], ["neither a number nor a fraction", "--limit"]),
    Mistake("samples that are not JSON", ["run", "--samples", "{nonsense"], ["expected a JSON object", "--samples"]),
    Mistake("samples file that does not exist", ["run", "--samples", "gone.json"], ["cannot read `gone.json`", "--samples"]),
    Mistake("samples of another task", [*RUN, "--samples", '{"other": [1]}'], ["no task of this run is called `other`", "--samples"]),
    Mistake("samples that are not there", [*RUN, "--samples", '{"sums": [99]}'], ["has 6 documents", "--samples"]),
    Mistake("limit with samples", [*RUN, "--limit", "3", "--samples", '{"sums": [1]}'], ["cannot be used together", "remove one"]),
    Mistake("seed that is not a number", ["run", "--seed", "lucky"], ["`lucky` is not a seed", "--seed"]),
    Mistake("two seeds", ["run", "--seed", "1,2"], ["got 2", "--seed", "or four"]),
    Mistake("batch size of nothing", ["run", "--batch_size", "0"], ["not a batch size", "--batch_size"]),
    Mistake("switch that is not a boolean", ["run", "--log_samples", "maybe"], ["neither true nor false", "--log_samples"]),
    Mistake("negative number of examples", ["run", "--num_fewshot", "-1"], ["not an integer of at least 0", "--num_fewshot"]),
    Mistake("more examples than available", [*RUN, "--num_fewshot", "9"], ["the task needs 9 few-shot examples", "reduce num_fewshot"]),
    Mistake("multiturn without chat", ["run", "--fewshot_as_multiturn"], ["requires a chat template", "--apply_chat_template"]),
    Mistake("arguments without equals", ["run", "--model_args", "seed"], ["not of the form key=value", "hint"]),
    Mistake("arguments of broken JSON", ["run", "--model_args", '{"seed": }'], ["invalid JSON", "character"]),
    Mistake("config that is not there", ["run", "--config", "gone.yaml"], ["cannot read the config file", "gone.yaml"]),
    Mistake("config of broken YAML", ["run", "--config", "c.yaml"], ["not valid YAML", "c.yaml:2"], text("c.yaml", "tasks: [a\nlimit: 3]]\n")),
    Mistake("config that is a list", ["run", "--config", "c.yaml"], ["mapping of options", "c.yaml"], text("c.yaml", "- a\n")),
    Mistake("config that is not text", ["run", "--config", "c.yaml"], ["not UTF-8", "c.yaml"],
            lambda folder: (folder / "c.yaml").write_bytes(b"\xff\xfe")),
    Mistake("unknown log level", ["run", "-v", "loud"], ["invalid log level", "--verbosity"]),
    Mistake("flag without its value", ["run", "--limit"], ["requires an argument", "assay run --help"]),
    Mistake("include path that is not there", ["run", "--include_path", "nowhere"], ["task folder not found: `nowhere`", "--include_path"]),
    Mistake("folder without tasks", ["run", "./empty"], ["has no task file", "YAML file with the key `task`"], lambda folder: (folder / "empty").mkdir()),
    Mistake("no task at all", ["run", "--tasks", ","], ["no task selected", "--tasks"]),
    Mistake("show without a task", ["show"], ["TASK", "assay show --help"]),
    Mistake("show of nothing", ["show", "quickstart_copy", "-n", "0"], ["must be at least 1", "--documents"]),
    Mistake("weights that are not there", ["run", "--model_args", "weights=nowhere"], ["nowhere"]),
]  # fmt: skip


def in_folder(command: list[str], folder: Path) -> list[str]:
    """The command with the full paths of the files it names."""
    return [str(folder / word) if word.endswith(".yaml") else word for word in command]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_user_error_has_what_where_and_hint(
    mistake: Mistake, workspace: Path, assay_command: Assay, scripted: ScriptedModel
) -> None:
    mistake.before(workspace)
    code, out, err = assay_command(*in_folder(mistake.command, workspace))
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert "Traceback" not in err
    for piece in mistake.says:
        assert piece in err
    assert scripted.opened == 0
    assert not (workspace / "assay-runs").exists()


@pytest.mark.parametrize("command", ["plan", "run", "show"])
def test_all_user_errors_are_reported(workspace: Path, assay_command: Assay, command: str) -> None:
    write_task(workspace, "one", metric_list=[{"metric": "exact_macth"}, {"metric": "acuracy"}])
    write_task(workspace, "two", doc_to_text="{{qestion}}")
    code, out, err = assay_command(command, "one.yaml", "two.yaml", "three", "--model", "embeded")
    assert code == 2
    assert out == ""
    for what in ("`exact_macth`", "`acuracy`", "`qestion`", "`three`", "`embeded`"):
        assert what in err
    assert err.count("error: ") == 5
    assert err.rstrip().endswith("5 problems found before the first request")


def test_broken_task_files_of_other_tasks_are_ignored(workspace: Path, assay_command: Assay) -> None:
    write_task(workspace / "tasks", "good")
    (workspace / "tasks" / "bad.yaml").write_text("task: [\n")
    assert assay_command("plan", "good", "--include_path", "tasks").code == 0
    code, _, err = assay_command("plan", "bad", "--include_path", "tasks")
    assert code == 2
    assert "bad.yaml:" in err


def test_unwritable_output_folder_is_an_error(
    workspace: Path, assay_command: Assay, scripted: ScriptedModel
) -> None:
    write_task(workspace)
    if os.geteuid() == 0:  # for root only the kernel's own folders are closed
        folder = "/proc/assay"
    else:
        locked = workspace / "locked"
        locked.mkdir(mode=0o500)
        folder = str(locked / "out")
    code, _, err = assay_command(*RUN, "--output_path", folder)
    assert code == 2
    assert err.splitlines()[-1].startswith("hint: ")
    assert "Traceback" not in err
    assert scripted.opened == 0


@pytest.mark.parametrize(
    "name", ["unknown task", "unknown flag", "YAML that is broken", "template with a missing column"]
)
def test_user_error_in_a_new_process(name: str, workspace: Path) -> None:
    (mistake,) = [mistake for mistake in MISTAKES if mistake.name == name]
    mistake.before(workspace)
    command = [word if word != "scripted" else "embedded" for word in mistake.command]
    ended = subprocess.run([*ASSAY, *command], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("error: ")
    assert "Traceback" not in ended.stderr
    assert "\x1b[" not in ended.stderr, "colour is for terminals"
    for piece in mistake.says:
        assert piece in ended.stderr


def test_error_prints_no_json(assay_command: Assay) -> None:
    code, out, err = assay_command("run", "--tasks", "nowhere", "--json")
    assert (code, out) == (2, "")
    with pytest.raises(json.JSONDecodeError):
        json.loads(err)


CONFIGS = [
    ("limit: [1]", "`limit`"),
    ("limit: true", "`limit`"),
    ("limit: -3", "c.yaml:1, limit"),
    ("num_fewshot: -1", "-1"),
    ("batch_size: 0", "batch size"),
    ("tasks: 5", "`tasks`"),
    ("model: nobody", "`nobody`"),
    ("model_args: [1]", "`model_args`"),
    ("gen_kwargs: 3", "key=value"),
    ("include_path: 5", "`include_path`"),
    ("samples: 3", "c.yaml:1, samples"),
    ("seed: [1, 2]", "expected 1 or 4 seeds, got 2"),
    ("no_cache: maybe", "neither true nor false"),
    ("predict_only: 3", "`predict_only`"),
]


@pytest.mark.parametrize(("line", "says"), CONFIGS)
def test_config_value_of_a_wrong_type_is_an_error(
    workspace: Path, assay_command: Assay, line: str, says: str
) -> None:
    (workspace / "c.yaml").write_text(f"{line}\n")
    code, out, err = assay_command("plan", "--config", "c.yaml")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert says in err


def test_wrong_values_and_unknown_names_of_a_config_file_are_reported_at_once(
    workspace: Path, assay_command: Assay
) -> None:
    (workspace / "c.yaml").write_text(
        "limit: many\nmodel: dumy\ntasks: [quickstart_copi, no_such]\ntaks: a\n"
    )
    called = assay_command("plan", "--config", "c.yaml")
    assert called.code == 2
    for part in (
        "c.yaml:1, limit",
        "`dumy`",
        "c.yaml:2, model",
        "`quickstart_copi`",
        "`no_such`",
        "c.yaml:3, tasks",
        "`taks`",
    ):
        assert part in called.err, called.err


def test_all_errors_of_a_config_file_have_their_line(workspace: Path, assay_command: Assay) -> None:
    (workspace / "c.yaml").write_text(
        "tasks: [quickstart_copy]\n# text\nlimt: 3\nnum_fewshot: many\nsamples: 3\n"
    )
    called = assay_command("plan", "--config", "c.yaml")
    assert called.code == 2
    assert "no option is called `limt`\n  at c.yaml:3\n" in called.err
    assert "  at c.yaml:4, num_fewshot\n" in called.err
    assert "  at c.yaml:5, samples\n" in called.err
    assert "3 problems found" in called.err


def test_a_problem_of_the_plan_has_the_line_of_its_option(workspace: Path, assay_command: Assay) -> None:
    (workspace / "c.yaml").write_text("# text\ntasks: [quickstart_copi]\nmodel: embeded\noffset: 1\n")
    called = assay_command("plan", "--config", "c.yaml")
    assert called.code == 2
    assert "  at c.yaml:2, tasks\n" in called.err
    assert "  at c.yaml:3, model\n" in called.err
    called = assay_command("plan", "--config", "c.yaml", "--model", "dumy")
    assert "no model is called `dumy`\n  at --model\n" in called.err
