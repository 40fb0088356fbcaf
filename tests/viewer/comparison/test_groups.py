"""The differences of groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.making import make_model, write_task

import assay
from assay.stats.comparisons.stratified import Stratum, combine_strata
from assay.store.runs.lookup import find_run_folders
from assay.store.runs.run import Run
from assay.viewer.comparison.conclusion import state_conclusion
from assay.viewer.comparison.groups import list_grouped_tasks, order_rows
from assay.viewer.comparison.records import CompareOptions, Comparison
from assay.viewer.comparison.run_comparison import compare_sources
from assay.viewer.comparison.sources import open_source
from assay.viewer.matrix import build_matrix

SIZES = {"small": 8, "medium": 12, "large": 20}


def write_group(folder: Path, *, weight_by_size: bool) -> None:
    for name, size in SIZES.items():
        rows = [{"question": f"{name} {n}?", "answer": "yes"} for n in range(size)]
        write_task(folder, name, rows)
    metrics = [{"metric": "exact_match", "aggregation": "mean", "weight_by_size": weight_by_size}]
    groups = {"inner": ["medium", "large"], "outer": ["inner", "small"]}
    for name, members in groups.items():
        group = {"group": name, "task": members, "aggregate_metric_list": metrics}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(group), "utf-8")
    write_task(folder, "alone", [{"question": f"alone {n}?", "answer": "yes"} for n in range(6)])


def run_group(folder: Path, name: str, wrong_every: int, tasks: list[str]) -> Run:
    def answer(request: Any) -> str:
        return "yes" if request.document % wrong_every or request.task == "alone" else "no"

    return assay.run(
        model=make_model(answer, name=name), tasks=tasks, include_path=[str(folder)], no_cache=True,
        output_path=str(folder / "runs"),
    )  # fmt: skip


def compare(first: Run, second: Run, **options: Any) -> Comparison:
    sources = [open_source(first), open_source(second)]
    try:
        return compare_sources(sources[0], sources[1], CompareOptions(**options))
    finally:
        for source in sources:
            source.close()


@pytest.fixture(params=[True, False], ids=["by-size", "equal"])
def comparison(request: pytest.FixtureRequest, tmp_path: Path) -> Comparison:
    write_group(tmp_path, weight_by_size=request.param)
    tasks = ["alone", "outer"]
    return compare(run_group(tmp_path, "first", 2, tasks), run_group(tmp_path, "second", 4, tasks))


def test_a_group_differs_although_none_of_its_tasks_does(comparison: Comparison, tmp_path: Path) -> None:
    outer, inner = sorted(comparison.groups, key=lambda row: -row.documents)
    assert (outer.task, inner.task) == ("outer", "inner")
    assert outer.differs and outer.better and outer.documents == 40
    assert not any(row.differs for row in comparison.rows)
    assert outer.wins == sum(row.wins or 0 for row in comparison.rows if row.task != "alone")
    assert state_conclusion(comparison).startswith("second is better than first on outer by")
    assert "medium" not in state_conclusion(comparison)
    sources = [open_source(folder) for folder in find_run_folders([tmp_path / "runs"])]
    matrix = build_matrix(sources)
    for source in sources:
        source.close()
    starred = {row.task for row in matrix.rows if any(cell and cell.best for cell in row.cells)}
    assert starred == {row.task for row in comparison.groups if row.differs}
    assert not matrix.notes, "groups are paired, too"
    assert "no difference seen on alone" in state_conclusion(comparison)


def test_the_weights_are_those_of_the_reported_score(tmp_path: Path) -> None:
    found = {}
    for weight_by_size in (True, False):
        folder = tmp_path / str(weight_by_size)
        write_group(folder, weight_by_size=weight_by_size)
        runs = [run_group(folder, name, every, ["outer"]) for name, every in (("first", 3), ("second", 7))]
        (outer,) = [row for row in compare(*runs).groups if row.task == "outer"]
        reported = [float(one.value) for run in runs for one in run.estimates if one.task == "outer"]
        assert [outer.first, outer.second] == pytest.approx(reported)
        assert outer.difference == pytest.approx(reported[1] - reported[0])
        found[weight_by_size] = outer.difference
    assert found[True] != pytest.approx(found[False])


def test_groups_come_before_their_members(comparison: Comparison) -> None:
    assert [(around, row.task) for around, row in order_rows(comparison)] == [
        ((), "alone"),
        ((), "outer"),
        (("outer",), "inner"),
        (("outer", "inner"), "medium"),
        (("outer", "inner"), "large"),
        (("outer",), "small"),
    ]
    assert list_grouped_tasks(comparison) == {"inner", "medium", "large", "small"}
    plain = comparison.as_json()
    assert plain["groups"][0]["members"] and "members" not in plain["rows"][0]


def test_a_group_without_all_its_tasks_is_not_compared(tmp_path: Path) -> None:
    write_group(tmp_path, weight_by_size=True)
    whole = run_group(tmp_path, "first", 2, ["outer"])
    assert compare(whole, run_group(tmp_path, "second", 4, ["medium", "large", "small"])).groups == ()
    chosen = compare(whole, run_group(tmp_path, "second", 4, ["outer"]), tasks=["medium", "large"])
    assert [row.task for row in chosen.groups] == ["inner"]


def test_weighted_strata_have_the_error_of_a_weighted_mean() -> None:
    random = np.random.default_rng(0)
    errors, weights = np.array([0.03, 0.05, 0.02]), [0.2, 0.3, 0.5]
    means = random.normal(0.1, errors, (40_000, 3)) @ np.array(weights)
    strata = [Stratum(value=0.1, stderr=float(error), degrees=50) for error in errors]
    found = combine_strata(strata, weights=weights)
    assert found.value == pytest.approx(0.1)
    assert found.stderr == pytest.approx(float(means.std()), rel=0.02)
