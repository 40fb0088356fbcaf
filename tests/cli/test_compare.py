from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Assay
from tests.making import write_task

from assay.store.runs.labels import append_label
from assay.testing import ScriptedModel

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1 if n < 30 else 0)} for n in range(40)]


@pytest.fixture
def two_runs(assay_command: Assay, scripted: ScriptedModel, workspace: Path) -> tuple[str, str]:
    """A run that can add, and one whose question says something else."""
    task = write_task(workspace, "sums", ROWS)
    options = ("run", str(task), "--model", "scripted", "--json")
    for place, more in (("a", ()), ("b", ("--system_instruction", "What is 3 + 1?"))):
        assert assay_command(*options, "--output_path", place, *more).code == 0
    folders = [next(path.parent for path in Path(name).rglob("journal.sqlite")) for name in "ab"]
    return str(folders[0]), str(folders[1])


def test_comparison_table_warnings_and_flips(assay_command: Assay, two_runs: tuple[str, str]) -> None:
    called = assay_command("compare", *two_runs, "--show_flips", "--plot", "forest.svg")
    assert called.code == 0
    assert "-72.50" in called.out and "not comparable: prompts" in called.out
    assert "no run is called better" in called.out
    assert "warning: prompts: system instruction: none and What is 3 + 1?" in called.out
    assert "29 changed documents, 0 of them improved" in called.out
    assert "19 more" in called.out
    assert Path("forest.svg").read_text().startswith("<svg")
    assert "\x1b" not in called.out


def test_mismatches_can_be_allowed(assay_command: Assay, two_runs: tuple[str, str]) -> None:
    called = assay_command("compare", *two_runs, "--allow_mismatch", "prompts")
    assert "worse" in called.out and "not comparable" not in called.out
    called = assay_command("compare", *two_runs, "--allow_mismatch", "prompt")
    assert called.code == 2 and "unknown kind of mismatch" in called.err


def test_json_contains_the_comparison(assay_command: Assay, two_runs: tuple[str, str]) -> None:
    called = assay_command("compare", two_runs[0], *two_runs, "--json", "--show-flips")
    same, other = json.loads(called.out)
    assert same["rows"][0]["difference"] == 0.0
    assert len(other["rows"][0]["flips"]) == 29
    assert other["mismatches"]
    assert other["rows"][0]["blocked"] == ["prompts"] and other["rows"][0]["better"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "one"], "two or more runs are required"),
        (["compare", "one", "two"], "no runs in"),
    ],
)
def test_invalid_arguments_are_reported(assay_command: Assay, arguments: list[str], said: str) -> None:
    called = assay_command(*arguments)
    assert called.code == 2
    assert said in called.err


def test_runs_are_compared_by_their_labels(assay_command: Assay, two_runs: tuple[str, str]) -> None:
    missing = assay_command("compare", *two_runs, "--labels")
    assert missing.code == 2 and "has no labels" in missing.err
    for n in range(20):
        append_label(Path(two_runs[0]), "sums", n, who="ann", verdict="right")
        append_label(Path(two_runs[1]), "sums", n, who="ann", verdict="wrong" if n % 2 else "right")
    called = assay_command("compare", *two_runs, "--labels", "--json")
    assert called.code == 0, called.err
    (row,) = json.loads(called.out)[0]["rows"]
    assert (row["metric"], row["difference"], row["documents"]) == ("human_label", -0.5, 20)
    refused = assay_command("compare", *two_runs, "--labels", "--metric", "exact_match")
    assert refused.code == 2 and "labels have no metric" in refused.err
