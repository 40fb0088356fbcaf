"""The results table: every score with its standard error, its interval and the counts."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import yaml
from tests.making import ROWS, answer_correctly, make_model, write_task

import assay
from assay.core.records.requests import Request
from assay.core.records.responses import Failure
from assay.viewer.results.score_rows import iterate_score_rows
from assay.viewer.terminal.results_table import build_results_table, format_results

FAILED = Failure(request_id="", kind="timeout", message="too slow")


def run(workspace: Path, *tasks: str, answers: Any = answer_correctly, **options: Any) -> assay.Run:
    return assay.run(model=make_model(answers), tasks=list(tasks), include_path=[str(workspace)], **options)


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip() and "──" not in line]


def test_a_row_has_the_score_its_standard_error_and_the_counts(workspace: Path) -> None:
    write_task(workspace, num_fewshot=2)

    def answers(request: Request) -> Any:
        return FAILED if request.document == 0 else "2"

    (header, row) = cells(run(workspace, "sums", answers=answers).table())
    assert header == [
        "task",
        "n-shot",
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
    interval = ["0.0362", "–", "0.6245"]
    assert row == ["sums", "2", "none", "exact_match", "↑", "0.2000", "±", "0.2000", *interval, "5", "0", "1"]


def test_a_metric_without_a_standard_error_has_an_empty_cell(workspace: Path) -> None:
    write_task(workspace, rows=ROWS[:1])
    (_, row) = cells(run(workspace, "sums").table())
    assert "±" not in row


def test_a_group_precedes_its_indented_tasks(workspace: Path) -> None:
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
    assert [(depth, name) for depth, name, _, _ in iterate_score_rows(finished)] == [
        (0, "both"),
        (1, "z"),
        (1, "a"),
    ]
    lines = [line for line in finished.table().splitlines() if "exact_match" in line]
    assert [line.split("  ")[0].strip() or line.strip().split("  ")[0] for line in lines] == [
        "Both",
        "Task z",
        "Task a",
    ]
    assert lines[1].index("Task") > lines[0].index("Both")


def test_a_group_without_an_aggregate_is_shown(workspace: Path) -> None:
    write_task(workspace)
    (workspace / "silent.yaml").write_text("group: silent\ntask: [sums]\n")
    assert "silent" in run(workspace, "silent").table()


def test_names_with_brackets_are_not_parsed_as_markup(workspace: Path) -> None:
    pipelines = [{"name": "[red]x", "filter": [{"function": "take_first"}]}]
    write_task(workspace, task_alias="sums [bold]", filter_list=pipelines)
    table = run(workspace, "sums").table()
    assert "sums [bold]" in table
    assert "[red]x" in table


def test_long_names_are_not_cut(workspace: Path) -> None:
    name = "a_task_with_a_name_that_goes_on_and_on_" * 3
    write_task(workspace, name)
    assert name in run(workspace, name).table()


def test_text_is_plain_and_a_terminal_is_coloured(workspace: Path) -> None:
    from rich.console import Console

    write_task(workspace)
    finished = run(workspace, "sums", answers=lambda request: FAILED if request.document == 0 else "1")
    assert "\x1b[" not in format_results(finished)
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, width=160).print(build_results_table(finished))
    assert "\x1b[31m1\x1b[0m" in stream.getvalue(), "failures are red"


def test_a_notebook_renders_the_table_as_html(workspace: Path) -> None:
    write_task(workspace, task_alias="<sums>")
    html = run(workspace, "sums")._repr_html_()
    assert "<table" in html
    assert "&lt;sums&gt;" in html


def test_the_parts_of_an_aggregation_are_listed_below_it(workspace: Path) -> None:
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
    text = format_results(run(workspace, "sums"))
    lines = [" ".join(line) for line in cells(text)]
    assert "all 6" in lines
    assert "first [1] / right 0.2500" in lines
    assert "all 6" in [" ".join(row) for row in cells(render_at_width(run(workspace, "sums"), 60))]


def render_at_width(finished: assay.Run, width: int) -> str:
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(build_results_table(finished))
    return stream.getvalue()


def test_the_full_table_is_shown_where_it_fits(workspace: Path) -> None:
    write_task(workspace)
    finished = run(workspace, "sums")
    whole = max(len(line.rstrip()) for line in format_results(finished).splitlines())
    assert "unscored" in render_at_width(finished, whole)
    assert "unscored" in render_at_width(finished, whole - 10), "narrow gaps make room for all columns"
    assert "unscored" not in render_at_width(finished, 80), "a count of zero is not folded"
    narrow = render_at_width(finished, 60)
    assert cells(narrow)[1] == ["sums", "none", "exact_match", "↑", "1.0000", "0.6097", "–", "1.0000"]
    assert narrow.splitlines()[4] == "     6 scored · ± 0.0000 · 0-shot"


def test_failed_documents_stay_visible_in_a_narrow_table(workspace: Path) -> None:
    write_task(workspace)
    finished = run(workspace, "sums", answers=lambda request: FAILED if request.document == 0 else "1")
    assert "1 failed" in render_at_width(finished, 60)


def test_a_narrow_table_has_a_filter_column_only_if_filters_exist(workspace: Path) -> None:
    write_task(workspace, filter_list=[{"name": "first", "filter": [{"function": "take_first"}]}])
    assert "first" in render_at_width(run(workspace, "sums"), 60)
