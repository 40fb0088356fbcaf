"""The notes below a table of results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.making import make_model, write_choices, write_task

import assay
from assay.viewer.results.notes import format_group_notes

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1), "passage": n // 5} for n in range(40)]


def test_a_metric_that_some_tasks_of_a_group_lack_is_a_warning(tmp_path: Path) -> None:
    write_choices(tmp_path, "first")
    write_choices(tmp_path, "second", metric_list=[{"metric": "acc_norm"}])
    path = tmp_path / "both.yaml"
    path.write_text("group: both\ntask: [first, second]\naggregate_metric_list: [{metric: acc}]\n")
    run = assay.run(model="oracle", tasks=[str(path)], no_cache=True, output_path=str(tmp_path / "out"))
    assert format_group_notes(run) == ["warning: both: acc (none) is missing in 1 of 2 tasks: second"]
    assert "acc (none) is missing in 1 of 2 tasks" in run.table()


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        pytest.param("{}", ["x (first) is missing in 1 of 2 tasks: two", "x (none) is missing in 1 of 2 tasks: one"], id="any filter"),
        pytest.param("{filter_list: none}", [], id="a filter that the group names"),
        pytest.param("{filter_list: [none, first]}", [], id="filters that the group names"),
    ],
)  # fmt: skip
def test_a_task_with_another_filter_than_the_group_names_is_intended(
    tmp_path: Path, filters: str, expected: list[str]
) -> None:
    first = [{"name": "first", "filter": [{"function": "take_first"}]}]
    write_task(tmp_path, "one", ROWS[:3], filter_list=first)
    write_task(tmp_path, "two", ROWS[:3])
    keys = {"metric": "exact_match", **yaml.safe_load(filters)}
    path = tmp_path / "both.yaml"
    path.write_text(f"group: both\ntask: [one, two]\naggregate_metric_list: [{json.dumps(keys)}]\n")
    run = assay.run(model="oracle", tasks=[str(path)], no_cache=True, output_path=str(tmp_path / "out"))
    assert format_group_notes(run) == [
        f"warning: both: {line.replace('x', 'exact_match', 1)}" for line in expected
    ]


def test_the_embedded_group_warns_of_nothing(tmp_path: Path) -> None:
    run = assay.run(tasks=["quickstart"], limit=2, no_cache=True, output_path=str(tmp_path))
    assert format_group_notes(run) == []


def test_the_method_of_an_interval_names_the_task_if_tasks_differ(tmp_path: Path) -> None:
    plain = write_task(tmp_path, "plain", ROWS)
    clustered = write_task(tmp_path, "clustered", ROWS, cluster_key="passage")

    def run(*tasks: Path) -> str:
        found = assay.run(
            model=make_model(lambda request: str(request.document + 1) if request.document % 3 else "?"),
            tasks=[str(task) for task in tasks],
            no_cache=True,
            output_path=str(tmp_path / "out"),
        )
        return " ".join(found.table().split())

    assert "95 % intervals" not in run(plain)
    assert "95 % intervals: exact_match: clustered by passage (8 clusters)" in run(clustered)
    assert (
        "95 % intervals: exact_match of plain: wilson; exact_match of clustered: clustered by passage (8 clusters)"
        in run(plain, clustered)
    )
