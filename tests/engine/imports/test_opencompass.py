"""Output folders of OpenCompass. The files were written by opencompass 0.5.4; see files/README.md."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import DatasetError
from assay.core.records.responses import LogProbability, Response
from assay.engine.imports.formats import detect_format
from assay.engine.imports.importer import import_results
from assay.engine.imports.opencompass import detect, read
from assay.store.runs.imported_runs import ImportedDocument, ImportedRun
from assay.store.runs.run import Run

FILES = Path(__file__).parent / "files" / "opencompass"
EVALUATION = FILES / "20261117_171408"
PREDICTIONS = EVALUATION / "predictions" / "parity-model"
SUMMARY = EVALUATION / "summary" / "summary_20261117_171408.csv"


def read_documents(run: ImportedRun, task: str) -> list[ImportedDocument]:
    read_all = run.tasks[task].read_documents
    assert read_all is not None
    return list(read_all())


def write_output(folder: Path, predictions: dict[str, Any], result: Any = None) -> Path:
    """Write `predictions/m/*.json` and `results/m/data.json`."""
    (folder / "predictions" / "m").mkdir(parents=True)
    for name, content in predictions.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / "predictions" / "m" / f"{name}.json").write_text(text)
    if result is not None:
        (folder / "results" / "m").mkdir(parents=True)
        (folder / "results" / "m" / "data.json").write_text(json.dumps(result))
    return folder


@pytest.mark.parametrize(
    "path",
    [FILES, EVALUATION, EVALUATION / "predictions", PREDICTIONS, PREDICTIONS / "parity_gen.json", SUMMARY],
    ids=lambda path: path.name,
)
def test_folders_and_files_are_detected(path: Path) -> None:
    found = detect_format(path)
    assert found is not None and found.name == "opencompass"


def test_scores_are_those_of_opencompass(tmp_path: Path) -> None:
    (stored,) = import_results(FILES, tmp_path)
    run = Run(stored.folder)
    assert run.model == "parity-model" and list(run.tasks) == ["parity_gen", "parity_ppl"]
    values = {(one.task, one.metric): one for one in run.estimates}
    assert values["parity_gen", "accuracy"].value == values["parity_ppl", "accuracy"].value == 50.0
    correct = values["parity_ppl", "correct"]
    assert (correct.value, correct.scored) == (0.5, 4) and correct.interval is not None
    assert run.facts["started"] == run.facts["ended"] > 0
    run.close()


def test_predictions_have_prompts_and_references() -> None:
    (run,) = read(EVALUATION)
    documents = read_documents(run, "parity_gen")
    assert [document.target for document in documents] == ["even", "odd", "even", "odd"]
    assert documents[1].requests[0].prompt.text == "Question: Is 21 even or odd?\nAnswer:"
    assert [
        one.value for document in documents for one in document.outcomes if isinstance(one, Response)
    ] == ["even"] * 4
    choices = read_documents(run, "parity_ppl")
    assert [request.prompt.text.split()[-1] for request in choices[0].requests] == ["even", "odd"]
    assert choices[0].answers == {"none": ["even"], "PPL": [1.5, 2.5]} and choices[0].outcomes == [None, None]
    assert [document.scores["none", "correct"] for document in choices] == [1.0, 0.0, 1.0, 0.0]


def test_one_file_is_one_task() -> None:
    (run,) = read(PREDICTIONS / "parity_gen.json")
    assert list(run.tasks) == ["parity_gen"]


def test_summary_has_aggregates_only(tmp_path: Path) -> None:
    (stored,) = import_results(SUMMARY, tmp_path)
    run = Run(stored.folder)
    assert run.tasks_without_documents == ["parity_gen", "parity_ppl"]
    assert [(one.task, one.metric, one.value) for one in run.estimates] == [
        ("parity_gen", "accuracy", 50.0),
        ("parity_ppl", "accuracy", 50.0),
    ]
    run.close()


def test_parts_of_a_dataset_are_joined(tmp_path: Path) -> None:
    rows = [{"origin_prompt": f"{n}?", "prediction": "yes", "gold": "yes"} for n in range(3)]
    details = [{"pred": "yes", "answer": "yes", "correct": [True, n > 0]} for n in range(3)]
    parts = {"data_0": {"0": rows[0], "1": rows[1]}, "data_1": {"0": rows[2]}}
    (run,) = read(write_output(tmp_path, parts, {"accuracy": 83.3, "details": details}))
    documents = read_documents(run, "data")
    assert [document.requests[0].prompt.text for document in documents] == ["0?", "1?", "2?"]
    assert [document.scores["none", "correct"] for document in documents] == [0.5, 1.0, 1.0]


def test_messages_repeats_and_choices_are_read(tmp_path: Path) -> None:
    chat = {"origin_prompt": [{"role": "HUMAN", "prompt": "Hi"}], "prediction": ["a", "b"], "gold": "a"}
    choice = {"prompt": "Sky:", "choices": [" blue", " red"], "prediction": [-0.1, -3], "pred_label": 0}
    (run,) = read(write_output(tmp_path, {"data": {"0": chat, "1": choice}}))
    talk, likelihood = read_documents(run, "data")
    assert talk.requests[0].prompt.chat and [request.repeat for request in talk.requests] == [0, 1]
    assert [one.value for one in likelihood.outcomes if isinstance(one, Response)] == [
        LogProbability(-0.1),
        LogProbability(-3.0),
    ]


def test_errors_of_an_evaluation_are_noted(tmp_path: Path) -> None:
    rows = {"0": {"origin_prompt": "a", "prediction": "b"}}
    (run,) = read(write_output(tmp_path, {"data": rows}, {"error": "different lengths"}))
    assert run.estimates == [] and run.notes == ["OpenCompass reported an error: data: different lengths"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"0": {"origin_prompt": "a", "prediction": "b"}, "1": {"ori', "not valid JSON"),
        ('{"0": {"origin_prompt": "a", "prediction": "b"}, "x": {}}', "is not a prediction"),
        ('{"0": {"origin_prompt": "a", "prediction": "b"}, "1": [1]}', "is not a prediction"),
        ('{"0": {"prediction": "b"}, "0": {"prediction": "c"}}', "two entries `0`"),
    ],
)
def test_damaged_predictions_are_an_error(tmp_path: Path, content: str, message: str) -> None:
    write_output(tmp_path / "out", {"data": content})
    assert detect(tmp_path / "out")
    with pytest.raises(DatasetError, match=message):
        import_results(tmp_path / "out", tmp_path / "runs")
    assert not list((tmp_path / "runs").glob("[!.]*"))


def test_undefined_scores_are_left_out(tmp_path: Path) -> None:
    rows = {"0": {"origin_prompt": "a", "prediction": "b"}}
    result = {"accuracy": float("nan"), "f1": 3.0, "details": [{"correct": float("nan")}]}
    (stored,) = import_results(write_output(tmp_path / "out", {"data": rows}, result), tmp_path / "runs")
    run = Run(stored.folder)
    assert [(one.metric, one.value) for one in run.estimates] == [("f1", 3.0)]
    run.close()


def test_every_evaluation_of_a_work_folder_is_a_run(tmp_path: Path) -> None:
    for name in ("20260101_000000", "20260102_000000"):
        shutil.copytree(EVALUATION, tmp_path / "outputs" / name)
    assert len(list(read(tmp_path / "outputs"))) == 2
    assert len({stored.folder for stored in import_results(tmp_path / "outputs", tmp_path / "runs")}) == 1
