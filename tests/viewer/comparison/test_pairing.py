"""Documents of two runs are paired by contents or number."""

from __future__ import annotations

from typing import Any

from tests.viewer.comparison.conftest import ROWS, Runs, right_for

import assay
from assay.core.responses import Failure
from assay.viewer.comparison.comparison_table import (
    collect_remarks,
)


def test_documents_missing_in_one_run_are_excluded_and_counted(runs: Runs) -> None:
    moved = [{**ROWS[0], "question": "Something else?"}, *ROWS[5:30]]
    found = assay.compare(runs(right_for(*range(20))), runs(lambda request: "7", rows=moved))
    assert found.rows[0].documents == 25
    said = " ".join(text for _, text in collect_remarks(found))
    assert "25 documents are in both runs, 15 only in the first, 1 only in the second" in said


def test_a_changed_dataset_is_paired_by_number_with_a_warning(runs: Runs) -> None:
    changed = [{**row, "note": "new"} for row in ROWS]
    found = assay.compare(runs(right_for(1)), runs(right_for(1), rows=changed))
    assert found.rows[0].documents == 40
    assert "paired by number" in " ".join(one.what for one in found.mismatches)


def test_unanswered_documents_are_excluded(runs: Runs) -> None:
    def failing(request: Any) -> Any:
        return Failure(request_id="", kind="server error", message="down") if request.document < 4 else "5"

    found = assay.compare(runs(right_for(4)), runs(failing))
    assert found.rows[0].documents == 36
    assert "4 of 40 documents have no score" in found.rows[0].notes[0]
    assert any(one.kind == "endings" and "4 failed" in one.what for one in found.mismatches)
