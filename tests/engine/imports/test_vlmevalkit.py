"""Results of VLMEvalKit. The files were written by ms-vlmeval 0.0.20; see files/README.md."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest

from assay.core.errors import DatasetError
from assay.core.records.responses import Failure
from assay.engine.imports.formats import detect_format
from assay.engine.imports.importer import import_results
from assay.engine.imports.vlmevalkit import detect, read
from assay.store.runs.imported_runs import ImportedDocument, ImportedRun
from assay.store.runs.run import Run

FILES = Path(__file__).parent / "files" / "vlmevalkit"
FOLDER = FILES / "Tiny_VL" / "T20261117_G0"
TABLE = FOLDER / "Tiny_VL_ParityMC.xlsx"


def read_documents(run: ImportedRun, task: str) -> list[ImportedDocument]:
    read_all = run.tasks[task].read_documents
    assert read_all is not None
    return list(read_all())


@pytest.mark.parametrize("path", [FILES, FILES / "Tiny_VL", FOLDER, TABLE], ids=lambda path: path.name)
def test_folders_and_tables_are_detected(path: Path) -> None:
    found = detect_format(path)
    assert found is not None and found.name == "vlmevalkit"


@pytest.mark.parametrize("path", [FILES, TABLE], ids=["folder", "file"])
def test_predictions_have_the_scores_of_the_judged_table(path: Path, tmp_path: Path) -> None:
    (stored,) = import_results(path, tmp_path)
    run = Run(stored.folder)
    assert (run.model, list(run.tasks)) == ("Tiny_VL", ["ParityMC"])
    values = {one.metric: one for one in run.estimates}
    assert (values["Overall"].value, values["animals"].value, values["pets"].value) == (0.75, 0.5, 1.0)
    assert (values["hit"].value, values["hit"].scored) == (0.75, 4) and values["hit"].interval is not None
    records = list(run.records("ParityMC"))
    assert [record["requests"][0]["response"] for record in records] == ["A", "The answer is B.", "B", "D"]
    assert "no prompts and no images" in run.facts["import_notes"][0]
    run.close()


def test_documents_have_the_columns_of_the_dataset() -> None:
    (run,) = read(TABLE)
    document = read_documents(run, "ParityMC")[1]
    assert document.fields["question"] == "What is shown, 1?" and document.fields["B"] == "a dog"
    assert document.target == "B" and not {"prediction", "hit", "log"} & set(document.fields)
    assert document.scores == {("none", "hit"): 1.0}


def test_links_to_the_newest_evaluation_count_once(tmp_path: Path) -> None:
    model = Path(shutil.copytree(FILES / "Tiny_VL", tmp_path / "Tiny_VL"))
    for file in (model / "T20261117_G0").iterdir():
        (model / file.name).symlink_to(file)
    (run,) = read(model)
    assert len(read_documents(run, "ParityMC")) == 4


@pytest.mark.parametrize("suffix", ["tsv", "json"])
def test_other_tables_are_read_alike(tmp_path: Path, suffix: str) -> None:
    rows = [{"index": n, "question": f"{n}?", "answer": "A", "prediction": "A"} for n in range(3)]
    path = tmp_path / f"Model_Data_V11.{suffix}"
    lines = ["\t".join(rows[0]), *("\t".join(map(str, row.values())) for row in rows)]
    path.write_text(json.dumps(rows) if suffix == "json" else "\n".join(lines))
    (run,) = read(path)
    assert (run.model, list(run.tasks)) == ("Model", ["Data_V11"])
    assert [document.target for document in read_documents(run, "Data_V11")] == ["A"] * 3


def test_dataset_whose_name_starts_with_another_is_its_own_task(tmp_path: Path) -> None:
    folder = tmp_path / "M"
    folder.mkdir()
    for name in ("M_Data", "M_Data_V11"):
        (folder / f"{name}.json").write_text(json.dumps([{"index": 0, "question": name, "prediction": "x"}]))
    judged = [{"index": 0, "question": "M_Data_V11", "prediction": "x", "score": 0.5}]
    (folder / "M_Data_V11_gpt-4o.json").write_text(json.dumps(judged))
    (folder / "M_Data_V11_gpt-4o_score.json").write_text(json.dumps({"Overall": {"acc": 50, "n": "x"}}))
    (run,) = read(folder)
    assert list(run.tasks) == ["Data", "Data_V11"]
    assert read_documents(run, "Data")[0].scores == {}
    assert read_documents(run, "Data_V11")[0].scores == {("none", "score"): 0.5}
    assert [(one.task, one.metric, one.value) for one in run.estimates] == [("Data_V11", "Overall/acc", 50.0)]


def test_score_table_with_a_row_per_category_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "M"
    folder.mkdir()
    (folder / "M_Math.json").write_text(json.dumps([{"index": 0, "question": "?", "prediction": "x"}]))
    rows = ["Task&Skill,tot,acc", "algebra,3,33.3", "geometry,1,100.0", "Overall,4,50.0"]
    (folder / "M_Math_gpt-4_score.csv").write_text("\n".join(rows))
    (run,) = read(folder)
    values = {one.metric: one.value for one in run.estimates}
    assert values["acc"] == 50.0 and values["algebra/acc"] == 33.3 and next(iter(values)) == "tot"


def test_aggregates_alone_have_no_documents(tmp_path: Path) -> None:
    path = tmp_path / "Model_Data_acc.csv"
    path.write_bytes((FOLDER / "Tiny_VL_ParityMC_acc.csv").read_bytes())
    (stored,) = import_results(path, tmp_path / "runs")
    run = Run(stored.folder)
    assert run.tasks_without_documents == ["Data"] and run.estimates[0].value == 0.75
    run.close()


def test_failed_requests_are_failures(tmp_path: Path) -> None:
    path = tmp_path / "Model_Data.json"
    failed = "Failed to obtain answer via API. The model said no."
    path.write_text(json.dumps([{"index": 0, "question": "?", "prediction": failed}]))
    (run,) = read(path)
    (outcome,) = read_documents(run, "Data")[0].outcomes
    assert isinstance(outcome, Failure) and outcome.message == failed


def test_pickle_files_are_not_read(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "executed",))

    folder = tmp_path / "Model"
    folder.mkdir()
    (folder / "Model_Data.pkl").write_bytes(pickle.dumps(Trap()))
    (folder / "Model_Data_result.pkl").write_bytes(pickle.dumps(Trap()))
    assert not detect(folder) and not detect(folder / "Model_Data.pkl")
    (folder / "Model_Data.json").write_text(json.dumps([{"index": 0, "question": "?", "prediction": "x"}]))
    import_results(folder, tmp_path / "runs")
    assert not (tmp_path / "executed").exists()


def test_damaged_tables_are_an_error(tmp_path: Path) -> None:
    content = bytearray(TABLE.read_bytes())
    at = content.index(b"xl/sharedStrings.xml") + 60
    content[at : at + 40] = bytes(40)
    path = tmp_path / "Model_Data.json"
    path.write_text('[{"index": 0, "question": "?", "prediction": "x"}, {"index": 1, "que')
    with pytest.raises(DatasetError, match="not valid JSON"):
        import_results(path, tmp_path / "runs")
    broken = tmp_path / "Model_Data.xlsx"
    broken.write_bytes(content)
    with pytest.raises(DatasetError, match="not a valid workbook"):
        import_results(broken, tmp_path / "runs", "vlmevalkit")
