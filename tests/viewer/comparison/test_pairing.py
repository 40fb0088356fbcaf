"""Documents of two runs are paired by contents."""

from __future__ import annotations

from typing import Any

import pytest
from tests.viewer.comparison.conftest import ROWS, Runs, right_for

import assay
from assay.core.errors import UserError
from assay.core.records.responses import Failure
from assay.store.documents.score_tables import ScoreTable
from assay.viewer.comparison.comparison_table import collect_remarks
from assay.viewer.comparison.mismatches import find_blocking_kinds, find_task_mismatches
from assay.viewer.comparison.pairing import pair_documents


def test_documents_missing_in_one_run_are_excluded_and_counted(runs: Runs) -> None:
    moved = [{**ROWS[0], "question": "Something else?"}, *ROWS[5:30]]
    found = assay.compare(runs(right_for(*range(20))), runs(lambda request: "7", rows=moved))
    assert found.rows[0].documents == 25
    said = " ".join(text for _, text in collect_remarks(found))
    assert "25 documents are in both runs, 15 only in the first, 1 only in the second" in said


def test_documents_are_never_paired_by_number_if_their_contents_differ(runs: Runs) -> None:
    changed = [{**row, "note": "new"} for row in ROWS]
    with pytest.raises(UserError, match="no metric and document in common") as caught:
        assay.compare(runs(right_for(1)), runs(right_for(1), rows=changed))
    assert "all contents differ" in str(caught.value.hint)


def test_shuffled_documents_are_paired_by_contents(runs: Runs) -> None:
    def knows(request: Any) -> str:
        number = int(request.prompt.text.split("What is ")[1].split(" ")[0])
        return str(number + 1) if number < 10 else "?"

    found = assay.compare(runs(knows), runs(knows, rows=ROWS[::-1]), flips=True)
    assert found.rows[0].documents == 40
    assert found.rows[0].flips == ()


def build_table(contents: list[Any], prompts: list[Any]) -> ScoreTable:
    return ScoreTable(
        task="t",
        kind="files",
        documents=list(range(len(contents))),
        content_digests=contents,
        prompt_digests=prompts,
        endings=[""] * len(contents),
        columns={},
    )


def test_documents_without_contents_are_paired_by_prompt() -> None:
    found = pair_documents(build_table([None] * 3, ["a", "b", "c"]), build_table(["x", "y"], ["c", "a"]))
    assert list(zip(found.first.tolist(), found.second.tolist(), strict=True)) == [(0, 1), (2, 0)]
    assert not found.by_number


def test_pairs_by_number_block_the_verdict() -> None:
    first, second = build_table([None] * 2, ["a", "b"]), build_table(["x", "y"], ["c", "d"])
    found = pair_documents(first, second)
    assert found.by_number and len(found.first) == 2
    mismatches = list(find_task_mismatches(first, second, found))
    assert "pairing" in find_blocking_kinds(mismatches, metric="acc", pipeline="none")


def test_unanswered_documents_are_excluded(runs: Runs) -> None:
    def failing(request: Any) -> Any:
        return Failure(request_id="", kind="server error", message="down") if request.document < 4 else "5"

    found = assay.compare(runs(right_for(4)), runs(failing))
    assert found.rows[0].documents == 36
    assert "4 of 40 documents have no score" in found.rows[0].notes[0]
    assert any(one.kind == "endings" and "4 failed" in one.what for one in found.mismatches)
