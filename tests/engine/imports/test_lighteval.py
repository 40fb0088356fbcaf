"""Results and details of lighteval. The files were written by lighteval 0.13.0; see files/README.md."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import DatasetError
from assay.core.records.responses import LogProbability, Response
from assay.engine.imports.importer import import_results
from assay.engine.imports.lighteval import detect, read
from assay.store.runs.imported_runs import ImportedDocument, ImportedRun
from assay.store.runs.run import Run

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")

FILES = Path(__file__).parent / "files" / "lighteval"
DATE = "2026-11-17T16-59-38.370390"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """The output folder, with the names that lighteval gives: `|` is not possible on every system."""
    folder = Path(shutil.copytree(FILES, tmp_path / "output"))
    for file in folder.rglob("*.parquet"):
        file.rename(file.with_name(file.name.replace("__", "|")))
    return folder


def read_documents(run: ImportedRun, task: str) -> list[ImportedDocument]:
    read_all = run.tasks[task].read_documents
    assert read_all is not None
    return list(read_all())


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def test_results_and_details_are_found_from_each_other(output: Path) -> None:
    details = next(output.rglob("details_parity_mc*"))
    identities = {
        json.dumps(dict(run.identity))
        for path in (output, output / "results", details.parent, next(output.rglob("*.json")))
        for run in read(path)
    }
    assert len(identities) == 1 and detect(details)
    (alone,) = read(details)
    assert alone.model == "org/parity" and alone.tasks["parity_gen"].read_documents is None


def test_scores_are_those_of_lighteval(output: Path, tmp_path: Path) -> None:
    (stored,) = import_results(output, tmp_path / "runs")
    run = Run(stored.folder)
    theirs = json.loads(next(output.rglob("*.json")).read_text())["results"]
    for task, full in (("parity_mc", "parity_mc|2"), ("parity_gen", "parity_gen|0"), ("all", "all")):
        ours = {one.metric: one for one in run.estimates if one.task == task}
        for metric, estimate in ours.items():
            assert (estimate.value, estimate.stderr) == (
                theirs[full][metric],
                theirs[full][f"{metric}_stderr"],
            )
    assert run.tasks["parity_mc"]["n_shot"] == 2 and run.groups["all"]["members"] == [
        "parity_mc",
        "parity_gen",
    ]
    accuracy = next(one for one in run.estimates if one.task == "parity_mc")
    assert accuracy.scored == 4 and accuracy.interval is not None and accuracy.higher_is_better
    run.close()


def test_choices_have_likelihoods_and_texts_have_responses(output: Path) -> None:
    (run,) = read(output)
    choice, text = read_documents(run, "parity_mc")[0], read_documents(run, "parity_gen")[0]
    assert [one.value for one in choice.outcomes if isinstance(one, Response)] == [
        LogProbability(-0.5, True),
        LogProbability(-1.25, False),
    ]
    assert choice.target == " even" and choice.fields["query"] == "Question: Is 22 even or odd?\nAnswer:"
    (response,) = text.outcomes
    assert isinstance(response, Response) and response.value == "even"
    assert response.usage is not None and (response.usage.input_tokens, response.usage.output_tokens) == (
        3,
        1,
    )
    assert text.scores == {("none", "em"): 1.0}


def test_details_before_version_0_8_are_read(tmp_path: Path) -> None:
    """Their columns are Python values as text, as in lighteval 0.6.2."""
    path = tmp_path / f"details_leaderboard|arc:challenge|25|0_{DATE}.parquet"
    row = {
        "example": "Question: 2+2?",
        "full_prompt": "Question: 1+1? 2\nQuestion: 2+2?",
        "predictions": "[(-0.5, True), (-2.0, False)]",
        "choices": "[' 4', ' 5']",
        "gold": "[' 4']",
        "gold_index": "[0]",
        "metrics": "{'acc': 1.0, 'f1': nan}",
    }
    write_table(path, [row])
    (run,) = read(path)
    (document,) = read_documents(run, "arc:challenge")
    assert run.tasks["arc:challenge"].n_shot == 25
    assert [one.value.total for one in document.outcomes if isinstance(one, Response)] == [-0.5, -2.0]  # type: ignore[union-attr]
    assert document.scores == {("none", "acc"): 1.0}
    assert document.target == " 4" and document.requests[0].prompt.text == row["full_prompt"]


def test_other_columns_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / f"details_x|0_{DATE}.parquet"
    write_table(path, [{"question": "a", "answer": "b"}])
    with pytest.raises(DatasetError, match="has other columns than details of lighteval: question, answer"):
        import_results(path, tmp_path / "runs")


@pytest.mark.parametrize("row", [{"doc": None}, {"doc": {"choices": 3}}, {"metric": [1]}])
def test_rows_of_another_shape_are_an_error_or_have_no_score(tmp_path: Path, row: dict[str, Any]) -> None:
    path = tmp_path / f"details_x|0_{DATE}.parquet"
    write_table(
        path, [{"doc": {"query": "a"}, "metric": {"acc": 1}, "model_response": {"text": ["b"]}, **row}]
    )
    if row == {"metric": [1]}:
        (run,) = read(path)
        assert read_documents(run, "x")[0].scores == {}
        return
    with pytest.raises(DatasetError, match="row 0 has an unexpected format"):
        import_results(path, tmp_path / "runs")


def test_truncated_details_are_an_error(output: Path, tmp_path: Path) -> None:
    file = next(output.rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(DatasetError, match="not valid parquet") as caught:
        import_results(output, tmp_path / "runs")
    assert caught.value.where == str(file)
