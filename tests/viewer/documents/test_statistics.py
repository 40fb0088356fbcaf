"""Statistics over the documents of a task."""

from __future__ import annotations

from typing import Any

import pytest
from tests.making import make_model, write_choices, write_task

import assay
from assay.core.records.responses import Failure
from assay.viewer.documents.statistics import collect_document_statistics, find_category_fields

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
