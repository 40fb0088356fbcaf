"""Imported runs: documents, failures, repeats and aggregates of other programs as run folders."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import pytest

from assay.core.errors import DatasetError
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Failure, Response, Usage
from assay.core.records.verdicts import Estimate, RepeatScores
from assay.engine.imports.estimates import complete_estimates
from assay.store.journal.journal import Journal
from assay.store.runs.imported_runs import ImportedDocument, ImportedRun, ImportedTask, write_imported_run
from assay.store.runs.run import Run


def build_document(index: int, score: object = 1.0, error: str = "") -> ImportedDocument:
    requests = [
        Generate(
            task="sums", document=index, repeat=repeat, prompt=Prompt.of_text("2+2"), settings=Settings({})
        )
        for repeat in range(2)
    ]
    outcomes: list[Response | Failure | None] = [
        Response(request_id=request.id, value=f"{index}.{request.repeat}", finish="stop", usage=Usage(3, 1))
        for request in requests
    ]
    if error:
        outcomes[1] = Failure(request_id=requests[1].id, kind="timeout", message=error)
    values = (1.0, 0.0)
    return ImportedDocument(
        index=index,
        fields={"question": "2+2"},
        target="4",
        requests=requests,
        outcomes=outcomes,
        answers={"none": ["4"]},
        scores={} if error else {("none", "acc"): score},
        reasons={("none", "acc"): "the judge said so"},
        repeats=[]
        if error
        else [RepeatScores(document=index, pipeline="none", answers=(0, 1), scores={"acc": values})],
    )


def write(folder: Path, documents: Iterable[ImportedDocument] | None, **facts: object) -> Run:
    task = ImportedTask(read_documents=None if documents is None else lambda: documents)
    run = ImportedRun(program="x", model="m", identity={"name": "m"}, tasks={"sums": task}, **facts)  # type: ignore[arg-type]
    write_imported_run(folder, run, complete_estimates)
    return Run(folder)


def test_documents_repeats_and_failures_are_stored(tmp_path: Path) -> None:
    run = write(
        tmp_path / "run", [build_document(0), build_document(1, 0.0), build_document(5, error="too slow")]
    )
    records = list(run.records("sums"))
    assert [record["document"] for record in records] == [0, 1, 5]
    assert [record["outcome"] for record in records] == ["scored", "scored", "failed"]
    assert [[one.get("response") for one in record["requests"]] for record in records][:2] == [
        ["0.0", "0.1"],
        ["1.0", "1.1"],
    ]
    assert records[2]["why"] == "too slow" and run.failed_requests() == (1, 6)
    (mean,) = run.estimates
    assert (mean.value, mean.scored, mean.unscored, mean.failed) == (0.5, 2, 0, 1)
    assert run.facts["repeats"][0]["numbers"]["pass@2"]["value"] == 1.0
    assert records[0]["requests"][0]["input_tokens"] == 3
    run.close()


@pytest.mark.parametrize("score", [math.nan, math.inf, None])
def test_undefined_scores_are_not_averaged(tmp_path: Path, score: float | None) -> None:
    run = write(tmp_path / "run", [build_document(0), build_document(1, score)])
    (mean,) = run.estimates
    assert (mean.value, mean.scored, mean.unscored) == (1.0, 1, 1)
    run.close()


def test_task_without_documents_has_its_estimates(tmp_path: Path) -> None:
    reported = Estimate(task="sums", metric="acc", pipeline="none", value=0.5, stderr=0.1, scored=25)
    run = write(tmp_path / "run", None, estimates=[reported])
    assert run.estimates == [reported] and run.tasks_without_documents == ["sums"] and run.finished
    run.close()


def test_duplicate_documents_are_an_error_and_leave_no_files(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="two documents with the number 3"):
        write(tmp_path / "run", [build_document(3), build_document(3)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("index", [-1, 1 << 60, "seven", None])
def test_invalid_document_number_is_an_error(tmp_path: Path, index: object) -> None:
    document = ImportedDocument(index=index, fields={})  # type: ignore[arg-type]
    with pytest.raises(DatasetError, match="invalid number"):
        write(tmp_path / "run", [document])
    assert not list(tmp_path.iterdir())


def test_interrupted_import_is_removed_and_another_import_in_progress_is_not(tmp_path: Path) -> None:
    killed = tmp_path / ".run.1-1.importing"
    killed.mkdir()
    (killed / "journal.sqlite").write_bytes(b"")
    other = Journal.open_for_writing(tmp_path / ".run.2-2.importing")
    run = write(tmp_path / "run", [build_document(0)])
    run.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".run.2-2.importing", "run"]
    other.close()


def test_keys_in_facts_and_metadata_are_redacted(tmp_path: Path) -> None:
    secret = {"api_key": "live-key-123456", "seed": 1}
    task = ImportedTask(config={"metadata": secret, "cluster_key": "question"})
    run = ImportedRun(
        program="x", model="m", identity={"name": "m"}, tasks={"sums": task}, facts={"lighteval": [secret]}
    )
    write_imported_run(tmp_path / "run", run, complete_estimates)
    stored = Run(tmp_path / "run")
    assert stored.facts["lighteval"] == [{"api_key": "***", "seed": 1}]
    assert stored.tasks["sums"]["config"] == {
        "metadata": {"api_key": "***", "seed": 1},
        "cluster_key": "question",
    }
    stored.close()
