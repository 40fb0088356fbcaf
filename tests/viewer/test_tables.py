"""The results table: every number with its error and its denominator."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.making import ROWS, make_model, right_answers, write_task

import assay
from assay.core.requests import Request
from assay.core.responses import Failure
from assay.viewer.tables import number, results_table, results_text, rows_of

FAILED = Failure(request_id="", kind="timeout", message="too slow")


def run(workspace: Path, *tasks: str, answers: Any = right_answers, **options: Any) -> assay.Run:
    return assay.run(model=make_model(answers), tasks=list(tasks), include_path=[str(workspace)], **options)


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip() and "──" not in line]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.5, "0.5000"),
        (1, "1"),
        (None, "–"),
        ({"a": 1}, "…"),
        ([1], "…"),
        (True, "True"),
        ("n/a", "n/a"),
        (12345.678, "12345.6780"),
    ],
)
def test_a_value_is_shown_as_people_read_it(value: Any, shown: str) -> None:
    assert number(value) == shown


def test_a_row_has_the_score_its_error_and_its_denominator(workspace: Path) -> None:
    write_task(workspace, num_fewshot=2)

    def answers(request: Request) -> Any:
        return FAILED if request.document == 0 else "2"

    (header, row) = cells(run(workspace, "sums", answers=answers).table())
    assert header == [
        "task",
        "shots",
        "filter",
        "metric",
        "value",
        "±",
        "stderr",
        *("95", "%", "interval"),
        "scored",
        "unscored",
        "failed",
    ]
    between = ["0.0362", "–", "0.6245"]
    assert row == ["sums", "2", "none", "exact_match", "↑", "0.2000", "±", "0.2000", *between, "5", "0", "1"]


def test_a_metric_without_an_error_shows_none(workspace: Path) -> None:
    write_task(workspace, rows=ROWS[:1])
    (_, row) = cells(run(workspace, "sums").table())
    assert "±" not in row


def test_a_group_stands_before_its_tasks_which_are_indented(workspace: Path) -> None:
    for name in ("z", "a"):
        write_task(workspace, name, task_alias=f"Task {name}")
    group = {
        "group": "both",
        "group_alias": "Both",
        "task": ["z", "a"],
        "aggregate_metric_list": [{"metric": "exact_match"}],
    }
    (workspace / "both.yaml").write_text(yaml.safe_dump(group))
    finished = run(workspace, "both")
    assert [(depth, name) for depth, name, _, _ in rows_of(finished)] == [(0, "both"), (1, "z"), (1, "a")]
    lines = [line for line in finished.table().splitlines() if "exact_match" in line]
    assert [line.split("  ")[0].strip() or line.strip().split("  ")[0] for line in lines] == [
        "Both",
        "Task z",
        "Task a",
    ]
    assert lines[1].index("Task") > lines[0].index("Both")


def test_a_group_without_a_number_is_shown_all_the_same(workspace: Path) -> None:
    write_task(workspace)
    (workspace / "silent.yaml").write_text("group: silent\ntask: [sums]\n")
    assert "silent" in run(workspace, "silent").table()


def test_names_with_brackets_are_not_taken_for_colours(workspace: Path) -> None:
    pipelines = [{"name": "[red]x", "filter": [{"function": "take_first"}]}]
    write_task(workspace, task_alias="sums [bold]", filter_list=pipelines)
    table = run(workspace, "sums").table()
    assert "sums [bold]" in table
    assert "[red]x" in table


def test_long_names_are_not_cut(workspace: Path) -> None:
    name = "a_task_with_a_name_that_goes_on_and_on_" * 3
    write_task(workspace, name)
    assert name in run(workspace, name).table()


def test_text_is_plain_and_a_terminal_gets_colours(workspace: Path) -> None:
    from rich.console import Console

    write_task(workspace)
    finished = run(workspace, "sums", answers=lambda request: FAILED if request.document == 0 else "1")
    assert "\x1b[" not in results_text(finished)
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, width=160).print(results_table(finished))
    assert "\x1b[31m1\x1b[0m" in stream.getvalue(), "failures are red"


def test_a_notebook_gets_the_table_as_html(workspace: Path) -> None:
    write_task(workspace, task_alias="<sums>")
    html = run(workspace, "sums")._repr_html_()
    assert "<table" in html
    assert "&lt;sums&gt;" in html


def test_what_an_aggregation_says_of_each_part_is_listed_below_it(workspace: Path) -> None:
    (workspace / "parts.py").write_text(
        "def judge(doc, results):\n    return {'by_answer': (doc['answer'], results[0])}\n\n"
        "def summed(items):\n    return {'all': len(items), 'first [1]': {'right': 0.25}}\n",
        "utf-8",
    )
    write_task(workspace)
    path = workspace / "sums.yaml"
    config = yaml.safe_load(path.read_text("utf-8"))
    config.pop("metric_list", None)
    path.write_text(
        yaml.safe_dump(config)
        + "process_results: !function parts.judge\n"
        + "metric_list:\n  - metric: by_answer\n    aggregation: !function parts.summed\n",
        "utf-8",
    )
    text = results_text(run(workspace, "sums"))
    lines = [" ".join(line) for line in cells(text)]
    assert "all 6" in lines
    assert "first [1] / right 0.2500" in lines
    assert "all 6" in [" ".join(row) for row in cells(text_of_width(run(workspace, "sums"), 60))]


def text_of_width(finished: assay.Run, width: int) -> str:
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(results_table(finished, width=width))
    return stream.getvalue()


def test_the_whole_table_is_shown_wherever_it_fits(workspace: Path) -> None:
    write_task(workspace)
    finished = run(workspace, "sums")
    whole = max(len(line.rstrip()) for line in results_text(finished).splitlines())
    assert "unscored" in text_of_width(finished, whole + 1)
    narrower = text_of_width(finished, whole - 1)
    assert "unscored" in narrower and "interval" not in narrower
    narrow = text_of_width(finished, max(len(line.rstrip()) for line in narrower.splitlines()) - 1)
    assert "unscored" not in narrow
    assert cells(narrow)[1] == ["sums", "exact_match", "1.0000", "±", "0.0000", "6"]


def test_a_narrow_table_names_filters_where_there_are_any(workspace: Path) -> None:
    write_task(workspace, filter_list=[{"name": "first", "filter": [{"function": "take_first"}]}])
    assert "first" in text_of_width(run(workspace, "sums"), 60)
