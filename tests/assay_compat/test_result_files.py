"""Result files of lm-eval and lmms-eval."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.core.errors import DatasetError, UnknownName
from assay.viewer.analysis.benchmark_lint import lint_benchmark
from assay.viewer.comparison.records import CompareOptions
from assay.viewer.comparison.run_comparison import compare_sources
from assay_compat.result_files import open_results

DATE = "2026-01-02T03-04-05.678901"


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def lm_eval_row(document: int, score: float, **more: Any) -> dict[str, Any]:
    return {
        "doc_id": document,
        "doc": {"question": f"q{document}", "about": {"topic": "a"}},
        "target": "yes",
        "arguments": {"gen_args_0": {"arg_0": f"Q: q{document}", "arg_1": {"until": ["\n"]}}},
        "resps": [["maybe"]],
        "filtered_resps": ["maybe"],
        "filter": "strict",
        "metrics": ["exact_match"],
        "doc_hash": f"hash {document}",
        "prompt_hash": f"prompt {document}",
        "target_hash": "t",
        "exact_match": score,
        **more,
    }


def lmms_eval_row(document: int, score: float) -> dict[str, Any]:
    return {
        "doc_id": document,
        "target": "B",
        "input": f"Q: {document}",
        "filtered_resps": ["B"],
        "token_counts": [{"input_tokens": 17, "output_tokens": 1}],
        "doc_hash": f"hash {document}",
        "mme_score": {"question_id": document, "score": score},
        "submission": "text that is no score",
    }


def test_lm_eval_samples_become_a_score_table(tmp_path: Path) -> None:
    rows = [lm_eval_row(n, float(n % 2)) for n in (2, 0, 1)]
    rows.insert(1, lm_eval_row(2, 1.0, filter="loose"))
    write(tmp_path / "model" / f"samples_my_task_{DATE}.jsonl", rows)
    results = {
        "results": {"my_task": {"exact_match,strict": 1 / 3}},
        "higher_is_better": {"my_task": {"exact_match": True}},
        "n-shot": {"my_task": 5},
        "config": {"model": "hf", "limit": 3},
        "chat_template_sha": "abc",
    }
    (tmp_path / "model" / f"results_{DATE}.json").write_text(json.dumps(results))
    source = open_results(tmp_path)
    assert source is not None
    assert source.tasks == ["my_task"]
    sheet = source.read_score_table("my_task")
    assert sheet.documents == [0, 1, 2]
    assert list(sheet.columns["strict", "exact_match"].values) == [0.0, 1.0, 0.0]
    assert list(sheet.columns["loose", "exact_match"].values) == [None, None, 1.0]
    assert sheet.facts["few-shot examples"] == 5
    assert source.facts["chat template"] == "abc"
    assert source.field("my_task", "about.topic") == ["a", "a", "a"]
    look = source.read_excerpts("my_task", [1])[1]
    assert (look.prompt, look.responses, look.answers["strict"]) == ("Q: q1", ("maybe",), "maybe")
    with pytest.raises(UnknownName, match="no task `other`"):
        source.read_score_table("other")


def test_samples_of_lmms_eval_are_compared_by_the_scores_in_their_mappings(tmp_path: Path) -> None:
    for name, share in (("a", 4), ("b", 2)):
        rows = [lmms_eval_row(n, float(n % share == 0)) for n in range(40)]
        write(tmp_path / name / "20260102_030405_samples_mme.jsonl", rows)
    sources = [open_results(tmp_path / name) for name in "ab"]
    assert sources[0] is not None and sources[1] is not None
    (row,) = compare_sources(sources[0], sources[1], CompareOptions()).rows
    assert (row.metric, row.first, row.second) == ("mme_score", 0.25, 0.5)
    assert row.differs
    assert sources[0].read_excerpts("mme", [3])[3].input_tokens == 17


def test_newest_file_of_a_task_is_used(tmp_path: Path) -> None:
    write(tmp_path / "samples_t_2025-01-01T00-00-00.0.jsonl", [lm_eval_row(0, 0.0)])
    write(tmp_path / f"samples_t_{DATE}.jsonl", [lm_eval_row(0, 1.0)])
    source = open_results(tmp_path)
    assert source is not None
    assert list(source.read_score_table("t").columns["strict", "exact_match"].values) == [1.0]


def test_results_of_two_models_are_not_mixed(tmp_path: Path) -> None:
    for model in ("ada", "bob"):
        write(tmp_path / model / f"samples_t_{DATE}.jsonl", [lm_eval_row(0, 1.0)])
        (tmp_path / model / f"results_{DATE}.json").write_text(json.dumps({"model_name": model}))
    with pytest.raises(UnknownName, match="results of 2 models: ada, bob") as caught:
        open_results(tmp_path)
    assert str(tmp_path / "ada") in caught.value.hint
    assert open_results(tmp_path / "ada") is not None


def test_results_file_selects_the_samples_of_its_date(tmp_path: Path) -> None:
    write(tmp_path / "samples_t_2025-01-01T00-00-00.0.jsonl", [lm_eval_row(0, 0.0)])
    write(tmp_path / f"samples_t_{DATE}.jsonl", [lm_eval_row(0, 1.0)])
    results = tmp_path / "results_2025-01-01T00-00-00.0.json"
    results.write_text("{}")
    source = open_results(results)
    assert source is not None
    assert list(source.read_score_table("t").columns["strict", "exact_match"].values) == [0.0]


def test_single_file_and_invalid_line(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", [lm_eval_row(0, 1.0)])
    source = open_results(path)
    assert source is not None and source.tasks == ["mine"]
    path.write_text(path.read_text() + "{broken\n")
    with pytest.raises(DatasetError) as error:
        source.read_score_table("mine")
    assert error.value.where.endswith("mine.jsonl:2")


def test_folder_without_samples_gives_none(tmp_path: Path) -> None:
    assert open_results(tmp_path) is None
    assert open_results(tmp_path / "missing") is None


def test_documents_with_equal_hashes_are_paired_by_index(tmp_path: Path) -> None:
    """Its samples carry the hash of nothing: by the time it is made, the documents are gone."""
    for place, right in (("a", 12), ("b", 6)):
        rows = [
            {**lmms_eval_row(n, float(n < right)), "doc_hash": hashlib.sha256(b"null").hexdigest()}
            for n in range(20 if place == "a" else 15)
        ]
        write(tmp_path / place / "20260101_120000_samples_sums.jsonl", rows)
    found = assay.compare(tmp_path / "a", tmp_path / "b")
    assert (found.rows[0].wins, found.rows[0].ties, found.rows[0].losses) == (0, 9, 6)
    assert [one.what for one in found.mismatches] == [
        "15 documents are in both runs, 5 only in the first, 0 only in the second"
    ]
    source = open_results(tmp_path / "a")
    assert source is not None
    assert not [lint for lint in lint_benchmark([source]) if lint.kind == "duplicates"]


def test_every_task_has_the_results_of_its_own_date(tmp_path: Path) -> None:
    for task, date in (("sums", "2026-01-01T00-00-00.000001"), ("more", "2026-01-02T00-00-00.000001")):
        write(tmp_path / f"samples_{task}_{date}.jsonl", [lm_eval_row(n, 1.0) for n in range(3)])
        about = {
            "results": {task: {"exact_match,none": 1.0}},
            "n-shot": {task: 5},
            "higher_is_better": {task: {"exact_match": False}},
        }
        (tmp_path / f"results_{date}.json").write_text(json.dumps(about), "utf-8")
    source = open_results(tmp_path)
    assert source is not None
    assert [source.read_score_table(task).facts["few-shot examples"] for task in ("sums", "more")] == [5, 5]
    assert {one.task for one in source.read_estimates()} == {"sums", "more"}
