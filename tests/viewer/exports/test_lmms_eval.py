"""The files of lmms-eval."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from assay.viewer.exports.formats import export


def test_lmms_eval_files_have_its_names_and_keys(run: Any, tmp_path: Path) -> None:
    results, sums, choices = export(run, "lmms-eval", [], tmp_path / "lmms")
    date = results.name.removesuffix("_results.json")
    assert (len(date), results.parent.name) == (15, "scripted")
    assert [sums.name, choices.name] == [f"{date}_samples_sums.jsonl", f"{date}_samples_choices.jsonl"]
    document = json.loads(results.read_text())
    assert set(document["results"]["sums"]) == {"alias", "exact_match,none", "exact_match_stderr,none"}
    assert document["n-samples"]["sums"] == {"original": 9, "effective": 9}
    assert {"task_hashes", "start_time", "end_time", "model_name_sanitized", "usage"} <= set(document)
    row = json.loads(sums.read_text().splitlines()[-1])
    expected = ["doc_id", "target", "input", "filtered_resps", "token_counts", "doc_hash", "exact_match"]
    assert list(row) == expected, "a response that is the answer is not repeated"
    assert (row["doc_id"], row["target"], row["filtered_resps"]) == (8, "9", "9")
    chosen = json.loads(choices.read_text().splitlines()[0])
    assert chosen["resps"] == [[["-2.0", "True"]], [["-1.0", "True"]]]
    assert chosen["filtered_resps"] == [["-2.0", "True"], ["-1.0", "True"]]
