"""What pages and reports are made of: collected from a run with everything in it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_choices, write_task

import assay
from assay.core.responses import Failure
from assay.store.journal.journal import Journal
from assay.store.runs.run import Run
from assay.viewer.documents.statistics import collect_document_statistics, find_category_fields
from assay.viewer.results.run_overview import build_outcome_bars, build_run_overview, build_score_marks
from assay.viewer.results.throughput import measure_throughput

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


def test_the_overview_has_every_score_and_outcome(run: Any) -> None:
    facts = build_run_overview(run)
    assert [(row.name, row.value, row.is_first) for row in facts.scores] == [
        ("sums", pytest.approx(10 / 19), True),
        ("choices", 0.5, True),
    ]
    assert [(bar.name, dict(bar.counts)) for bar in build_outcome_bars(facts)] == [
        ("sums", {"failed": 1, "scored": 19}),
        ("choices", {"scored": 4}),
    ]
    mark = build_score_marks(facts)[0]
    assert mark.share and mark.low is not None and mark.high is not None
    assert mark.low < mark.value < mark.high
    assert mark.note == "19 of 20 documents scored"
    assert facts.documents == 24


def test_settings_show_options_that_differ_from_the_defaults(run: Any) -> None:
    settings = dict(build_run_overview(run).settings)
    assert settings["--limit"] == "20"
    assert "--gen_kwargs" not in settings
    assert settings["assay"]


def test_statistics_have_a_histogram_and_categories(run: Any) -> None:
    facts = collect_document_statistics(run, "sums")
    assert (facts.metric, facts.field, facts.share) == ("exact_match", "level", True)
    assert [(bar.low, bar.documents) for bar in facts.histogram] == [(0.0, 9), (1.0, 10)]
    assert [(mark.name, mark.value, mark.documents) for mark in facts.categories] == [
        ("even", 1.0, 10),
        ("odd", 0.0, 9),
    ]


def test_a_field_with_many_values_is_not_a_category(run: Any) -> None:
    assert find_category_fields(run, "sums") == ["level"]
    assert collect_document_statistics(run, "sums", field="question").categories[0].documents == 1


def test_a_missing_field_gives_no_categories(run: Any) -> None:
    assert collect_document_statistics(run, "sums", field='no"such.field').categories == ()


def test_the_sample_has_every_kind_and_depends_on_the_seed_only(run: Any) -> None:
    picked = collect_document_statistics(run, "sums", sample=6, seed=1).samples
    assert {one.kind for one in picked} == {"right", "wrong", "failed"}
    assert len(picked) == 6
    assert (3, "failed") in [(one.document, one.kind) for one in picked]
    assert picked == collect_document_statistics(run, "sums", sample=6, seed=1).samples
    assert picked != collect_document_statistics(run, "sums", sample=6, seed=2).samples


def test_a_small_task_is_sampled_completely(run: Any) -> None:
    picked = collect_document_statistics(run, "choices", sample=50).samples
    assert sorted(one.document for one in picked) == [0, 1, 2, 3]


def test_throughput_counts_every_response_and_excludes_pauses(tmp_path: Path) -> None:
    now = time.time()
    with_pause = [now + 5 * at for at in range(30)] + [now + 80_000 + 5 * at for at in range(30)]
    journal = Journal.open_for_writing(tmp_path)
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
    pace = measure_throughput(Run(tmp_path))
    assert pace is not None
    assert (sum(pace.model), sum(pace.cache), len(pace.pauses)) == (59, 1, 1)
    assert pace.pauses[0].seconds == pytest.approx(80_000 - 145, abs=2)
    assert pace.step_s * len(pace.model) < 400


def test_a_rescored_run_is_named_after_the_original(run: Any) -> None:
    from assay.api import score

    again = score(run).run
    facts = build_run_overview(again)
    again.close()
    assert facts.id == f"{run.id} (scoring 1)"
    assert facts.seconds is None
    assert (
        collect_document_statistics(again, "sums").histogram
        == collect_document_statistics(run, "sums").histogram
    )
