"""`assay calibrate`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Assay
from tests.making import write_task

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(40)]


def test_calibrate_compares_a_judge_with_labels(
    assay_command: Assay, make_run: Callable[..., str], workspace: Path
) -> None:
    run = make_run("good", lambda document: document % 4 == 0, str(write_task(workspace, "sums", ROWS)))
    Path("labels.csv").write_text("document,label\n" + "".join(f"{n},{int(n % 4 > 0)}\n" for n in range(12)))
    called = assay_command("calibrate", run, "--labels", "labels.csv")
    assert called.code == 0
    assert "agreement    1.00, kappa 1.00" in called.out
    (report,) = json.loads(assay_command("calibrate", run, "--labels", "labels.csv", "--json").out)
    assert report["calibrated"]["labelled"] == 12
    assert assay_command("calibrate", run, "--labels", "nowhere.csv").code == 2
