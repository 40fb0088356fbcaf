"""`assay lint-benchmark`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Assay
from tests.making import write_task

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(40)]


def test_findings_of_a_benchmark(assay_command: Assay, make_run: Callable[..., str], workspace: Path) -> None:
    task = str(write_task(workspace, "sums", [*ROWS, ROWS[0]]))
    runs = [
        make_run(name, lambda document, step=step: document % step == 0, task)
        for name, step in (("a", 2), ("b", 4))
    ]
    called = assay_command("lint-benchmark", *runs)
    assert called.code == 0
    assert "duplicates      1 of 41" in called.out and "never" in called.out and "always" in called.out
    assert {one["kind"] for one in json.loads(assay_command("lint_benchmark", *runs, "--json").out)} == {
        "duplicates",
        "never",
        "always",
    }
