"""Tests of targets for the `oracle` model, which gets the maximum score on a correct task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.making import Function, make_model, plan_run, write_choices, write_task, write_texts

import assay
from assay.core.ports import SupportsTargets
from assay.models.oracle import OracleModel

MARKS = [
    {"question": "Which?", "options": ["red", "green", "blue"], "gold": [0, 2], "name": "green", "number": 7}
]


def results(path: Path, **options: Any) -> dict[str, Any]:
    run = assay.run(model="oracle", tasks=[str(path)], **options)
    (scores,) = run.results.values()
    return {name: value for name, value in scores.items() if "stderr" not in name}


def test_generated_targets_get_the_maximum_score(workspace: Path) -> None:
    assert results(write_task(workspace)) == {"exact_match,none": 1.0}


@pytest.mark.parametrize(
    "keys",
    [
        {"doc_to_target": "number"},
        {"doc_to_target": "options"},  # any of them
        {"doc_to_target": 1, "doc_to_choice": "options"},  # a place among choices, written out
    ],
    ids=["a number", "a list", "a place"],
)
def test_a_target_that_is_not_text_is_converted_to_text(workspace: Path, keys: dict[str, Any]) -> None:
    assert results(write_task(workspace, rows=MARKS, **keys)) == {"exact_match,none": 1.0}


METRICS = [{"metric": name} for name in ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match")]


@pytest.mark.parametrize("target", ["{{0}}", "name", "gold"], ids=["a place", "a text", "several places"])
def test_the_correct_choice_has_probability_one(workspace: Path, target: str) -> None:
    metrics = METRICS[:1] if target == "gold" else METRICS
    path = write_choices(workspace, metric_list=metrics)
    path = write_task(
        workspace, "marks", MARKS, output_type="multiple_choice", doc_to_text="question", doc_to_choice="options",
        doc_to_target=target, metric_list=metrics,
    )  # fmt: skip
    assert set(results(path).values()) == {1.0}


def test_several_contexts_per_document_are_answered(workspace: Path) -> None:
    rows = [{"which": 1, "texts": ["It rains in the house.", "It rains in the garden."]}]
    path = write_task(
        workspace, rows=rows, output_type="multiple_choice", doc_to_text="which", doc_to_choice="texts",
        doc_to_target=" And so we stay inside.", metric_list=[{"metric": "acc"}],
    )  # fmt: skip
    assert results(path) == {"acc,none": 1.0}


def test_a_known_text_has_perplexity_one(workspace: Path) -> None:
    assert results(write_texts(workspace))["word_perplexity,none"] == pytest.approx(1.0)


def test_a_stop_string_inside_the_target_lowers_the_score(workspace: Path) -> None:
    rows = [{"question": "Two lines?", "answer": "one\ntwo"}]
    path = write_task(workspace, rows=rows, generation_kwargs={"until": ["\n"]})
    assert results(path) == {"exact_match,none": 0.0}


def test_a_filter_that_removes_the_target_lowers_the_score(workspace: Path) -> None:
    steps = [{"function": "regex", "regex_pattern": "= (\\d+)"}, {"function": "take_first"}]
    path = write_task(workspace, filter_list=[{"name": "number", "filter": steps}])
    assert results(path) == {"exact_match,number": 0.0}


def test_a_task_without_target_fails_with_a_note_in_the_plan(workspace: Path) -> None:
    helpers = "def judge(doc, results):\n    return {'length': len(results[0])}\n"
    path = write_task(
        workspace, helpers=helpers, doc_to_target=None, process_results=Function("utils.judge"),
        metric_list=[{"metric": "length", "aggregation": "mean", "higher_is_better": True}],
    )  # fmt: skip
    plan = plan_run(OracleModel(), tasks=[str(path)])
    assert [note for note in plan.notes if "cannot answer" in note]
    assert not plan_run(make_model(), tasks=[str(path)]).notes
    run = assay.run(model="oracle", tasks=[str(path)])
    assert run.journal.count_outcomes("sums") == {"failed": 6}
    ((why,),) = run.journal.query("SELECT DISTINCT why FROM outcomes")
    assert why.startswith("no target")


def test_user_code_is_named_in_the_plan(workspace: Path) -> None:
    helpers = "def judge(doc, results):\n    return {'right': float(results[0] == doc['answer'])}\n"
    path = write_task(
        workspace, helpers=helpers, process_results=Function("utils.judge"), metric_list=[{"metric": "right"}]
    )
    assert "scored by task code" in "".join(plan_run(OracleModel(), tasks=[str(path)]).notes)
    assert results(path) == {"right,none": 1.0}


def test_every_repeat_is_correct(workspace: Path) -> None:
    assert results(write_task(workspace, repeats=3)) == {"exact_match,none": 1.0}


def test_only_the_oracle_receives_targets() -> None:
    assert isinstance(OracleModel(), SupportsTargets)
    assert not isinstance(make_model(), SupportsTargets)


def test_a_changed_target_is_not_answered_from_the_cache(workspace: Path) -> None:
    rows = [{"question": "Sum?", "answer": "1"}]
    assert results(write_task(workspace, rows=rows)) == {"exact_match,none": 1.0}
    rows[0]["answer"] = "2"
    assert results(write_task(workspace, rows=rows)) == {"exact_match,none": 1.0}
