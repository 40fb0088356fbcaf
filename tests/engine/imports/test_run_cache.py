"""Result files in place of a run: imported once into the cache."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from tests.making import write_task

import assay
from assay.core.errors import UnknownName
from assay.core.home import assay_home
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Response
from assay.engine.imports import run_cache
from assay.engine.imports.estimates import complete_estimates
from assay.engine.imports.run_cache import (
    find_imported_runs,
    find_run_or_results,
    replace_results_by_run,
    replace_results_by_runs,
)
from assay.store.runs.imported_runs import ImportedDocument, ImportedRun, ImportedTask, write_imported_run
from assay.viewer.exports.formats import export
from assay.viewer.exports.lm_eval import write_lm_eval

HELM = Path(__file__).parent / "files" / "helm" / "simple_mcqa-model_simple_model1-num_train_trials_2"


@pytest.fixture
def helm(tmp_path: Path) -> Path:
    return Path(shutil.copytree(HELM, tmp_path / "helm"))


@pytest.fixture
def native(tmp_path: Path) -> assay.Run:
    return assay.run(
        model="oracle", tasks=[str(write_task(tmp_path / "tasks"))], output_path=str(tmp_path / "runs")
    )


def test_same_files_are_imported_once(helm: Path) -> None:
    first = find_run_or_results(helm)
    assert first.parent.parent == assay_home() / "imports"
    written = (first / "journal.sqlite").stat().st_mtime_ns
    assert find_run_or_results(helm) == first
    assert (first / "journal.sqlite").stat().st_mtime_ns == written
    assert find_run_or_results(Path(os.path.relpath(helm))) == first


def test_changed_files_are_imported_again(helm: Path) -> None:
    first = find_run_or_results(helm)
    state = helm / "scenario_state.json"
    state.write_text(state.read_text().replace("even or odd", "odd or even"))
    assert find_run_or_results(helm) != first


def test_files_are_imported_again_with_another_version_of_the_readers(
    helm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = find_run_or_results(helm)
    monkeypatch.setattr(run_cache, "READER_VERSION", run_cache.READER_VERSION + 1)
    again = find_run_or_results(helm)
    assert again != first and again.name == first.name and (again / "journal.sqlite").is_file()
    assert find_run_or_results(helm) == again


def test_removed_import_is_repeated(helm: Path) -> None:
    shutil.rmtree(find_run_or_results(helm))
    assert (find_run_or_results(helm) / "journal.sqlite").is_file()


def test_runs_and_other_folders_are_not_imported(native: assay.Run, tmp_path: Path) -> None:
    assert find_run_or_results(native.folder) == native.folder
    assert find_imported_runs(tmp_path / "tasks") == [] and find_imported_runs("missing") == []
    assert replace_results_by_runs([str(native.folder), "latest"]) == [str(native.folder), "latest"]
    with pytest.raises(UnknownName, match="there is no run in"):
        find_run_or_results(tmp_path / "tasks")


def test_an_empty_word_is_not_the_working_directory(helm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(helm)
    assert len(find_imported_runs(".")) == 1 and find_imported_runs("") == []
    assert replace_results_by_run("") == "" and replace_results_by_runs([""]) == [""]
    with pytest.raises(UnknownName, match="the name of the run is empty"):
        find_run_or_results("")


def test_folder_with_several_runs_is_an_error_that_names_them(helm: Path) -> None:
    other = Path(shutil.copytree(helm, helm.parent / "suite" / "b"))
    shutil.copytree(helm, helm.parent / "suite" / "a")
    spec = json.loads((other / "run_spec.json").read_text())
    spec["adapter_spec"]["model"] = "org/other"
    (other / "run_spec.json").write_text(json.dumps(spec))
    assert len(replace_results_by_runs([str(other.parent)])) == 2
    with pytest.raises(UnknownName, match="contains the results of 2 runs") as caught:
        replace_results_by_run(other.parent)
    assert "other-simple" in caught.value.hint


def test_native_run_exported_as_lm_eval_compares_with_itself(native: assay.Run, tmp_path: Path) -> None:
    write_lm_eval(native, str(tmp_path / "exported"))
    (imported,) = find_imported_runs(tmp_path / "exported")
    for theirs in (tmp_path / "exported", imported):
        found = assay.compare(native.folder, theirs)
        (row,) = found.rows
        assert (row.documents, row.difference, row.first) == (6, 0.0, 1.0)
        assert not [one for one in found.mismatches if one.kind in ("prompts", "pairing")]
    opened = assay.open_run(tmp_path / "exported")
    assert opened.results == native.results
    opened.close()
    native.close()


def test_native_run_exported_as_lmms_eval_compares_with_itself(native: assay.Run, tmp_path: Path) -> None:
    export(native, "lmms-eval", [], tmp_path / "exported")
    (imported,) = find_imported_runs(tmp_path / "exported")
    for theirs in (tmp_path / "exported", imported):
        (row,) = assay.compare(native.folder, theirs).rows
        assert (row.documents, row.difference, row.first) == (6, 0.0, 1.0)
    native.close()


@pytest.mark.parametrize("asked", [True, False])
def test_documents_of_another_program_are_paired_by_prompts(
    native: assay.Run, tmp_path: Path, asked: bool
) -> None:
    """HELM stores a document as `input` and `references`; its prompt is that of the native run."""

    def build(record: dict[str, object], number: int) -> ImportedDocument:
        text = str(record["requests"][0]["prompt"]) if asked else f"Something else {number}"  # type: ignore[index]
        request = Generate(task="sums", document=number, prompt=Prompt.of_text(text), settings=Settings({}))
        return ImportedDocument(
            index=number,
            fields={"input": text},
            requests=[request],
            outcomes=[Response(request_id=request.id, value="?")],
            scores={("none", "exact_match"): float(number > 2)},
        )

    documents = [build(record, number) for number, record in enumerate(list(native.records("sums"))[::-1])]
    task = ImportedTask(read_documents=lambda: documents)
    run = ImportedRun(program="helm", model="m", identity={"name": "m"}, tasks={"sums": task})
    write_imported_run(tmp_path / "imported", run, complete_estimates)
    native.close()
    if not asked:
        with pytest.raises(assay.AssayError, match="no metric and document in common"):
            assay.compare(native.folder, tmp_path / "imported")
        return
    (row,) = assay.compare(native.folder, tmp_path / "imported", flips=True).rows
    assert (row.documents, row.second) == (6, 0.5)
    assert [(flip.document, flip.other) for flip in row.flips] == [(3, 2), (4, 1), (5, 0)]
