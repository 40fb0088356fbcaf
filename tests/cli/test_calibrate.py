"""`assay calibrate`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Assay
from tests.making import write_task

from assay.store.runs.labels import append_label
from assay.store.runs.lookup import find_run

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


def test_labels_of_the_run_are_used_without_a_file(
    assay_command: Assay, make_run: Callable[..., str], workspace: Path
) -> None:
    run = make_run("good", lambda document: document % 4 == 0, str(write_task(workspace, "sums", ROWS)))
    missing = assay_command("calibrate", run)
    assert missing.code == 2
    assert "has no labels" in missing.err
    folder = find_run(run)
    for n in range(12):
        append_label(folder, "sums", n, who="ann", verdict="right" if n % 4 else "wrong")
        append_label(folder, "sums", n, who="bob", verdict="wrong")
    (report,) = json.loads(assay_command("calibrate", run, "--labeller", "ann", "--json").out)
    assert (report["agreement"], report["calibrated"]["labelled"]) == (1.0, 12)
    (report,) = json.loads(assay_command("calibrate", run, "--json").out)
    assert report["calibrated"]["labels_alone"] == 0.375
    unknown = assay_command("calibrate", run, "--labeller", "eve")
    assert unknown.code == 2
    assert "labels are by: ann, bob" in unknown.err
