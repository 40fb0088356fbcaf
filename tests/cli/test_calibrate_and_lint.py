from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Assay
from tests.making import write_task

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(40)]


def test_a_judge_is_held_against_labels(
    assay_command: Assay, run_of: Callable[..., str], workspace: Path
) -> None:
    run = run_of("good", lambda document: document % 4 == 0, str(write_task(workspace, "sums", ROWS)))
    Path("labels.csv").write_text("document,label\n" + "".join(f"{n},{int(n % 4 > 0)}\n" for n in range(12)))
    called = assay_command("calibrate", run, "--labels", "labels.csv")
    assert called.code == 0
    assert "agreement    1.00, kappa 1.00" in called.out
    (report,) = json.loads(assay_command("calibrate", run, "--labels", "labels.csv", "--json").out)
    assert report["calibrated"]["labelled"] == 12
    assert assay_command("calibrate", run, "--labels", "nowhere.csv").code == 2


def test_a_benchmark_is_linted(assay_command: Assay, run_of: Callable[..., str], workspace: Path) -> None:
    task = str(write_task(workspace, "sums", [*ROWS, ROWS[0]]))
    runs = [
        run_of(name, lambda document, step=step: document % step == 0, task)
        for name, step in (("a", 2), ("b", 4))
    ]
    called = assay_command("lint-benchmark", *runs)
    assert called.code == 0
    assert "duplicates 1 of 41" in called.out and "never" in called.out and "always" in called.out
    assert {one["kind"] for one in json.loads(assay_command("lint_benchmark", *runs, "--json").out)} == {
        "duplicates",
        "never",
        "always",
    }
