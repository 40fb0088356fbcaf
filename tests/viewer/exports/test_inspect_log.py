"""Logs of inspect_ai; `tests/flows/test_interchange.py` reads them with its own package."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import InvalidOption
from assay.engine.imports.importer import import_results
from assay.store.runs.run import Run
from assay.viewer.exports.formats import export


def read_log(path: Path) -> dict[str, Any]:
    log: dict[str, Any] = json.loads(path.read_text())
    return log


@pytest.fixture(scope="module")
def folder(rich_run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("logs")
    export(rich_run, "inspect", [], place)
    return place


def test_each_task_has_a_log_with_the_members_of_inspect(folder: Path, rich_run: Any) -> None:
    files = sorted(folder.glob("*.eval"))
    assert len(files) == len(rich_run.tasks)
    (sums,) = (file for file in files if "_sums_" in file.name)
    with zipfile.ZipFile(sums) as archive:
        names = archive.namelist()
        summaries = json.loads(archive.read("summaries.json"))
    assert {"_journal/start.json", "summaries.json", "reductions.json", "header.json"} < set(names)
    assert "samples/4_epoch_2.json" in names and len(summaries) == 10


def test_scores_have_the_numbers_of_the_run(rich_run: Any, tmp_path: Path) -> None:
    (path,) = export(rich_run, "inspect-json", ["choices"], tmp_path / "log.json")
    log = read_log(path)
    found = {
        one["name"]: {key: value["value"] for key, value in one["metrics"].items()}
        for one in log["results"]["scores"]
    }
    assert found == {
        one.metric: {"mean": one.value, "stderr": one.stderr}
        for one in rich_run.estimates
        if one.task == "choices"
    }
    assert log["status"] == "success" and log["eval"]["model"] == "org/tiny"


def test_a_corpus_metric_has_the_name_of_its_aggregation(rich_run: Any, tmp_path: Path) -> None:
    (path,) = export(rich_run, "inspect-json", ["texts"], tmp_path / "log.json")
    names = {one["name"]: list(one["metrics"]) for one in read_log(path)["results"]["scores"]}
    assert names == {"word_perplexity": ["weighted_perplexity"], "bits_per_byte": ["bits_per_byte"]}


def test_usage_is_the_sum_of_the_samples(rich_run: Any, tmp_path: Path) -> None:
    (path,) = export(rich_run, "inspect-json", ["counter"], tmp_path / "log.json")
    log = read_log(path)
    total = log["stats"]["model_usage"]["org/tiny"]
    assert total == {
        "input_tokens": 50,
        "output_tokens": 15,
        "total_tokens": 75,
        "input_tokens_cache_read": 10,
        "total_cost": 1.25,
    }
    assert sum(one["model_usage"]["org/tiny"]["total_tokens"] for one in log["samples"]) == 75


def test_epochs_are_the_repeats_of_the_documents(rich_run: Any, tmp_path: Path) -> None:
    for task, epochs in (("sums", 2), ("counter", 1)):
        (path,) = export(rich_run, "inspect-json", [task], tmp_path / "log.json")
        log = read_log(path)
        assert log["eval"]["config"]["epochs"] == max(one["epoch"] for one in log["samples"]) == epochs
        assert log["results"]["total_samples"] == len(log["samples"])


def test_the_ending_of_a_file_selects_its_format(rich_run: Any, tmp_path: Path) -> None:
    (path,) = export(rich_run, "inspect", ["sums"], tmp_path / "one.json")
    assert read_log(path)["version"] == 2
    (path,) = export(rich_run, "inspect-json", ["sums"], tmp_path / "one.eval")
    assert zipfile.is_zipfile(path)
    (path,) = export(rich_run, "inspect", ["choices"], tmp_path / "one.eval")
    assert zipfile.is_zipfile(path), "a file can be replaced"


def test_several_tasks_need_a_folder(rich_run: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="a log contains one task, and the run has 2"):
        export(rich_run, "inspect", ["sums", "choices"], tmp_path / "one.eval")


def test_an_import_has_the_prompts_answers_and_scores_of_the_run(
    folder: Path, rich_run: Any, tmp_path: Path
) -> None:
    (stored,) = import_results(folder, tmp_path)
    back = Run(stored.folder)
    assert {(one.task, one.metric, one.pipeline): (one.value, one.stderr) for one in back.estimates} == {
        (one.task, one.metric, one.pipeline): (one.value, one.stderr) for one in rich_run.estimates
    }
    for task in rich_run.tasks:
        assert back.outcomes(task) == rich_run.outcomes(task)
        for before, after in zip(rich_run.records(task), back.records(task), strict=True):
            assert [one["prompt"] for one in before["requests"]] == [
                one["prompt"] for one in after["requests"]
            ]
            for key in ("fields", "target", "outcome"):
                assert before[key] == after[key], (task, key)
            for one, other in zip(before["requests"], after["requests"], strict=True):
                for key in (
                    "tool_calls",
                    "reasoning",
                    "input_tokens",
                    "cached_tokens",
                    "logprob",
                    "cost_usd",
                ):
                    assert one.get(key) == other.get(key), (task, key)
            if task == "sums":
                assert before.get("repeats") == after.get("repeats") or before["outcome"] == "failed"
    back.close()
