"""Scores of model repositories, written by huggingface_hub, become runs without documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.core.errors import DatasetError
from assay.engine.imports.formats import detect_format
from assay.engine.imports.importer import import_results
from assay.store.runs.run import Run

RECORDED = Path(__file__).parent / "recorded" / "hub"


def read_scores(run: Run) -> dict[tuple[str, str], tuple[float, float | None]]:
    return {(one.task, one.metric): (one.value, one.stderr) for one in run.estimates}


def test_repositories_and_their_files_are_detected() -> None:
    for path in (
        RECORDED,
        RECORDED / ".eval_results",
        RECORDED / ".eval_results" / "results.yaml",
        RECORDED / "README.md",
    ):
        found = detect_format(path)
        assert found is not None and found.name == "hugging-face", path


def test_a_repository_is_a_run_of_its_results_and_one_of_its_card(tmp_path: Path) -> None:
    first, second = (Run(one.folder) for one in import_results(RECORDED, tmp_path))
    assert read_scores(first) == {
        ("cais/hle", "value"): (20.9, None),
        ("Idavidrein/gpqa/gpqa_diamond", "value"): (0.412, None),
    }
    assert first.model == "hub"
    assert read_scores(second) == {
        ("GSM8K (5-shot)", "exact_match"): (61.5, None),
        ("Beans", "accuracy"): (0.9, None),
        ("Beans", "f1"): (0.8, 0.1),
    }
    assert (second.model, second.tasks["GSM8K (5-shot)"]["n_shot"]) == ("my-model", 5)
    for run in (first, second):
        assert all(task["aggregates_only"] for task in run.tasks.values())
        run.close()


def test_the_model_is_the_repository_in_the_cache_of_the_hub(tmp_path: Path) -> None:
    folder = tmp_path / "models--org--name" / "snapshots" / "abc" / ".eval_results"
    folder.mkdir(parents=True)
    (folder / "a.yaml").write_text((RECORDED / ".eval_results" / "results.yaml").read_text())
    (stored,) = import_results(folder.parent, tmp_path / "runs")
    run = Run(stored.folder)
    assert run.model == "org/name"
    run.close()


@pytest.mark.parametrize(
    "text",
    [
        "- dataset: {id: a/b}\n",
        "- 3\n",
        "a: 1\n",
        "- dataset: [\n",
        "- dataset:\n    id: a\n    task_id: b\n",
    ],
)
def test_malformed_results_are_errors(tmp_path: Path, text: str) -> None:
    folder = tmp_path / ".eval_results"
    folder.mkdir()
    (folder / "a.yaml").write_text(text)
    with pytest.raises(DatasetError):
        import_results(folder, tmp_path / "runs")


@pytest.mark.parametrize(
    "text",
    ["model-index: 3", "model-index: [3]", "model-index: [{name: a, results: [{}]}]", "model-index: ["],
)
def test_malformed_cards_are_errors(tmp_path: Path, text: str) -> None:
    card = tmp_path / "README.md"
    card.write_text(f"---\n{text}\n---\n")
    with pytest.raises(DatasetError):
        import_results(card, tmp_path / "runs")
