"""`assay same` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import assay
from assay.cli.app import run_command_line

ASK = ("same", "--tasks", "quickstart_copy", "--model", "oracle", "--against", "dummy")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two models on the same documents: one copies, one does not."""
    folder = tmp_path_factory.mktemp("runs")
    found = [
        assay.run(model=model, tasks=["quickstart_copy"], output_path=str(folder), no_cache=True)
        for model in ("oracle", "dummy")
    ]
    return str(found[0].folder), str(found[1].folder)


def test_the_verdict_comes_first_and_the_exit_code_says_the_same(
    runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["same", *runs]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Different: their ")
    assert any(line.startswith("first: oracle-") for line in lines)


def test_few_documents_have_their_own_exit_code(
    runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["same", runs[0], runs[0], "--json"]) == 5
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "undecided" and found["exit_code"] == 5
    assert found["result"]["delta"] == 0.02
    assert run_command_line(["same", runs[0], runs[0], "--delta", "0.3"]) == 0


def test_two_models_are_asked_until_there_is_a_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["same", "--tasks", "quickstart_copy", "--model", "oracle", "-o", str(tmp_path), "--no_cache"]
    assert run_command_line([*words, "--against", "dummy"]) == 3
    assert "Different" in capsys.readouterr().out
    assert run_command_line([*words, "--against", "oracle", "--delta", "0.3"]) == 0
    assert "Same: both serve the same model within 30 %" in capsys.readouterr().out


def test_two_models_are_asked_with_several_prompts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--limit",
        "6",
        "--vary",
        "system",
        "--variants",
        "2",
        "-o",
        str(tmp_path),
        "--no_cache",
        "--json",
    ]
    assert run_command_line([*ASK, *words]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["documents"] == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "two finished runs are required"),
        (["only-one"], "two finished runs are required"),
        (["{0}", "{1}", "--limit", "3"], "--limit has no effect on finished runs"),
        (["{0}", "{1}", "--delta", "2"], "not between 0 and 1"),
        (["{0}", "{1}", "--tasks", "gsm8k"], "not in both runs"),
        (["{0}", "no-such-run"], "no-such-run"),
        (["--against", "dummy", "--reference", "x"], "belongs to two finished runs"),
        (["{0}", "{1}", *["--reference", "{0}"] * 3], "more than two reference runs"),
        (["{0}", "{1}", "--reference", "{1}"], "is given twice"),
        ([*ASK, "--budget", "5"], "at --budget"),
        ([*ASK, "--against", "dumy"], "dumy"),
        ([*ASK, "--subset", "x"], "at --subset"),
        ([*ASK, "--stop_when", "halfwidth<0.01"], "at --stop_when"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_arguments_are_explained(
    runs: tuple[str, str], words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word.format(*runs) for word in words if word != "same"]
    assert run_command_line(["same", *given, "--in", str(Path(runs[0]).parent)]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "running" not in shown  # also for the second of two models
