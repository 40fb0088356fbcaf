"""Run folders of HELM. The files were written by crfm-helm 0.5.16; see files/README.md."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from assay.core.errors import DatasetError
from assay.engine.imports.helm import detect, read
from assay.engine.imports.importer import import_results
from assay.store.runs.imported_runs import ImportedDocument, ImportedRun
from assay.store.runs.run import Run

FILES = Path(__file__).parent / "files" / "helm"
TRIALS = FILES / "simple_mcqa-model_simple_model1-num_train_trials_2"
SEPARATE = FILES / "simple_mcqa-method_multiple_choice_separate_original-model_simple_model1"


def read_documents(run: ImportedRun, task: str) -> list[ImportedDocument]:
    read_all = run.tasks[task].read_documents
    assert read_all is not None
    return list(read_all())


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TRIALS, tmp_path / "run"))


@pytest.mark.parametrize("path", [FILES, TRIALS, TRIALS / "stats.json"])
def test_run_folders_suites_and_files_are_detected(path: Path) -> None:
    assert detect(path)


def test_suite_is_one_run_per_model() -> None:
    (run,) = read(FILES)
    assert (run.program, run.model) == ("helm", "simple/model1")
    assert list(run.tasks) == [
        "simple_mcqa:method=multiple_choice_separate_original",
        "simple_mcqa:num_train_trials=2",
        "simple_mcqa:num_train_trials=2,perturbation=lowercase",
    ]


def test_estimates_are_those_of_helm_with_intervals_from_documents(tmp_path: Path) -> None:
    (stored,) = import_results(FILES, tmp_path)
    run = Run(stored.folder)
    reported = {
        (stat["name"]["name"], "perturbation" in stat["name"]): stat["mean"]
        for stat in json.loads((TRIALS / "stats.json").read_text())
        if stat["name"].get("perturbation", {}).get("computed_on", "perturbed") == "perturbed"
    }
    estimates = {(one.task, one.metric): one for one in run.estimates}
    plain = estimates["simple_mcqa:num_train_trials=2", "exact_match"]
    lower = estimates["simple_mcqa:num_train_trials=2,perturbation=lowercase", "exact_match"]
    assert plain.value == pytest.approx(reported["exact_match", False]) and 0 < plain.value < 1
    assert lower.value == pytest.approx(reported["exact_match", True])
    assert plain.scored == 3 and plain.interval is not None and plain.higher_is_better
    assert not any(metric.startswith("num_") for _, metric in estimates)
    run.close()


def test_train_trials_are_repeats_and_letters_are_mapped_to_choices() -> None:
    (run,) = read(TRIALS)
    documents = read_documents(run, "simple_mcqa:num_train_trials=2")
    first = documents[0]
    state = json.loads((TRIALS / "scenario_state.json").read_text())["request_states"][0]
    assert first.requests[0].prompt.text == state["request"]["prompt"]
    assert [request.repeat for request in first.requests] == [0, 1]
    assert first.target in ("Even", "Odd") and set(first.answers["none"]) <= {"Even", "Odd"}
    assert first.fields["input"] == state["instance"]["input"]["text"]
    assert first.repeats[0].scores["exact_match"] == (first.scores["none", "exact_match"],) * 2


def test_separate_choices_are_likelihoods_of_whole_prompts() -> None:
    (run,) = read(SEPARATE)
    for document in read_documents(run, "simple_mcqa:method=multiple_choice_separate_original"):
        assert [request.index for request in document.requests] == [0, 1]
        assert [request.prompt.text.split()[-1] for request in document.requests] == ["Even", "Odd"]


def test_run_without_request_states_has_aggregates_only(copied: Path, tmp_path: Path) -> None:
    for name in ("scenario_state.json", "per_instance_stats.json"):
        (copied / name).unlink()
    (stored,) = import_results(copied, tmp_path / "runs")
    run = Run(stored.folder)
    assert run.tasks_without_documents == list(run.tasks)
    assert {one.scored for one in run.estimates} == {3}
    run.close()


def test_failed_requests_are_failures(copied: Path) -> None:
    states = json.loads((copied / "scenario_state.json").read_text())
    states["request_states"][0]["result"] = {"success": False, "error": "rate limit", "completions": []}
    (copied / "scenario_state.json").write_text(json.dumps(states))
    (run,) = read(copied)
    document = read_documents(run, "simple_mcqa:num_train_trials=2")[0]
    assert getattr(document.outcomes[0], "message", "") == "rate limit"


@pytest.mark.parametrize(
    "name", ["run_spec.json", "scenario_state.json", "per_instance_stats.json", "stats.json"]
)
def test_truncated_file_is_an_error_that_names_it(copied: Path, tmp_path: Path, name: str) -> None:
    content = (copied / name).read_text()
    (copied / name).write_text(content[: len(content) // 2])
    with pytest.raises(DatasetError, match="not valid JSON") as caught:
        import_results(copied, tmp_path / "runs")
    assert caught.value.where.endswith(name)
    assert not list((tmp_path / "runs").glob("[!.]*"))


def test_two_folders_with_the_same_task_are_an_error(tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(TRIALS, tmp_path / name)
    with pytest.raises(DatasetError, match="two run folders contain"):
        list(read(tmp_path))


def test_absurd_counts_are_ignored(copied: Path, tmp_path: Path) -> None:
    states = json.loads((copied / "scenario_state.json").read_text())
    states["request_states"][0]["request"]["num_completions"] = 10**30
    (copied / "scenario_state.json").write_text(json.dumps(states))
    rows = (copied / "per_instance_stats.json").read_text()
    (copied / "per_instance_stats.json").write_text(rows.replace('"mean":1.0', '"mean":1e300'))
    (stored,) = import_results(copied, tmp_path / "runs")
    run = Run(stored.folder)
    assert len(next(run.records("simple_mcqa:num_train_trials=2"))["requests"]) == 2
    run.close()
