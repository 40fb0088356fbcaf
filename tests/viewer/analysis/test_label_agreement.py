"""Agreement between people, and the documents to label next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.making import Function, make_model, write_task

import assay
from assay.store.runs.labels import Label
from assay.viewer.analysis.label_agreement import (
    average_labels,
    build_label_queue,
    compute_label_agreement,
)
from assay.viewer.comparison.sources import open_source


def label(document: int, who: str, verdict: str = "", **values: Any) -> Label:
    return Label(task="sums", document=document, who=who, at=1.0, verdict=verdict, **values)


def test_agreement_is_computed_for_each_pair_of_people() -> None:
    labels = [
        *(label(n, "ann", "right" if n < 5 else "wrong") for n in range(10)),
        *(label(n, "bob", "right" if n < 4 else "wrong") for n in range(8)),
        label(99, "eve", "right"),
        label(1, "eve", star=True),
    ]
    (pair,) = compute_label_agreement(labels)
    assert (pair.first, pair.second, pair.documents) == ("ann", "bob", 8)
    assert pair.agreement == pytest.approx(7 / 8)
    assert pair.kappa == pytest.approx((7 / 8 - (5 * 4 + 3 * 4) / 64) / (1 - (5 * 4 + 3 * 4) / 64))
    assert compute_label_agreement([label(1, "a", "right"), label(1, "b", "right")])[0].kappa is None


def test_a_document_has_the_mean_of_its_labels() -> None:
    labels = [label(1, "ann", "right"), label(1, "bob", "wrong"), label(2, "bob", note="?")]
    assert average_labels(labels) == {("sums", 1): 0.5}


def make_run(folder: Path, name: str, wrong: set[int], **keys: Any) -> Any:
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(8)]
    task = write_task(folder, "sums", rows, **keys)
    model = make_model(
        lambda request: "?" if request.document in wrong else str(request.document + 1), name=name
    )
    return assay.run(model=model, tasks=[str(task)], no_cache=True, output_path=str(folder / "runs"))


def test_documents_on_which_runs_disagree_come_first(tmp_path: Path) -> None:
    first, second = make_run(tmp_path, "one", {1, 2, 3}), make_run(tmp_path, "two", {3, 5})
    sources = open_source(first), open_source(second)
    queue = build_label_queue(sources[0], [sources[1]], labelled={("sums", 2)})
    assert [(entry.document, entry.why) for entry in queue] == [(1, "scores: 0, 1"), (5, "scores: 1, 0")]
    assert len(build_label_queue(sources[0], [sources[1]], limit=1)) == 1
    assert build_label_queue(sources[0]) == []


def test_documents_on_which_judges_disagree_come_first(tmp_path: Path) -> None:
    helpers = (
        "def process_results(doc, results):\n"
        "    n = int(doc['answer'])\n"
        "    return {'good': 1.0, 'good_agreement': {2: 0.5, 4: 0.75}.get(n, 1.0)}\n"
    )
    run = make_run(
        tmp_path,
        "judged",
        set(),
        helpers=helpers,
        process_results=Function("utils.process_results"),
        metric_list=[{"metric": "good"}, {"metric": "good_agreement"}],
    )
    queue = build_label_queue(open_source(run))
    assert [(entry.document, entry.disagreement) for entry in queue] == [(1, 0.5), (3, 0.25)]
    assert queue[0].why == "good: 50 % of the verdicts agree"
