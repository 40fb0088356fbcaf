"""`assay lock` and `assay run --locked`: every item that can change is named."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import Assay
from tests.making import Function, write_task

import assay
from assay.models.embedded.adapter import SHIPPED_WEIGHTS
from assay.testing import ScriptedModel

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(20)]
HELPERS = "def text(doc):\n    return 'Question: ' + doc['question'] + '\\nAnswer:'\n"
BASE = "doc_to_target: answer\ntest_split: test\n"


@pytest.fixture
def locked(assay_command: Assay, workspace: Path, scripted: ScriptedModel) -> Path:
    """A lockfile of a task with a helper, an included file and a local dataset."""
    folder = workspace / "tasks"
    write_task(
        folder,
        "sums",
        ROWS,
        helpers=HELPERS,
        include="base.yaml",
        doc_to_target=None,
        doc_to_text=Function("utils.text"),
        metric_list=[{"metric": "exact_match"}, {"metric": "bleu"}],
    )
    (folder / "base.yaml").write_text(BASE)
    called = assay_command("lock", "-t", "tasks/sums.yaml", "--model", "scripted", "-o", "eval.lock")
    assert called.code == 0, called.err
    return workspace / "eval.lock"


def replace_text(path: str | Path, old: str, new: str) -> None:
    file = Path(path)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    os.utime(
        file, ns=(1, file.stat().st_mtime_ns + 2_000_000_000)
    )  # helpers are loaded again if their time differs


def check(assay_command: Assay, *arguments: str) -> list[tuple[str, str]]:
    called = assay_command("lock", "--check", "eval.lock", "--json", *arguments)
    content = json.loads(called.out)
    assert called.code == (3 if content["drifts"] else 0), called.err
    return [(drift["kind"], drift["what"]) for drift in content["drifts"]]


def test_an_unchanged_run_is_accepted_and_carries_the_lockfile(
    assay_command: Assay, locked: Path, scripted: ScriptedModel
) -> None:
    called = assay_command(
        "run", "--locked", "eval.lock", "--output_path", "out", "--batch_size", "7", "--no_cache"
    )
    assert called.code == 0, called.err
    (results,) = Path("out").glob("scripted/results_*.json")
    lock = json.loads(results.read_text())["lock"]
    (folder,) = Path("out").glob("*-lock-*")
    manifest = json.loads((folder / "manifest.json").read_text())["lock"]
    assert lock == {"file": "eval.lock", "digest": manifest["digest"], "drift": []}
    assert manifest["text"] == locked.read_text()
    assert folder.name.endswith(manifest["digest"][:6])
    assert manifest["digest"] in assay_command("runs", "show", str(folder)).out
    assert assay_command("report", str(folder), "-o", "report.html").code == 0
    assert manifest["digest"] in Path("report.html").read_text("utf-8")
    for name in ("lm-eval", "inspect-json", "every-eval-ever"):
        assert assay_command("export", str(folder), "--format", name, "-o", name).code == 0
        assert any(manifest["digest"] in file.read_text("utf-8") for file in Path(name).rglob("*.json")), name
    asked = len(scripted.asked)
    again = assay_command("run", "--locked", "eval.lock", "--output_path", "out")
    assert again.code == 0 and "already finished" in again.err and len(scripted.asked) == asked
    assert assay_command("resume", str(folder)).code == 0


def change_data() -> None:
    replace_text("tasks/sums.jsonl", "What is 17", "What is 71")


def change_target() -> None:
    replace_text("tasks/sums.jsonl", '"18"', '"19"')


def add_row() -> None:
    data = Path("tasks/sums.jsonl")
    data.write_text(data.read_text() + data.read_text().splitlines()[0] + "\n")


def change_helper() -> None:
    replace_text("tasks/utils.py", "Question: ", "Q: ")


def change_include() -> None:
    replace_text("tasks/base.yaml", "test_split", "num_fewshot: 0\ntest_split")


def change_template() -> None:
    replace_text("tasks/sums.yaml", "!function 'utils.text'", '"{{question}} ="')


def change_setting() -> None:
    replace_text("tasks/sums.yaml", "metric_list:", "generation_kwargs: {max_gen_toks: 9}\nmetric_list:")


def change_metric() -> None:
    replace_text("tasks/sums.yaml", "- metric: exact_match", "- metric: exact_match\n  ignore_case: true")


CHANGES: list[tuple[Callable[[], None], list[str]]] = [
    (change_data, [
        "data: sums: the content of the dataset changed (20 rows before, 20 now); evaluated documents that differ: 17",
        "prompt: sums: prompts changed: document 17",
    ]),
    (change_target, [
        "data: sums: the content of the dataset changed (20 rows before, 20 now); evaluated documents that differ: 17",
    ]),
    (add_row, [
        "data: sums: the content of the dataset changed (20 rows before, 21 now); evaluated documents that differ: 20",
        "data: sums: 20 documents evaluated before, 21 now",
        "prompt: sums: newly evaluated: document 20",
    ]),
    (change_helper, [
        "prompt: sums: prompts changed: documents 0, 1, 2, 3, 4, 5, 6, 7 and 12 more",
        "code: sums: helper utils.py changed",
    ]),
    (change_include, [
        "task: sums: file base.yaml changed",
        "task: sums: key `num_fewshot` changed: '' before, '0' now",
    ]),
    (change_template, [
        "prompt: sums: prompts changed: documents 0, 1, 2, 3, 4, 5, 6, 7 and 12 more",
        "task: sums: file sums.yaml changed",
        "task: sums: template `doc_to_text` changed: '!function utils.text' before, '{{question}} =' now",
        "code: sums: helper utils.py is gone",
    ]),
    (change_setting, [
        "task: sums: file sums.yaml changed",
        "task: sums: key `generation_kwargs` changed: '' before, '{\"max_gen_toks\": 9}' now",
        "settings: sums: generation setting `max_gen_toks`: 256 before, 9 now",
        "settings: sums: generation setting `temperature`: 0.0 before, nothing now",
        "settings: sums: generation setting `do_sample`: False before, nothing now",
    ]),
    (change_metric, [
        "task: sums: file sums.yaml changed",
        "code: sums: metric `exact_match` changed: its arguments or its code",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("change", "expected"), CHANGES, ids=[change.__name__ for change, _ in CHANGES])
def test_each_change_is_named(
    assay_command: Assay, locked: Path, change: Callable[[], None], expected: list[str]
) -> None:
    change()
    found = [f"{kind}: {what}" for kind, what in check(assay_command)]
    assert [item for item in expected if item not in found] == []
    others = [item for item in found if item not in expected]
    assert all("key `" in item for item in others), others


def test_a_comment_is_no_difference(assay_command: Assay, locked: Path) -> None:
    replace_text("tasks/sums.yaml", "metric_list:", "# a comment\nmetric_list:")
    assert check(assay_command) == []


def test_a_refused_run_shows_both_prompts_at_their_difference(
    assay_command: Assay, locked: Path, scripted: ScriptedModel
) -> None:
    change_data()
    called = assay_command("run", "--locked", "eval.lock")
    assert called.code == 2 and not scripted.asked
    assert "document 17\n    before  'Question: What is 17 + 1?\\nAnswer:'" in called.err
    assert "now     'Question: What is 71 + 1?\\nAnswer:'" in called.err
    assert "error: the run differs from the lockfile in 2 items\n  at eval.lock" in called.err


def test_control_characters_of_a_lockfile_do_not_reach_the_terminal(
    assay_command: Assay, locked: Path
) -> None:
    replace_text(locked, "assay: ", 'assay: "\\e[31m" # ')
    called = assay_command("run", "--locked", "eval.lock", "--allow_drift", "versions")
    assert called.code == 0 and "\x1b" not in called.err and "x1b[31m before" in called.err
    assert "\x1b" not in assay_command("run", "--locked", "eval.lock").err


def test_accepted_drift_is_recorded_and_has_its_own_run(assay_command: Assay, locked: Path) -> None:
    change_data()
    assert assay_command("run", "--locked", "eval.lock", "--allow_drift", "data").code == 2
    called = assay_command("run", "--locked", "eval.lock", "--allow_drift", "data,prompt")
    assert called.code == 0 and "note: differs from eval.lock: data" in called.err
    (folder,) = Path("assay-runs").glob("*-drift")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [item.partition(":")[0] for item in manifest["lock"]["drift"]] == ["data", "prompt"]


def test_a_package_of_a_metric_is_named_with_its_user(
    assay_command: Assay, locked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sacrebleu")
    folder = tmp_path / "site" / "sacrebleu-9.9.9.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: sacrebleu\nVersion: 9.9.9\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    ((kind, what),) = check(assay_command)
    assert kind == "versions"
    assert re.fullmatch(r"sacrebleu: \S+ before, 9\.9\.9 now \(used by: metric bleu\)", what)
    assert check(assay_command, "--ignore", "versions") == []


def test_options_that_contradict_the_lockfile_are_errors(assay_command: Assay, locked: Path) -> None:
    called = assay_command("run", "--locked", "eval.lock", "--seed", "3", "--limit", "2")
    assert called.code == 2
    assert "--seed contradicts the lockfile: (3, 3, 3, 3), locked: (0, 1234, 1234, 1234)" in called.err
    assert "--limit contradicts the lockfile: 2, locked: None" in called.err
    same = assay_command(
        "run", "--locked", "eval.lock", "--seed", "0,1234,1234,1234", "-t", "tasks/sums.yaml"
    )
    assert same.code == 0, same.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--allow_drift", "data"], "--allow_drift needs --locked FILE"),
        (["run", "--locked", "eval.lock", "--from", "x"], "--locked and --from cannot be used together"),
        (["run", "--locked", "eval.lock", "--allow_drift", "weather"], "unknown kind of change `weather`"),
        (["run", "--locked", "none.lock"], "cannot read the lockfile"),
        (["run", "--locked", "tasks/base.yaml"], "the file is not a lockfile"),
        (
            ["lock", "--check", "eval.lock", "--update", "eval.lock"],
            "--check and --update cannot be used together",
        ),
        (["lock", "--check", "eval.lock", "-o", "x"], "-o cannot be used with --check"),
        (["lock", "--prompts", "few"], "`few` is not a number of documents"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_are_errors(
    assay_command: Assay, locked: Path, arguments: list[str], message: str
) -> None:
    called = assay_command(*arguments)
    assert called.code == 2 and message in called.err and "Traceback" not in called.err


def test_update_accepts_what_changed(assay_command: Assay, locked: Path) -> None:
    change_data()
    called = assay_command("lock", "--update", "eval.lock", "--limit", "18")
    assert called.code == 0
    assert "settings: --limit: None before, 18 now" in called.out.replace("nothing", "None")
    assert "prompt: sums: prompts changed: document 17; no longer evaluated: documents 18, 19" in called.out
    assert check(assay_command) == []
    assert yaml.safe_load(locked.read_text())["options"]["limit"] == 18


def test_the_lockfile_is_the_same_twice_and_names_no_place_of_the_machine(
    assay_command: Assay, locked: Path, workspace: Path
) -> None:
    text = locked.read_text()
    assert assay_command("lock", "-t", "tasks/sums.yaml", "--model", "scripted", "-o", "eval.lock").code == 0
    assert locked.read_text() == text
    assert str(workspace) not in text and str(Path.home()) not in text
    moved = workspace.parent / f"{workspace.name}-moved"
    shutil.copytree(workspace, moved)
    assert check_from(assay_command, moved) == []


def check_from(assay_command: Assay, folder: Path) -> list[tuple[str, str]]:
    here = Path.cwd()
    os.chdir(folder.parent)  # another working folder: paths are relative to the lockfile
    try:
        called = assay_command("lock", "--check", f"{folder.name}/eval.lock", "--json")
        return [(drift["kind"], drift["what"]) for drift in json.loads(called.out)["drifts"]]
    finally:
        os.chdir(here)


def test_secrets_and_folders_of_the_machine_are_left_out(
    assay_command: Assay, workspace: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    away = tmp_path_factory.mktemp("away")
    weights = copy_weights(away / "my-model")
    write_task(away / "tasks")
    called = assay_command(
        "lock", "-t", str(away / "tasks/sums.yaml"), "--model_args", f"weights={weights}", "-o", "eval.lock",
        "--metadata", "address=http://me:sk-abcdefghijklmnop@host", "--include_path", str(away / "tasks"),
    )  # fmt: skip
    assert called.code == 0, called.err
    text = (workspace / "eval.lock").read_text()
    assert str(away) not in text and "sk-abcdefghij" not in text and "***" not in text
    assert "not recorded because it is a secret: metadata.address" in called.err
    content = yaml.safe_load(text)
    assert content["options"]["tasks"] == ["sums"] and content["model"]["local_paths"] == {
        "weights": "my-model"
    }
    assert "`run --locked` needs --model_args weights=PATH" in " ".join(called.err.split())
    named = (
        "--include_path",
        str(away / "tasks"),
        "--model_args",
        f"weights={weights}",
        "--metadata",
        "address=http://me:sk-abcdefghijklmnop@host",
    )
    assert check(assay_command, *named) == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("system_instruction", "use my-hidden-value-1"),
        ("gen_kwargs", "until=my-hidden-value-1"),
        ("judge", "openai,model=my-hidden-value-1"),
    ],
)
def test_a_secret_that_a_locked_run_would_need_is_an_error(
    assay_command: Assay, locked: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "my-hidden-value-1")
    words = ("lock", "-t", "tasks/sums.yaml", "--model", "scripted", "-o", "other.lock", f"--{option}")
    called = assay_command(*words, value)
    assert called.code == 2 and f"error: --{option} contains a secret" in called.err
    assert "my-hidden" not in called.err and not Path("other.lock").exists()


def test_prompts_with_equal_texts_have_no_example(assay_command: Assay, locked: Path) -> None:
    content = yaml.safe_load(locked.read_text())
    prompts = content["tasks"]["sums"]["prompts"]
    number, first, rest = prompts["digests"].split(" ", 2)
    prompts.update(digest="0" * len(prompts["digest"]), digests=f"{number} {'0' * len(first)} {rest}")
    locked.write_text(yaml.safe_dump(content))
    called = assay_command("lock", "--check", "eval.lock", "--json")
    (drift,) = json.loads(called.out)["drifts"]
    assert drift["what"] == "sums: prompts changed: document 0" and drift["examples"] == []


def test_stars_in_an_option_are_no_secret(assay_command: Assay, locked: Path) -> None:
    words = (
        "lock",
        "-t",
        "tasks/sums.yaml",
        "--model",
        "scripted",
        "-o",
        "eval.lock",
        "--system_instruction",
    )
    called = assay_command(*words, "Write *** before the answer.")
    assert called.code == 0, called.err
    assert check(assay_command) == []


def copy_weights(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for file in SHIPPED_WEIGHTS.iterdir():
        if file.suffix == ".safetensors":
            (folder / file.name).symlink_to(file)
        else:
            shutil.copy(file, folder)
    return folder


def test_a_changed_chat_template_is_named(assay_command: Assay, workspace: Path) -> None:
    copy_weights(workspace / "model")
    write_task(workspace / "tasks")
    options = ("--model_args", "weights=model", "--apply_chat_template")
    assert assay_command("lock", "tasks/sums.yaml", *options).code == 0
    assert check(assay_command) == []
    with (workspace / "model/chat_template.jinja").open("a") as file:
        file.write("\n")
    ((kind, what),) = check(assay_command)
    assert kind == "template" and what.startswith("the chat template's `template_sha256`: ")


def test_a_mirror_replaces_a_dataset_that_is_gone_if_its_content_is_the_same(
    assay_command: Assay, workspace: Path, scripted: ScriptedModel
) -> None:
    pytest.importorskip("datasets")
    write_hub_dataset("hub/old/sums", ROWS)
    write_task(workspace / "tasks", dataset_path="old/sums", dataset_kwargs=None)
    lock = ("lock", "tasks/sums.yaml", "--model", "scripted", "--data_root", "hub")
    assert assay_command(*lock, "--mirror", "old/sums=new/sums").code == 0
    assert yaml.safe_load(Path("eval.lock").read_text())["tasks"]["sums"]["dataset"]["mirrors"] == [
        "new/sums"
    ]
    assert check(assay_command) == []
    shutil.rmtree("hub/old")
    called = assay_command("lock", "--check", "eval.lock")
    assert called.code == 2 and "cannot load the dataset `old/sums`" in called.err
    write_hub_dataset("hub/new/sums", ROWS)
    assert check(assay_command) == []
    assert assay_command("run", "--locked", "eval.lock").code == 0
    write_hub_dataset("hub/new/sums", [{**ROWS[0], "answer": "two"}, *ROWS[1:]])
    ((kind, what),) = check(assay_command)
    assert kind == "data" and what.endswith("evaluated documents that differ: 0")


def write_hub_dataset(folder: str, rows: list[dict[str, str]]) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    Path(folder, "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_verify_compares_with_the_lockfile_of_the_run(assay_command: Assay, locked: Path) -> None:
    assert assay_command("run", "--locked", "eval.lock").code == 0
    called = assay_command("verify", "latest")
    assert called.code == 0 and re.search(
        r"lockfile: eval\.lock \(digest \w{32}\): no differences", called.out
    )
    change_helper()
    called = assay_command("verify", "latest", "--json")
    found = json.loads(called.out)["lock"]
    assert called.code == 3 and found["file"] == "eval.lock"
    assert "code" in [change["kind"] for change in found["changes"]]


def test_a_prompt_without_a_text_in_the_lockfile_is_named(assay_command: Assay, locked: Path) -> None:
    assert assay_command("lock", "--update", "eval.lock", "--prompts", "2").code == 0
    change_data()
    _, (kind, what) = check(assay_command)
    assert kind == "prompt"
    assert what == (
        "sums: prompts changed: document 17; their texts are not in the lockfile (`assay lock --prompts all` keeps them)"
    )


def test_a_locked_run_asks_what_the_same_run_asks_without_a_lockfile(
    assay_command: Assay, workspace: Path, scripted: ScriptedModel
) -> None:
    helpers = "import random\n\ndef text(doc):\n    return f'{random.random()}: {doc[\"question\"]}'\n"
    write_task(workspace / "tasks", "sums", ROWS, helpers=helpers, doc_to_text=Function("utils.text"))
    options = ("tasks/sums.yaml", "--model", "scripted")
    prompts = []
    for words in (
        ("run", *options, "--no_cache"),
        ("lock", *options),
        ("run", "--locked", "eval.lock", "--no_cache"),
    ):
        scripted.asked.clear()
        assert assay_command(*words).code in (0, 1)
        prompts.append([request.prompt.text for request in scripted.asked])
    assert prompts[0] == prompts[2] and len(prompts[0]) == 20 and prompts[1] == []


def test_a_judge_and_its_prompt_are_locked(
    assay_command: Assay, workspace: Path, scripted: ScriptedModel
) -> None:
    judged = {"metric": "good", "judge": {"kind": "score", "prompt": "Rate {{response}} from 1 to 5."}}
    write_task(workspace / "tasks", metric_list=[judged])
    lock = ("lock", "tasks/sums.yaml", "--model", "scripted", "--judge")
    assert assay_command(*lock, "dummy").code == 0
    content = yaml.safe_load(Path("eval.lock").read_text())
    assert list(content["judges"]) == ["dummy"]
    assert content["tasks"]["sums"]["judged"]["good"]["judges"] == ["dummy"]
    replace_text("tasks/sums.yaml", "Rate {{response}}", "Grade {{response}}")
    assert ("task", "sums: judged metric `good`: prompt changed") in check(assay_command)


def test_code_that_a_lockfile_would_run_needs_consent(assay_command: Assay, locked: Path) -> None:
    replace_text(locked, "confirm_run_unsafe_code: false", "confirm_run_unsafe_code: true")
    called = assay_command("run", "--locked", "eval.lock")
    assert called.code == 2 and "the lockfile needs --confirm_run_unsafe_code" in called.err
    replace_text(locked, "model_args: {}", "model_args: {trust_remote_code: true}")
    called = assay_command("run", "--locked", "eval.lock", "--confirm_run_unsafe_code")
    assert called.code == 2 and "the lockfile needs --model_args trust_remote_code=true" in called.err


@pytest.mark.parametrize("option", ["judge", "user"])
def test_remote_code_of_a_judge_or_user_in_a_lockfile_needs_consent(
    assay_command: Assay, locked: Path, option: str
) -> None:
    word = "dummy,trust_remote_code=true"
    replace_text(locked, f"  {option}: []", f"  {option}: ['{word}']")
    called = assay_command("run", "--locked", "eval.lock")
    assert called.code == 2 and f"the lockfile needs --{option} {word}" in called.err
    called = assay_command("run", "--locked", "eval.lock", f"--{option}", word)
    assert "the lockfile needs" not in called.err


def test_a_lockfile_works_in_python(locked: Path, scripted: ScriptedModel) -> None:
    run = assay.run(locked="eval.lock")
    assert run.results["sums"]["exact_match,none"] == 1.0
    change_data()
    with pytest.raises(assay.AssayError, match="differs from the lockfile") as raised:
        assay.run(locked="eval.lock")
    changes: Any = getattr(raised.value, "changes")  # noqa: B009 - the public error type has no such field
    assert [change.kind for change in changes] == ["data", "prompt"]
