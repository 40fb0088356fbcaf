"""The overview of a run: scores, outcomes, settings."""

from __future__ import annotations

from typing import Any

import pytest
from tests.making import make_model, write_choices, write_task

import assay
from assay.core.records.responses import Failure
from assay.viewer.documents.statistics import collect_document_statistics
from assay.viewer.results.run_overview import build_outcome_bars, build_run_overview, build_score_marks

ROWS = [
    {"question": f"What is {n} + 1?", "answer": str(n + 1), "level": "odd" if n % 2 else "even"}
    for n in range(20)
]


def answers(request: Any) -> Any:
    if hasattr(request, "continuation"):
        from assay.core.records.responses import LogProbability

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
