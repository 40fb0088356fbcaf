"""What pages and reports are made of: collected from a run with everything in it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_choices, write_task

import assay
from assay.core.responses import Failure
from assay.store.journal import Journal
from assay.store.runs import Run
from assay.viewer.document_facts import category_fields, document_facts
from assay.viewer.pace import run_pace
from assay.viewer.run_facts import outcome_bars, run_facts, score_marks

ROWS = [
    {"question": f"What is {n} + 1?", "answer": str(n + 1), "level": "odd" if n % 2 else "even"}
    for n in range(20)
]


def answers(request: Any) -> Any:
    if hasattr(request, "continuation"):
        from assay.core.responses import LogProbability

        return LogProbability(-1.0 if request.index == 1 else -2.0, True)
    if request.document == 3:
        return Failure(request_id="", kind="server error", message="503")
    return str(request.document + (1 if request.document % 2 == 0 else 2))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("facts")
    tasks = [str(write_task(folder, "sums", ROWS)), str(write_choices(folder, rows=4))]
    return assay.run(
        model=make_model(answers), tasks=tasks, no_cache=True, output_path=str(folder / "out"), limit=20
    )


def test_every_number_and_ending_is_collected(run: Any) -> None:
    facts = run_facts(run)
    assert [(row.name, row.value, row.first) for row in facts.scores] == [
        ("sums", pytest.approx(10 / 19), True),
        ("choices", 0.5, True),
    ]
    assert [(bar.name, dict(bar.counts)) for bar in outcome_bars(facts)] == [
        ("sums", {"failed": 1, "scored": 19}),
        ("choices", {"scored": 4}),
    ]
    mark = score_marks(facts)[0]
    assert mark.share and mark.low is not None and mark.high is not None
    assert mark.low < mark.value < mark.high
    assert mark.note == "19 of 20 documents scored"
    assert facts.documents == 24


def test_settings_show_what_was_asked_for_and_leave_out_what_is_usual(run: Any) -> None:
    settings = dict(run_facts(run).settings)
    assert settings["--limit"] == "20"
    assert "--gen_kwargs" not in settings
    assert settings["assay"]


def test_documents_are_summed_up_by_score_and_category(run: Any) -> None:
    facts = document_facts(run, "sums")
    assert (facts.metric, facts.field, facts.share) == ("exact_match", "level", True)
    assert [(bar.low, bar.documents) for bar in facts.spread] == [(0.0, 9), (1.0, 10)]
    assert [(mark.name, mark.value, mark.documents) for mark in facts.categories] == [
        ("even", 1.0, 10),
        ("odd", 0.0, 9),
    ]


def test_a_field_of_many_values_is_no_category(run: Any) -> None:
    assert category_fields(run, "sums") == ["level"]
    assert document_facts(run, "sums", field="question").categories[0].documents == 1


def test_a_field_that_is_not_there_gives_no_categories(run: Any) -> None:
    assert document_facts(run, "sums", field='no"such.field').categories == ()


def test_the_sample_has_some_of_each_kind_and_is_the_same_for_the_same_seed(run: Any) -> None:
    picked = document_facts(run, "sums", sample=6, seed=1).worth
    assert {one.why for one in picked} == {"right", "wrong", "failed"}
    assert len(picked) == 6
    assert (3, "failed") in [(one.document, one.why) for one in picked]
    assert picked == document_facts(run, "sums", sample=6, seed=1).worth
    assert picked != document_facts(run, "sums", sample=6, seed=2).worth


def test_a_small_task_is_shown_whole(run: Any) -> None:
    picked = document_facts(run, "choices", sample=50).worth
    assert sorted(one.document for one in picked) == [0, 1, 2, 3]


def test_the_pace_counts_every_response_and_leaves_out_the_time_between_two_starts(tmp_path: Path) -> None:
    now = time.time()
    with_pause = [now + 5 * at for at in range(30)] + [now + 80_000 + 5 * at for at in range(30)]
    journal = Journal.create(tmp_path)
    journal.set_facts({"started": now, "seconds": 300.0}).result()
    for number, at in enumerate(with_pause):
        row = [
            number + 1,
            f"mark{number}",
            "x",
            None,
            None,
            "cache" if number == 59 else "model",
            at,
            None,
            None,
        ]
        journal._submit(("INSERT INTO answered VALUES (?,?,?,?,?,?,?,?,?)", [tuple(row)])).result()
    journal.close()
    pace = run_pace(Run(tmp_path))
    assert pace is not None
    assert (sum(pace.asked), sum(pace.cached), len(pace.pauses)) == (59, 1, 1)
    assert pace.pauses[0].seconds == pytest.approx(80_000 - 145, abs=2)
    assert pace.step_s * len(pace.asked) < 400


def test_a_run_scored_again_is_called_by_its_name(run: Any) -> None:
    from assay.api import score

    again = score(run).run
    facts = run_facts(again)
    again.close()
    assert facts.id == f"{run.id} (scoring 1)"
    assert facts.seconds is None
    assert document_facts(again, "sums").spread == document_facts(run, "sums").spread
