from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Assay
from tests.making import write_task


def test_gap_is_explained_as_text_and_json(
    assay_command: Assay, make_run: Callable[..., str], workspace: Path
) -> None:
    task = str(write_task(workspace, "sums"))
    good = make_run("good", lambda document: False, task)
    bad = make_run("bad", lambda document: document < 3, task, "--system_instruction", "Add.")
    called = assay_command("explain", good, bad, "--examples", "1")
    assert called.code == 0
    assert "a gap of -50.00 points over 6 documents" in called.out
    assert "the prompts differ" in called.out and "3 documents" in called.out
    assert "differs: prompts: system instruction: none and Add." in called.out
    (found,) = json.loads(assay_command("explain", good, bad, "--json").out)
    assert found["gap"] == -0.5
    assert [cause["name"] for cause in found["causes"]] == ["prompt"]
