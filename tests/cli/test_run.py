"""`assay run`: flags, output streams and result files."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Assay
from tests.making import ROWS, Function, write_task

from assay.testing import ScriptedModel

RUN = ["run", "--model", "scripted"]


@pytest.fixture(autouse=True)
def three_tasks(workspace: Path, scripted: ScriptedModel) -> None:
    for name in ("one", "two", "three"):
        write_task(workspace / "tasks", name)


def tasks_in(out: str) -> list[str]:
    return [name for name in ("one", "two", "three") if re.search(rf"^ *{name} ", out, re.MULTILINE)]


# --- flags ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tasks", "one,two"],
        ["--tasks", "one", "two"],
        ["--tasks", "one", "--tasks", "two"],
        ["-t", "one", "two", "--limit", "3"],
        ["one", "two"],
        ["one,two"],
        ["--tasks", "one", "--limit", "3", "two"],
        ["--tasks=one", "two"],
    ],
    ids=" ".join,
)
def test_tasks_may_be_named_in_any_way(assay_command: Assay, arguments: list[str]) -> None:
    called = assay_command(*RUN, *arguments, "--include_path", "tasks")
    assert called.code == 0, called.err
    assert tasks_in(called.out) == ["one", "two"]


@pytest.mark.parametrize("dash", ["-", "_"])
def test_flags_are_written_with_dashes_or_underscores(assay_command: Assay, dash: str) -> None:
    flags = [
        flag.replace("_", dash) for flag in ("--include_path", "--num_fewshot", "--no_cache", "--output_path")
    ]
    called = assay_command(*RUN, "one", flags[0], "tasks", flags[1], "2", flags[2], flags[3], "out", "--json")
    assert called.code == 0, called.err
    assert json.loads(called.out)["n-shot"] == {"one": 2}


@pytest.mark.parametrize(
    "given",
    [
        ["--gen_kwargs", "do_sample=true,temperature=0.5,max_gen_toks=3"],
        ["--gen_kwargs", '{"do_sample": true, "temperature": 0.5, "max_gen_toks": 3}'],
        ["--gen_kwargs", "do_sample=true", "temperature=0.5", "max_gen_toks=3"],
        [
            "--gen-kwargs",
            "do_sample=true",
            "temperature=0.5",
            "--limit",
            "1",
            "--gen_kwargs",
            "max_gen_toks=3",
        ],
        ["--gen_kwargs", '{"do_sample": true, "temperature": 0.1}', "temperature=0.5", "max_gen_toks=3"],
    ],
    ids=" ".join,
)
def test_arguments_are_pairs_or_json(assay_command: Assay, scripted: ScriptedModel, given: list[str]) -> None:
    assert assay_command(*RUN, *given, "tasks/one.yaml").code == 0
    settings = scripted.asked[0].settings  # type: ignore[union-attr]
    assert (settings.temperature, settings.max_tokens) == (0.5, 3)


def test_flags_override_config_file_overrides_defaults(workspace: Path, assay_command: Assay) -> None:
    config = "model: scripted\ntasks: [one, two]\ninclude_path: tasks\nlimit: 4\nnum-fewshot: 1\n"
    (workspace / "run.yaml").write_text(config)
    called = assay_command("run", "--config", "run.yaml", "--limit", "2", "--json")
    assert called.code == 0, called.err
    results = json.loads(called.out)
    assert results["config"]["limit"] == 2
    assert results["n-shot"] == {"one": 1, "two": 1}
    assert list(results["results"]) == ["one", "two"]


def test_config_file_accepts_every_option(workspace: Path, assay_command: Assay) -> None:
    import yaml

    from assay.core.options.run_spec import list_options

    settings = {name: default for name, default, _ in list_options() if default is not None}
    settings |= {
        "model": "scripted",
        "tasks": ["one"],
        "include_path": ["tasks"],
        "seed": list(settings["seed"]),
    }
    (workspace / "all.yaml").write_text(yaml.safe_dump(settings))
    called = assay_command("run", "-C", "all.yaml")
    assert called.code == 0, called.err


def test_system_instruction_and_chat_template_reach_the_model(
    assay_command: Assay, scripted: ScriptedModel
) -> None:
    arguments = [
        "tasks/one.yaml",
        "--system_instruction",
        "Be brief.",
        "--apply_chat_template",
        "--num_fewshot",
        "1",
    ]
    assert assay_command(*RUN, *arguments).code == 0
    prompt = scripted.asked[0].prompt
    assert prompt.chat
    assert [message.role for message in prompt.messages] == ["system", "user", "assistant", "user"]
    assert prompt.messages[0].text == "Be brief."


def test_samples_may_come_from_a_file(workspace: Path, assay_command: Assay, scripted: ScriptedModel) -> None:
    (workspace / "samples.json").write_text('{"one": [4, 1]}')
    assert assay_command(*RUN, "tasks/one.yaml", "--samples", "samples.json").code == 0
    assert sorted(request.document for request in scripted.asked) == [1, 4]


# --- what goes where -----------------------------------------------------------------------------------


def test_table_on_stdout_and_messages_on_stderr(assay_command: Assay) -> None:
    called = assay_command(*RUN, "tasks/one.yaml")
    assert "1.0000" in called.out
    assert "stored in assay-runs/scripted-one-" in called.out
    assert "running scripted on 1 task, 6 documents" in called.err
    assert "done  6/6 documents" in called.err
    assert "\x1b[" not in called.out + called.err
    again = assay_command(*RUN, "tasks/one.yaml")
    assert "already finished: scripted" in again.err
    assert again.out == called.out


def test_root_is_warned_once_if_task_code_runs(
    workspace: Path, assay_command: Assay, assay_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code: dict[str, Any] = {
        "helpers": "def score(doc, results): return {'own': 1.0}",
        "process_results": Function("utils.score"),
    }
    metrics = [{"metric": "own", "aggregation": "mean", "higher_is_better": True}]
    plain = str(write_task(workspace / "plain"))
    coded = str(write_task(workspace / "coded", metric_list=metrics, **code))

    def is_warned(user: int, task: str, limit: int) -> bool:
        monkeypatch.setattr("os.geteuid", lambda: user)
        called = assay_command("run", "--tasks", task, "--limit", str(limit))
        assert called.code == 0, called.err
        return "warning: running as root" in called.err

    assert not is_warned(1000, coded, 1)
    assert not is_warned(0, plain, 1), "nothing runs that could do harm"
    assert is_warned(0, coded, 2)
    assert not is_warned(0, coded, 3), "once"
    for marker in assay_home.glob("root-warning*"):
        marker.unlink()
    assert is_warned(0, coded, 4)


def test_responses_from_the_cache_are_reported_with_its_path(assay_command: Assay, assay_home: Path) -> None:
    first = assay_command(*RUN, "tasks/one.yaml", "--output_path", "first")
    assert "reused" not in first.out
    second = assay_command(*RUN, "tasks/one.yaml", "--output_path", "second")
    (line,) = [line for line in second.out.splitlines() if line.startswith("reused")]
    assert line.startswith(f"reused    6 of 6 responses from the cache {assay_home}")
    assert line.endswith("(--no_cache disables it)")
    third = assay_command(*RUN, "tasks/one.yaml", "--output_path", "third", "--no_cache")
    assert "reused" not in third.out


def test_json_is_the_only_output(assay_command: Assay) -> None:
    called = assay_command(*RUN, "tasks/one.yaml", "--json")
    results = json.loads(called.out)
    assert results["results"]["one"]["exact_match,none"] == 1.0
    assert results["n-samples"]["one"] == {"original": 6, "effective": 6, "outcomes": {"scored": 6}}


def test_verbosity_is_a_log_level(assay_command: Assay) -> None:
    assert assay_command(*RUN, "tasks/one.yaml", "--verbosity", "debug").code == 0


def test_predict_only_prints_no_scores(assay_command: Assay) -> None:
    called = assay_command(*RUN, "tasks/one.yaml", "--predict_only", "--output_path", "out", "--json")
    assert called.code == 0
    assert not [key for key in json.loads(called.out)["results"]["one"] if "," in key]
    (samples,) = Path("out/scripted").glob("samples_one_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    assert [row["resps"] for row in rows] == [[[row["answer"]]] for row in ROWS]


# --- the files of lm-eval ------------------------------------------------------------------------------

RESULT_KEYS = """results group_subtasks configs versions n-shot higher_is_better n-samples config git_hash date task_hashes
    model_source model_name model_name_sanitized system_instruction system_instruction_sha fewshot_as_multiturn
    chat_template chat_template_sha total_evaluation_time_seconds""".split()
CONFIG_KEYS = """model model_args model_num_parameters model_dtype model_revision model_sha batch_size batch_sizes device
    use_cache limit bootstrap_iters gen_kwargs random_seed numpy_seed torch_seed fewshot_seed""".split()
SAMPLE_KEYS = """doc_id doc target arguments resps filtered_resps filter metrics doc_hash prompt_hash target_hash
    exact_match""".split()
DATE = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{6}"


def list_files(folder: Path) -> dict[str, Path]:
    """The files by name, dates left out."""
    return {re.sub(DATE, "DATE", file.name): file for file in folder.iterdir() if file.is_file()}


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def test_results_and_samples_are_written_as_lm_eval_does(assay_command: Assay) -> None:
    called = assay_command(
        *RUN, "tasks/one.yaml", "tasks/two.yaml", "--output_path", "out", "--seed", "1,2,3,4"
    )
    assert called.code == 0, called.err
    files = list_files(Path("out/scripted"))
    assert set(files) == {"results_DATE.json", "samples_one_DATE.jsonl", "samples_two_DATE.jsonl"}
    assert f"results   {files['results_DATE.json']}" in called.out
    results = read(files["results_DATE.json"])
    assert set(RESULT_KEYS) <= set(results)
    assert list(results["config"]) == CONFIG_KEYS
    assert results["config"]["fewshot_seed"] == 4
    assert list(results["results"]["one"]) == [
        "name",
        "alias",
        "sample_len",
        "exact_match,none",
        "exact_match_stderr,none",
    ]
    assert results["versions"] == {"one": 1.0, "two": 1.0}
    assert results["higher_is_better"] == {"one": {"exact_match": True}, "two": {"exact_match": True}}
    assert results["configs"]["one"]["doc_to_text"] == "Question: {{question}}\nAnswer:"
    lines = files["samples_one_DATE.jsonl"].read_text("utf-8").splitlines()
    assert len(lines) == 6
    for number, line in enumerate(lines):
        row, doc = json.loads(line), ROWS[number]
        assert list(row) == SAMPLE_KEYS
        assert (row["doc_id"], row["doc"], row["target"]) == (number, doc, doc["answer"])
        prompt = f"Question: {doc['question']}\nAnswer:"
        assert row["arguments"]["gen_args_0"]["arg_0"] == prompt
        assert "until" in row["arguments"]["gen_args_0"]["arg_1"]
        assert (row["resps"], row["filtered_resps"], row["filter"]) == (
            [[doc["answer"]]],
            [doc["answer"]],
            "none",
        )
        assert (row["metrics"], row["exact_match"]) == (["exact_match"], 1.0)
        assert row["doc_hash"] == sha(json.dumps(doc, indent=2, ensure_ascii=False))
        assert row["prompt_hash"] == sha(prompt)
        assert row["target_hash"] == sha(doc["answer"])
    hashes = "".join(
        row["doc_hash"] + row["prompt_hash"] + row["target_hash"] for row in map(json.loads, lines)
    )
    assert results["task_hashes"]["one"] == sha(hashes)


def test_an_output_path_that_names_a_file_names_the_results(assay_command: Assay) -> None:
    assert assay_command(*RUN, "tasks/one.yaml", "--output_path", "out/mine.json").code == 0
    assert set(list_files(Path("out"))) == {"mine_DATE.json", "samples_one_DATE.jsonl"}


def test_samples_are_omitted_without_log_samples(assay_command: Assay) -> None:
    assert assay_command(*RUN, "tasks/one.yaml", "--output_path", "out", "--log_samples", "false").code == 0
    files = list_files(Path("out/scripted"))
    assert set(files) == {"results_DATE.json"}
    assert read(files["results_DATE.json"])["task_hashes"] == {}


def test_without_an_output_path_only_the_journal_is_written(workspace: Path, assay_command: Assay) -> None:
    assert assay_command(*RUN, "tasks/one.yaml").code == 0
    assert {path.name for path in workspace.rglob("*") if path.is_file()} >= {"journal.sqlite", "lock"}
    assert not list(workspace.rglob("results_*"))


def test_too_many_failures_set_the_exit_code(
    workspace: Path, assay_command: Assay, scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.core.records.responses import Failure

    failure = Failure(request_id="", kind="timeout", message="too slow")
    monkeypatch.setattr(scripted, "_answers", lambda request: failure if request.document == 0 else "1")
    called = assay_command(*RUN, "tasks/one.yaml", "--output_path", "out")
    assert called.code == 1
    assert "error: 1 of 6 requests failed, more than --max_failures allows (1%)" in called.err
    assert "exact_match" in called.out
    assert list_files(Path("out/scripted")), "what there is, is written"


@pytest.mark.parametrize(("failing", "code"), [(0, 0), (1, 0), (2, 1)])
def test_one_percent_of_failures_is_tolerated(
    workspace: Path,
    assay_command: Assay,
    scripted: ScriptedModel,
    monkeypatch: pytest.MonkeyPatch,
    failing: int,
    code: int,
) -> None:
    from assay.core.records.responses import Failure

    failure = Failure(request_id="", kind="timeout", message="too slow")
    monkeypatch.setattr(scripted, "_answers", lambda request: failure if request.document < failing else "1")
    many = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(100)]
    path = write_task(workspace / "tasks", "many", many)
    assert assay_command(*RUN, str(path)).code == code


def test_task_without_scores_sets_the_exit_code(
    workspace: Path, assay_command: Assay, scripted: ScriptedModel
) -> None:
    metrics = [{"metric": "length", "aggregation": "mean", "higher_is_better": True}]
    path = write_task(
        workspace / "tasks",
        "broken",
        helpers="def length(doc, results):\n    raise ValueError('no length')\n",
        process_results=Function("utils.length"),
        metric_list=metrics,
    )
    called = assay_command(*RUN, str(path))
    assert called.code == 1
    assert "error: no document of `broken` has a score: 6 unscored" in called.err
    assert "unscored: broken, document 0 and 5 more: ValueError: no length (utils.py:2)" in called.out


def test_several_reasons_are_shown_each_with_its_first_document(
    workspace: Path, assay_command: Assay, scripted: ScriptedModel
) -> None:
    path = write_task(
        workspace / "tasks",
        "broken",
        helpers="def length(doc, results):\n    raise ValueError(doc['answer'])\n",
        process_results=Function("utils.length"),
        metric_list=[{"metric": "length", "aggregation": "mean", "higher_is_better": True}],
    )
    called = assay_command(*RUN, str(path))
    shown = [line for line in called.out.splitlines() if line.startswith("unscored: broken, document ")]
    assert [line.split(":")[1].split()[-1] for line in shown] == ["0", "1", "2"]
    assert "more reasons: `assay export " in called.out
    run = next(Path("assay-runs").iterdir())
    exported = assay_command("export", str(run), "--format", "jsonl").out
    assert "During handling" not in exported, "the traceback is the helper's, nothing of ours is before it"
