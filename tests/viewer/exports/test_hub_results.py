"""Scores for model repositories; `tests/flows/test_interchange.py` reads them with huggingface_hub."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.core.errors import OutputError, UserError
from assay.engine.imports.importer import import_results
from assay.store.runs.run import Run
from assay.viewer.exports.formats import export
from assay.viewer.exports.hub_results import merge_into_card


@pytest.fixture
def hub_run(rich_run: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The run as if the data of `sums` were on the Hub."""
    tasks = rich_run.facts["tasks"]
    config = {**tasks["sums"]["config"], "dataset_path": "openai/gsm8k", "dataset_name": "main"}
    changed = {
        **tasks,
        "sums": {**tasks["sums"], "config": {**config, "dataset_kwargs": {"revision": "abc"}}},
    }
    monkeypatch.setitem(rich_run.facts, "tasks", changed)
    return rich_run


def export_text(run: Any) -> str:
    stream = io.StringIO()
    export(run, "model-index", [], None, stream)
    return stream.getvalue()


def test_eval_results_have_the_first_score_of_tasks_on_the_hub(hub_run: Any, tmp_path: Path) -> None:
    (file,) = export(hub_run, "hf-eval-results", [], tmp_path)
    assert file == tmp_path / ".eval_results" / "sums.yaml"
    (entry,) = yaml.safe_load(file.read_text())
    assert entry["dataset"] == {"id": "openai/gsm8k", "task_id": "main", "revision": "abc"}
    assert entry["value"] == 1.0 and entry["date"].endswith("Z")
    assert entry["notes"].startswith(
        "metric: exact_match; filter: strict; n-shot: 0; standard error: 0.0; documents: 4"
    )


def test_eval_results_name_the_lockfile(
    hub_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(hub_run.facts, "lock", {"file": "eval.lock", "digest": "4f6d", "drift": []})
    (file,) = export(hub_run, "hf-eval-results", [], tmp_path)
    (entry,) = yaml.safe_load(file.read_text())
    assert "; lockfile: eval.lock 4f6d; " in entry["notes"]


def test_local_data_are_no_dataset_of_the_hub(rich_run: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no task has a score and a dataset on the Hub"):
        export(rich_run, "hf-eval-results", [], tmp_path)
    assert not list(tmp_path.iterdir())


def test_eval_results_are_imported_with_metric_and_error(hub_run: Any, tmp_path: Path) -> None:
    export(hub_run, "hf-eval-results", [], tmp_path / "my-model")
    (stored,) = import_results(tmp_path / "my-model", tmp_path / "runs")
    run = Run(stored.folder)
    (estimate,) = run.estimates
    assert (estimate.task, estimate.metric, estimate.pipeline) == ("sums", "exact_match", "strict")
    assert (estimate.value, estimate.stderr, estimate.scored) == (1.0, 0.0, 4)
    assert run.model == "my-model"
    run.close()


def test_the_model_index_has_every_score(hub_run: Any) -> None:
    (model,) = yaml.safe_load(export_text(hub_run).strip("-\n"))["model-index"]
    assert model["name"] == "org/tiny"
    scores = {
        (result["task"]["name"], metric["type"], (metric.get("args") or {}).get("filter", "none")): metric[
            "value"
        ]
        for result in model["results"]
        for metric in result["metrics"]
    }
    assert scores == {(one.task, one.metric, one.pipeline): one.value for one in hub_run.estimates}
    first = model["results"][0]["dataset"]
    assert first == {
        "type": "openai/gsm8k",
        "name": "sums",
        "config": "main",
        "split": "test",
        "revision": "abc",
        "args": {"num_few_shot": 0},
    }


def test_the_model_index_is_imported(hub_run: Any, tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    card.write_text(export_text(hub_run))
    (stored,) = import_results(card, tmp_path / "runs")
    run = Run(stored.folder)
    assert {
        (one.task, one.metric, one.pipeline, one.value, one.stderr, one.interval) for one in run.estimates
    } == {
        (one.task, one.metric, one.pipeline, one.value, one.stderr, one.interval) for one in hub_run.estimates
    }
    run.close()


CARD = """---
license: mit # mine
model-index:
- name: my-name
  results:
  - task:
      type: text-generation
      name: gsm8k
    dataset:
      type: openai/gsm8k
      name: GSM8K
    metrics:
    - type: acc
      value: 0.5
# a comment
tags:
- a
---
# My card

---
not front matter
"""


def test_a_card_keeps_everything_and_its_other_results(rich_run: Any, tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    card.write_text(CARD)
    for _ in range(2):
        export(rich_run, "model-index", ["choices"], card)
    text = card.read_text()
    assert "license: mit # mine\n" in text and text.endswith("# My card\n\n---\nnot front matter\n")
    assert text.count("model-index:") == 1
    data = yaml.safe_load(text.split("---\n")[1])
    (model,) = data["model-index"]
    assert data["tags"] == ["a"] and model["name"] == "my-name"
    assert [result["task"]["name"] for result in model["results"]] == ["gsm8k", "choices"]
    assert model["results"][0]["metrics"] == [{"type": "acc", "value": 0.5}]


def test_a_score_of_a_card_replaces_that_of_the_same_metric_only(rich_run: Any, tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    export(rich_run, "model-index", ["choices"], card)
    data = yaml.safe_load(card.read_text().strip("-\n"))
    result = data["model-index"][0]["results"][0]
    value = result["metrics"][0]["value"]
    result["metrics"][0]["value"] = 17.0
    result["metrics"].append({"type": "mine", "value": 3})
    data["model-index"].append({"name": "other", "results": None})
    card.write_text(f"---\n{yaml.safe_dump(data)}---\n")
    export(rich_run, "model-index", ["choices"], card)
    model, other = yaml.safe_load(card.read_text().strip("-\n"))["model-index"]
    metrics = [(one["type"], one["value"]) for found in model["results"] for one in found["metrics"]]
    assert ("mine", 3) in metrics and (result["metrics"][0]["type"], value) in metrics
    assert 17.0 not in [found for _, found in metrics] and len(metrics) == len(result["metrics"])
    assert other == {"name": "other", "results": None}


@pytest.mark.parametrize("front", ["license: [mit", "- a", "model-index: 3", "{license: mit}"])
def test_a_card_with_other_front_matter_is_an_error(rich_run: Any, tmp_path: Path, front: str) -> None:
    card = tmp_path / "README.md"
    card.write_text(f"---\n{front}\n---\n# Card\n")
    with pytest.raises(OutputError, match="the front matter of the model card is not valid"):
        export(rich_run, "model-index", ["choices"], card)
    assert card.read_text() == f"---\n{front}\n---\n# Card\n"


def test_a_quoted_model_index_is_replaced() -> None:
    card = merge_into_card(
        '---\n"model-index": []\n---\n', "---\nmodel-index: [{name: m, results: []}]\n---\n"
    )
    assert card == "---\nmodel-index:\n- name: m\n  results: []\n---\n"


def test_a_card_without_front_matter_gets_one() -> None:
    assert merge_into_card("# Card\n", "---\nmodel-index: []\n---\n") == "---\nmodel-index: []\n---\n# Card\n"


def test_a_card_that_is_not_text_is_an_error(rich_run: Any, tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    card.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OutputError, match="not a UTF-8 text file"):
        export(rich_run, "model-index", [], card)
    assert card.read_bytes() == b"\xff\xfe\x00"
