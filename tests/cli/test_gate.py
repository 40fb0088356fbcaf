from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.cli.conftest import Assay
from tests.making import write_task

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(60)]


@pytest.fixture
def runs(make_run: Callable[..., str], workspace: Path) -> dict[str, str]:
    """`good` can add; `bad` gets a fifth wrong, `tired` one document."""
    task = str(write_task(workspace, "sums", ROWS))
    return {
        "good": make_run("good", lambda document: False, task),
        "tired": make_run("tired", lambda document: document == 3, task),
        "bad": make_run("bad", lambda document: document < 12, task),
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
    ],
)
def test_gate_exit_code(
    assay_command: Assay, runs: dict[str, str], run: str, arguments: list[str], code: int
) -> None:
    words = [runs.get(word, word) for word in arguments]
    called = assay_command("gate", runs[run], *words, "--json")
    assert called.code == code
    assert json.loads(called.out)["passed"] == (code == 0)


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
        (["--min", "sums=0.5", "--alpha", "5"], "alpha 5 is not"),
    ],
)
def test_invalid_arguments_are_reported(
    assay_command: Assay, runs: dict[str, str], arguments: list[str], said: str
) -> None:
    called = assay_command("gate", runs["good"], *arguments)
    assert called.code == 2
    assert said in called.err
