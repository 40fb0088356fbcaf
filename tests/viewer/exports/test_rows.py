"""Exports of documents as jsonl, csv and parquet."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.viewer.exports.conftest import HOSTILE, ROWS, export_text

from assay.store.runs.labels import LABELS_FILE, append_label
from assay.viewer.exports.formats import export


def test_jsonl_has_a_complete_line_per_document(run: Any) -> None:
    records = [json.loads(line) for line in export_text(run, "jsonl").splitlines()]
    assert [(record["task"], record["document"]) for record in records] == [
        *(("sums", number) for number in range(len(ROWS))),
        ("choices", 0),
        ("choices", 1),
    ]
    failed = records[len(HOSTILE)]
    assert (failed["outcome"], failed["requests"][0]["response"]) == ("failed", None)
    assert "503 <b>down</b>" in failed["why"]
    assert [record["requests"][0]["response"] for record in records[:4]] == HOSTILE[:4]
    last = records[len(ROWS) - 1]
    assert last["verdicts"] == [{"filter": "none", "metric": "exact_match", "kind": "score", "value": 1.0}]
    assert [request["continuation"] for request in records[-1]["requests"]] == [" no", " yes"]
    assert records[-1]["requests"][1]["logprob"] == -1.0


def test_csv_has_a_row_per_document_and_escapes_formulas(run: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(export_text(run, "csv"), newline="")))
    assert len(rows) == len(ROWS) + 2
    assert rows[0]["response"] == f"'{HOSTILE[0]}"
    assert rows[5]["response"] == HOSTILE[5]
    assert rows[6]["response"] == "-5", "a number is not a formula"
    assert (rows[len(HOSTILE)]["outcome"], rows[len(HOSTILE)]["exact_match"]) == ("failed", "")
    assert (rows[len(ROWS) - 1]["exact_match"], rows[-1]["exact_match"], rows[0]["acc"]) == ("1.0", "", "")
    assert not any(cell.startswith(("=", "@", "+")) for row in rows for cell in row.values())


def test_parquet_has_the_same_rows_as_csv(run: Any, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (file,) = export(run, "parquet", [], tmp_path / "deep" / "x.parquet")
    table = parquet.read_table(file).to_pylist()
    assert [(row["task"], row["document"]) for row in table][:2] == [("sums", 0), ("sums", 1)]
    assert table[0]["response"] == HOSTILE[0]
    assert (table[len(ROWS) - 1]["exact_match"], table[0]["acc"]) == (1.0, None)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["x.parquet"]


def test_labels_are_exported(run: Any, tmp_path: Path) -> None:
    without = export_text(run, "csv").splitlines()[0]
    append_label(run.folder, "sums", 1, who="ann", verdict="right", note="=1+1")
    append_label(run.folder, "sums", 1, who="bob", verdict="wrong")
    try:
        lines = [json.loads(line) for line in export_text(run, "jsonl", ["sums"]).splitlines()]
        assert [line["document"] for line in lines if "labels" in line] == [1]
        assert {label["who"] for label in lines[1]["labels"]} == {"ann", "bob"}
        rows = list(csv.DictReader(io.StringIO(export_text(run, "csv", ["sums"]))))
        assert (rows[1]["label"], rows[1]["notes"], rows[0]["label"]) == ("0.5", "ann: =1+1", "")
        export(run, "parquet", [], tmp_path / "labels.parquet")
        table = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "labels.parquet")
        assert table.column("label").to_pylist()[1] == 0.5
    finally:
        (run.folder / LABELS_FILE).unlink()
    assert "notes" not in without
