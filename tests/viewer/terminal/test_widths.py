"""What the commands print at 80, 100, 120 and 160 columns, compared with recorded text.

`WRITE_RECORDED=1 pytest tests/viewer/terminal/test_widths.py` writes the recorded files again.
"""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

import assay
from assay.cli.app import run_command_line
from assay.core.progress import RunProgress, TaskProgress, TokenCount
from assay.store.runs.lookup import RunState, RunSummary
from assay.viewer.terminal.progress import build_progress_table
from assay.viewer.terminal.runs_table import build_runs_table

RECORDED = Path(__file__).parent / "recorded"
WIDTHS = (80, 100, 120, 160)
TASKS = ["quickstart_addition", "quickstart_copy", "quickstart_shapes", "quickstart_vote"]
Print = Callable[..., str]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs of the embedded model, with and without few-shot examples."""
    folder = tmp_path_factory.mktemp("runs")
    first, second = (
        assay.run(tasks=TASKS, limit=12, num_fewshot=shots, output_path=str(folder), no_cache=True)
        for shots in (None, 2)
    )
    return first.folder, second.folder


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def run_in_terminal(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Print:
    """Return a function that runs a command as in a terminal of this width and returns its output without colours."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))

    def run(*words: str) -> str:
        capsys.readouterr()
        assert run_command_line(list(words)) == 0
        return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)

    return run


def compare_with_recorded(name: str, width: int, text: str) -> None:
    """Compare a text with its recorded file; no line may be wider than the terminal."""
    lines = [line.rstrip() for line in text.splitlines()]
    wide = [line for line in lines if len(line) > width]
    assert not wide
    path = RECORDED / f"{name}-{width}.txt"
    shown = "\n".join(lines) + "\n"
    if os.environ.get("WRITE_RECORDED"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, "utf-8")
    assert shown == path.read_text("utf-8")


def list_numbers(text: str) -> Counter[str]:
    return Counter(re.findall(r"\d+\.\d+", text))


def test_results_and_repeats(width: int, run_in_terminal: Print, runs: tuple[Path, Path]) -> None:
    text = run_in_terminal("runs", "show", str(runs[0]))
    table = text[text.index("\n task") :]
    compare_with_recorded("results", width, table)
    stored = assay.open_run(runs[0])
    assert list_numbers(table) == list_numbers(stored.table()), "every number is shown at every width"
    stored.close()


def test_comparison(width: int, run_in_terminal: Print, runs: tuple[Path, Path]) -> None:
    text = run_in_terminal("compare", *map(str, runs), "--allow_mismatch", "prompts")
    table = text[text.index("\n task") : text.index("\n\nwarning")]
    compare_with_recorded("compare", width, table)


def test_list_of_runs(width: int) -> None:
    summaries = [
        RunSummary(
            id=f"Qwen-Qwen3-8B-Instruct-{name}-01234567",
            folder=Path(name),
            state=cast("RunState", state),
            model="Qwen/Qwen3-8B-Instruct",
            documents=1319,
            done=done,
            started=1_000_000.0 - age,
            seconds=811.0,
            scores=scores,
            bytes=7_340_032,
            why=why,
        )
        for name, state, done, age, scores, why in (
            ("gsm8k", "finished", 1319, 40.0, (("gsm8k", "exact_match", 0.8123),), ""),
            (
                "leaderboard-and-12-more",
                "with failures",
                1319,
                90_000.0,
                tuple((f"task{number}", "acc_norm", 0.25) for number in range(13)),
                "",
            ),
            ("mmlu_pro_computer_science", "running", 204, 400.0, (), ""),
            ("ifeval", "damaged", 0, 7000.0, (), "the journal is damaged: 3 pages have wrong checksums"),
        )
    ]
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(build_runs_table(summaries, now=1_000_000.0))
    compare_with_recorded("runs", width, stream.getvalue())


def test_progress(width: int) -> None:
    tasks = {
        "gsm8k": TaskProgress("gsm8k", 1319, done=1319, metric="exact_match", endings=Counter(scored=1319)),
        "mmlu_pro_computer_science": TaskProgress(
            "mmlu_pro_computer_science",
            410,
            done=123,
            metric="exact_match",
            endings=Counter(scored=100, truncated=20, failed=3),
        ),
        "arc_challenge": TaskProgress("arc_challenge", 1172),
    }
    for task in list(tasks.values())[:2]:
        task.add_scores([1.0, 0.0, 1.0, 1.0])
    progress = RunProgress(
        stage="ask",
        tasks=tasks,
        tokens=TokenCount(input_tokens=120_000, output_tokens=900, cost_usd=0.25, priced=3),
    )
    progress.failures.update({"timeout": 3})
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(build_progress_table(progress))
    table, _, line = stream.getvalue().partition("running  ")
    compare_with_recorded("progress", width, table)
    assert line.startswith("1442/2901 documents")
