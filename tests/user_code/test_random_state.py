"""Tests of user code that draws from the global generators, changes rows, imports modules, or fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import assay
from assay.core.records.responses import Failure
from assay.testing import ScriptedModel
from assay.user_code.random_state import LoadingRandomState, TaskRandomState

TASK = """
task: drawn
dataset_path: json
dataset_kwargs: {data_files: {test: rows.jsonl}}
test_split: test
process_docs: !function code.process
doc_to_text: !function code.text
doc_to_target: "{{answer}}"
process_results: !function code.score
metric_list:
  - metric: right
    aggregation: AGGREGATION
"""
CODE = """
import random
from rules import POINTS

def process(rows):
    rows = [row for row in rows]
    random.shuffle(rows)
    for row in rows:
        row["choices"].append("none")
    return Table(rows)

class Table(list):
    @property
    def features(self): return dict.fromkeys(self[0])

def text(doc): return f"{doc['question']} {random.random()} {len(doc['choices'])}"
def score(doc, results):
    if doc["question"] == "q9": return {}
    return {"right": POINTS * random.random(), "extra": 1.0}
def broken(values): raise ZeroDivisionError("own aggregation")
"""


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = [{"question": f"q{number}", "answer": "yes", "choices": ["a"]} for number in range(10)]
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "rules.py").write_text("POINTS = 1\n")
    (tmp_path / "drawn.yaml").write_text(TASK.replace("AGGREGATION", "mean"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "drawn.yaml"


def run(task: Path, model: ScriptedModel, out: str = "out") -> assay.Run:
    return assay.run(model=model, tasks=[str(task)], output_path=str(task.parent / out), no_cache=True)


def test_a_run_continued_after_failures_draws_what_an_uninterrupted_one_draws(task: Path) -> None:
    whole = run(task, ScriptedModel(), "whole")
    asked: list[str] = []

    def sometimes(request: assay.Generate) -> str | Failure:
        asked.append(request.id)
        return Failure(request_id="", kind="timeout", message="late") if len(asked) % 3 == 0 else "yes"

    first = run(task, ScriptedModel(sometimes), "stopped")  # type: ignore[arg-type]
    assert first.outcomes("drawn")["failed"] == 3
    again = run(task, ScriptedModel(), "stopped")
    assert again.id == whole.id
    assert again.results == whole.results
    assert list(again.samples("drawn")) == list(whole.samples("drawn"))


def test_rows_a_task_changes_are_its_own(task: Path) -> None:
    names = {assay.plan(model=ScriptedModel(), tasks=[str(task)]).run_id for _ in range(3)}
    assert len(names) == 1


def test_a_document_without_any_value_is_unscored_and_seen(task: Path) -> None:
    finished = run(task, ScriptedModel())
    counts = {estimate.metric: (estimate.scored, estimate.unscored) for estimate in finished.estimates}
    assert counts == {"right": (9, 1), "extra": (9, 1)}
    assert finished.outcomes("drawn") == {"scored": 9, "unscored": 1}


def test_a_file_the_helper_imports_is_part_of_the_task(task: Path) -> None:
    before = assay.plan(model=ScriptedModel(), tasks=[str(task)]).run_id
    (task.parent / "rules.py").write_text("POINTS = 0\n")
    assert assay.plan(model=ScriptedModel(), tasks=[str(task)]).run_id != before


def test_an_aggregation_that_fails_costs_its_own_number_only(task: Path) -> None:
    task.write_text(TASK.replace("AGGREGATION", "!function code.broken"))
    numbers = {estimate.metric: estimate for estimate in run(task, ScriptedModel()).estimates}
    assert numbers["right"].value is None
    assert "ZeroDivisionError: own aggregation" in numbers["right"].why
    assert numbers["extra"].value == 1.0


def test_judging_a_document_is_seeded_by_that_document() -> None:
    import random

    state = TaskRandomState((0, 1234, 1234, 1234), "t")
    state.seed_for_document(3)
    first = random.random()
    state.seed_for_document(4)
    assert random.random() != first
    state.seed_for_document(3)
    assert random.random() == first


def test_imports_of_helpers_draw_once_in_a_run() -> None:
    import random

    expected = random.Random(0)
    expected.getrandbits(24)
    before = random.getstate()
    try:
        loading = LoadingRandomState((0, 1234, 1234, 1234))
        loading.start()
        loading.import_file("one.py", [("rich", None)])
        loading.import_file("two.py", [("rich", None)])
        assert loading.start()[0] == expected.getstate()
        loading.import_file("three.py", [("random", 42)])
        assert loading.start()[0] == random.Random(42).getstate()
        random.random()  # the code of a task, whose draws are not kept
        loading.import_file("three.py", [("random", 42)])
        loading.import_file("four.py", [])
        loading.start(1)
        loading.import_file("three.py", [("random", 42)])
        expected = random.Random(42)
        expected.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=8)
        assert loading.start()[0] == expected.getstate()
    finally:
        random.setstate(before)
