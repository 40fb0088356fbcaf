from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.cli.conftest import Assay
from tests.making import answer_correctly, write_task

from assay import models
from assay.cli.app import run_command_line
from assay.testing import ScriptedModel

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(60)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three runs: `good` can add; `bad` gets a fifth wrong, `tired` one document."""
    folder = tmp_path_factory.mktemp("recorded")
    task = str(write_task(folder, "sums", ROWS))
    wrong = {"good": range(0), "tired": range(3, 4), "bad": range(12)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_HOME", str(folder / "home"))
        for name, documents in wrong.items():

            def answer(request: Any, documents: range = documents) -> str:
                return "?" if request.document in documents else answer_correctly(request)

            patch.setitem(models.MODELS._items, name, lambda answer=answer: ScriptedModel(answer))
            output = ["--no_cache", "--output_path", str(folder / name)]
            assert run_command_line(["run", task, "--model", name, *output]) == 0
    return folder


@pytest.fixture
def runs(recorded: Path, workspace: Path) -> dict[str, str]:
    """Copy the recorded runs into the working folder and return their paths by name."""
    shutil.copytree(recorded, workspace, dirs_exist_ok=True)
    return {
        name: str(next(path.parent for path in Path(name).rglob("journal.sqlite")))
        for name in ("good", "tired", "bad")
    }


def test_significant_drop_fails_the_gate(assay_command: Assay, runs: dict[str, str]) -> None:
    called = assay_command(
        "gate", runs["bad"], "--baseline", runs["good"], "--junit", "g.xml", "--markdown", "deep/g.md"
    )
    assert called.code == 3
    assert "significantly worse" in called.out and "failed: 0 of 1 checks passed" in called.out
    suite = ElementTree.parse("g.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    assert "## Failed" in Path("deep/g.md").read_text()


@pytest.mark.parametrize(
    ("run", "arguments", "code"),
    [
        ("tired", ["--baseline", "good"], 0),
        ("bad", ["--baseline", "good", "--max_drop", "30"], 0),
        ("bad", ["--baseline", "good", "--max-drop", "3"], 3),
        ("good", ["--baseline", "bad"], 0),
        ("good", ["--min", "sums:exact_match=0.9"], 0),
        ("bad", ["--min", "sums=0.9"], 3),
        ("bad", ["--min", "sums=0.7", "--baseline", "good"], 3),
        ("bad", ["--min", "sums=0.75"], 3),
        ("bad", ["--min_point", "sums=0.75"], 0),
        ("bad", ["--min_point", "sums=0.85"], 3),
        ("bad", ["--baseline", "good", "--max_relative_drop", "30"], 0),
        ("bad", ["--baseline", "good", "--max_relative_drop", "3"], 3),
        ("good", ["--required", "sums"], 0),
        ("good", ["--required", "sums,other"], 3),
    ],
)
def test_gate_exit_code(
    assay_command: Assay, runs: dict[str, str], run: str, arguments: list[str], code: int
) -> None:
    words = [runs.get(word, word) for word in arguments]
    called = assay_command("gate", runs[run], *words, "--json")
    assert called.code == code
    assert json.loads(called.out, parse_constant=pytest.fail)["passed"] == (code == 0)


def test_min_compares_the_lower_bound_everywhere(assay_command: Assay, runs: dict[str, str]) -> None:
    called = assay_command("gate", runs["bad"], "--min", "sums=0.75", "--junit", "g.xml", "--json")
    (check,) = json.loads(called.out)["checks"]
    assert check["message"].startswith("sums: exact_match is 0.8000 [0.6")
    assert "lower bound required >= 0.75" in check["message"]
    assert "lower bound required" in Path("g.xml").read_text()


def test_tiers_decide_whether_a_missed_check_fails(assay_command: Assay, runs: dict[str, str]) -> None:
    def call(tier: str, *words: str) -> tuple[int, str]:
        rule = f"{{tasks: 'su*', tier: {tier}, max_drop: 1.0, min: 0.9}}"
        Path("policy.yaml").write_text(f"baseline: {runs['good']}\nrules: [{rule}]\n")
        called = assay_command("gate", runs["bad"], "--policy", "policy.yaml", "--junit", "g.xml", *words)
        return called.code, called.out

    code, output = call("must")
    assert code == 3 and output.count("FAIL  sums") == 2
    code, output = call("should")
    assert code == 0 and output.count("warn  sums") == 2
    suite = ElementTree.parse("g.xml").getroot()[0]
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "2")
    assert call("should", "--strict")[0] == 3
    code, output = call("watch")
    assert code == 0 and output.count("watch sums") == 2


def test_a_policy_names_required_tasks_and_relative_drops(assay_command: Assay, runs: dict[str, str]) -> None:
    Path("policy.yaml").write_text(
        "required: [sums, absent]\nrules: [{tasks: sums, max_relative_drop: 30}]\n"
    )
    called = assay_command("gate", runs["bad"], "--policy", "policy.yaml", "--baseline", runs["good"])
    assert called.code == 3
    assert "FAIL  absent: not in the run" in called.out
    assert "pass  sums: exact_match" in called.out


@pytest.mark.parametrize(
    ("rule", "code", "line"),
    [
        ('{tasks: "*", max_drop: 50}', 3, "FAIL  more: not in the run"),
        ('{tasks: "m*", tier: should, max_drop: 50}', 0, "warn  more: not in the run"),
        ("{tasks: sums, max_drop: 50}", 0, "watch more: not in the run"),
    ],
    ids=["must by pattern", "should by pattern", "no rule"],
)
def test_a_policy_reports_tasks_of_the_baseline_that_the_run_lacks(
    assay_command: Assay, workspace: Path, runs: dict[str, str], rule: str, code: int, line: str
) -> None:
    tasks = ",".join([str(workspace / "sums.yaml"), str(write_task(workspace, "more", ROWS))])
    assert assay_command("run", tasks, "--model", "oracle", "--output_path", "both").code == 0
    Path("policy.yaml").write_text(f"rules: [{rule}]\n")
    called = assay_command("gate", runs["bad"], "--policy", "policy.yaml", "--baseline", "both")
    assert called.code == code, called.out
    assert line in called.out


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ('{tasks: "smus*", tier: TIER, max_drop: 50}', "smus*: matches no task of the run"),
        ('{tasks: "su*", metric: nope, tier: TIER, max_drop: 50}', "sums: no score nope to compare"),
        ('{tasks: "su*", metric: nope, tier: TIER, min: 0.1}', "sums: no score nope"),
        ("{tasks: sums, metric: nope, tier: TIER, min_point: 0.1}", "sums: no score nope"),
    ],
    ids=["pattern", "metric of a drop", "metric of a minimum by pattern", "metric of a minimum by name"],
)
@pytest.mark.parametrize(("tier", "code", "sign"), [("must", 3, "FAIL "), ("should", 0, "warn ")])
def test_a_rule_that_matches_nothing_is_a_missed_check(
    assay_command: Assay, runs: dict[str, str], rule: str, line: str, tier: str, code: int, sign: str
) -> None:
    Path("policy.yaml").write_text(f"rules: [{rule.replace('TIER', tier)}]\n")
    called = assay_command("gate", runs["good"], "--policy", "policy.yaml", "--baseline", runs["good"])
    assert called.code == code, called.out
    assert f"{sign} {line}" in called.out


def test_a_selected_task_that_only_the_baseline_has_fails_the_gate(
    assay_command: Assay, workspace: Path, runs: dict[str, str]
) -> None:
    tasks = ",".join([str(workspace / "sums.yaml"), str(write_task(workspace, "more", ROWS))])
    assert assay_command("run", tasks, "--model", "oracle", "--output_path", "both").code == 0
    called = assay_command("gate", runs["good"], "--baseline", "both", "--tasks", "more")
    assert called.code == 3
    assert "more: not in the run" in called.out and "sums" not in called.out


def test_repeated_baselines_give_a_noise_floor(
    assay_command: Assay, make_run: Callable[..., str], workspace: Path, runs: dict[str, str]
) -> None:
    task = str(workspace / "sums.yaml")
    others = [
        make_run(f"again{count}", lambda document, count=count: document >= count, task) for count in (52, 46)
    ]
    words = [word for run in (runs["good"], *others) for word in ("--baseline", run)]
    assert assay_command("gate", runs["bad"], *words[:2]).code == 3
    called = assay_command("gate", runs["bad"], *words)
    assert called.code == 0, called.out
    assert "(noise of repeated baselines)" in called.out


def test_a_gate_fails_if_the_prompts_differ_from_the_baseline(
    assay_command: Assay, make_run: Callable[..., str], workspace: Path, runs: dict[str, str]
) -> None:
    task = str(workspace / "sums.yaml")
    other = make_run("other", lambda document: False, task, "--system_instruction", "Think.")
    called = assay_command("gate", other, "--baseline", runs["good"])
    assert called.code == 3
    assert "not comparable with the baseline: prompts" in called.out
    assert assay_command("gate", other, "--baseline", runs["good"], "--allow_mismatch", "prompts").code == 0


def test_missing_task_fails_the_gate(
    assay_command: Assay, make_run: Callable[..., str], workspace: Path, runs: dict[str, str]
) -> None:
    tasks = [str(write_task(workspace / name, name, ROWS)) for name in ("sums", "more")]
    both = make_run("both", lambda document: False, *tasks)
    called = assay_command("gate", runs["good"], "--baseline", both)
    assert called.code == 3
    assert "more: not in the run" in called.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "a baseline or a minimum score"),
        (["--min", "sums"], "invalid threshold"),
        (["--min", "other=0.5"], "has no score `other`"),
        (["--min", "sums=0.5", "--max_drop", "-1"], "drop is negative"),
        (["--min_point", "other=0.5"], "has no score `other`"),
        (["--min", "sums=0.5", "--tasks", "other"], "neither the run nor the baseline has the task `other`"),
        (["--policy", "absent.yaml"], "cannot read the policy"),
        (["--min", "sums=0.5", "--alpha", "5"], "alpha 5 is not"),
    ],
)
def test_invalid_arguments_are_reported(
    assay_command: Assay, runs: dict[str, str], arguments: list[str], said: str
) -> None:
    called = assay_command("gate", runs["good"], *arguments)
    assert called.code == 2
    assert said in called.err
