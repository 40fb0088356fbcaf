"""Comparison of runs: pairing, significance, mismatches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.making import make_model, write_choices, write_task

import assay
from assay.core.errors import InvalidOption, UnknownName, UserError
from assay.core.responses import Failure, LogProbability
from assay.stats.comparison import compare_pairs
from assay.viewer.comparison.comparison_table import (
    build_comparison_table,
    collect_remarks,
    format_markdown_table,
)
from assay.viewer.comparison.forest_plot import draw_forest_plot, format_plot_line, write_forest_plot
from assay.viewer.comparison.multiplicity import adjust_comparisons
from assay.viewer.comparison.sources import open_source
from assay.viewer.exports.lm_eval import write_lm_eval
from assay.viewer.text_tables import render_table_text

ROWS = [
    {
        "question": f"What is {n} + 1?",
        "answer": str(n + 1),
        "kind": "odd" if n % 2 else "even",
        "text": n // 4,
    }
    for n in range(40)
]
Runs = Callable[..., Any]


def right_for(*documents: int) -> Callable[[Any], str]:
    """Return answers that are right for these documents only."""
    return lambda request: str(request.document + 1) if request.document in documents else "no idea"


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Return a function that runs the sums in a new folder: `runs(answers, **options)`."""

    def run(answers: Any, rows: Any = ROWS, keys: Any = None, **options: Any) -> Any:
        number = len(list(tmp_path.iterdir()))
        task = write_task(tmp_path / f"task-{number}", "sums", rows, **(keys or {}))
        place = str(tmp_path / f"out-{number}")
        return assay.run(
            model=make_model(answers), tasks=[str(task)], no_cache=True, output_path=place, **options
        )

    return run


def test_scores_are_paired_document_by_document(runs: Runs) -> None:
    first, second = runs(right_for(*range(10))), runs(right_for(*range(5, 30)))
    found = assay.compare(first, second, flips=True)
    (row,) = found.rows
    wanted = compare_pairs([n < 10 for n in range(40)], [5 <= n < 30 for n in range(40)])
    assert (row.first, row.second) == (0.25, 0.625)
    assert row.difference == pytest.approx(0.375)
    assert (row.wins, row.ties, row.losses) == (20, 15, 5)
    assert row.p_value == pytest.approx(wanted.p_value)
    assert row.differs and row.better
    assert [flip.document for flip in row.flips] == [*range(5), *range(10, 30)]
    assert found.mismatches == ()


def test_no_significant_difference_shows_the_detectable_difference(runs: Runs) -> None:
    found = assay.compare(runs(right_for(1, 2, 3)), runs(right_for(2, 3, 4)))
    (row,) = found.rows
    assert not row.differs and row.better is None
    assert row.detectable is not None and 0.05 < row.detectable < 0.3
    text = render_table_text(build_comparison_table(found, found.rows))
    assert "no significant difference" in text
    assert f"±{100 * row.detectable:.1f}" in text


def test_different_prompts_fewshot_examples_and_settings_are_warnings(runs: Runs) -> None:
    first = runs(right_for(1))
    second = runs(right_for(1), num_fewshot=1, system_instruction="Think.", gen_kwargs={"temperature": 0.5})
    said = dict.fromkeys(f"{one.kind}: {one.what}" for one in assay.compare(first, second).mismatches)
    assert "prompts: the prompts differ" in said
    assert "few-shot: few-shot examples: 0 and 1" in said
    assert "prompts: system instruction: none and Think." in said
    assert any(text.startswith("sampling: generation settings: temperature") for text in said)


def test_documents_missing_in_one_run_are_excluded_and_counted(runs: Runs) -> None:
    moved = [{**ROWS[0], "question": "Something else?"}, *ROWS[5:30]]
    found = assay.compare(runs(right_for(*range(20))), runs(lambda request: "7", rows=moved))
    assert found.rows[0].documents == 25
    said = " ".join(text for _, text in collect_remarks(found))
    assert "25 documents are in both runs, 15 only in the first, 1 only in the second" in said


def test_a_changed_dataset_is_paired_by_number_with_a_warning(runs: Runs) -> None:
    changed = [{**row, "note": "new"} for row in ROWS]
    found = assay.compare(runs(right_for(1)), runs(right_for(1), rows=changed))
    assert found.rows[0].documents == 40
    assert "paired by number" in " ".join(one.what for one in found.mismatches)


def test_unanswered_documents_are_excluded(runs: Runs) -> None:
    def failing(request: Any) -> Any:
        return Failure(request_id="", kind="server error", message="down") if request.document < 4 else "5"

    found = assay.compare(runs(right_for(4)), runs(failing))
    assert found.rows[0].documents == 36
    assert "4 of 40 documents have no score" in found.rows[0].notes[0]
    assert any(one.kind == "endings" and "4 failed" in one.what for one in found.mismatches)


def test_clusters_of_the_given_field_widen_the_interval(runs: Runs) -> None:
    first, second = runs(right_for()), runs(right_for(*range(8), *range(16, 24)))
    alone = assay.compare(first, second).rows[0]
    together = assay.compare(first, second, cluster_by="text").rows[0]
    assert together.clusters == 10
    assert together.p_value > alone.p_value
    assert together.high - together.low > alone.high - alone.low
    with pytest.raises(UnknownName, match="no field `page`"):
        assay.compare(first, second, cluster_by="page")


def test_a_shared_field_is_suggested_for_clustering(runs: Runs) -> None:
    rows = [{**row, "passage": f"text {n // 3}"} for n, row in enumerate(ROWS)]
    found = assay.compare(runs(right_for(1), rows=rows), runs(right_for(1), rows=rows))
    assert "40 documents share 14 values of `passage`" in " ".join(found.notes)


def test_categories_are_compared_separately(runs: Runs) -> None:
    found = assay.compare(runs(right_for()), runs(right_for(*range(0, 40, 2))), category="kind")
    values = {row.category: (row.documents, row.difference) for row in found.categories}
    assert values == {"even": (20, 1.0), "odd": (20, 0.0)}


def test_a_lower_value_can_be_better(runs: Runs) -> None:
    keys = {"metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": False}]}
    (row,) = assay.compare(runs(right_for(*range(20)), keys=keys), runs(right_for(), keys=keys)).rows
    assert row.difference == -0.5
    assert row.better
    assert (row.wins, row.losses) == (20, 0)


def test_corpus_metrics_are_compared_as_a_whole(runs: Runs) -> None:
    keys = {"metric_list": [{"metric": "bleu", "aggregation": "bleu", "higher_is_better": True}]}
    rows = [{**row, "answer": f"the answer to this sum is {row['answer']} of course"} for row in ROWS]
    good = runs(
        lambda request: f"the answer to this sum is {request.document + 1} of course", rows=rows, keys=keys
    )
    bad = runs(lambda request: "the answer to everything is 42 of course", rows=rows, keys=keys)
    (row,) = assay.compare(bad, good).rows
    assert row.second == pytest.approx(good.estimates[0].value)
    assert row.differs and row.better and row.wins is None
    assert row.test == "swapped answers"


def test_lm_eval_files_are_compared_like_runs(runs: Runs, tmp_path: Path) -> None:
    first, second = runs(right_for(*range(10))), runs(right_for(*range(5, 30)), num_fewshot=1)
    write_lm_eval(first, str(tmp_path / "a"))
    write_lm_eval(second, str(tmp_path / "b"))
    ours = assay.compare(first, second)
    for one, other in (
        (tmp_path / "a", tmp_path / "b"),
        (first.folder, tmp_path / "b"),
        (tmp_path / "a", second),
    ):
        found = assay.compare(one, other)
        assert found.rows[0].p_value == ours.rows[0].p_value
        assert {mismatch.kind for mismatch in found.mismatches} >= {"prompts", "few-shot"}
        prompts = next(one for one in found.mismatches if one.kind == "prompts")
        assert (prompts.count, prompts.total) == (40, 40)


def test_p_values_are_adjusted_for_the_number_of_tasks(tmp_path: Path) -> None:
    tasks = [str(write_task(tmp_path, f"sums{n}", ROWS)) for n in range(3)]
    folders = []
    for name, answers in (("a", right_for()), ("b", right_for(1, 2, 3, 4, 5, 6))):
        made = assay.run(
            model=make_model(answers), tasks=tasks, no_cache=True, output_path=str(tmp_path / name)
        )
        folders.append(made.folder)
    found = assay.compare(*folders)
    assert [row.p_value for row in found.rows] == [0.03125] * 3
    assert [row.adjusted_p for row in found.rows] == [0.09375] * 3
    assert not any(row.differs for row in found.rows)
    assert all(row.differs for row in assay.compare(*folders, correction="bh").rows)
    assert found.overall is not None and found.overall.differs
    assert found.overall.difference == pytest.approx(0.15)


def test_the_given_metric_is_compared(tmp_path: Path) -> None:
    task = str(write_choices(tmp_path, rows=30, metric_list=[{"metric": "acc"}, {"metric": "acc_norm"}]))

    def likes(index: int) -> Any:
        return lambda request: LogProbability(-1.0 if request.index == index else -2.0, True)

    made = [
        assay.run(model=make_model(likes(n)), tasks=[task], no_cache=True, output_path=str(tmp_path / str(n)))
        for n in range(2)
    ]
    assert [row.metric for row in assay.compare(*made).rows] == ["acc"]
    assert [row.metric for row in assay.compare(*made, metrics=["acc_norm"]).rows] == ["acc_norm"]


@pytest.mark.parametrize(
    ("options", "said"),
    [({"correction": "bonferoni"}, "bonferoni"), ({"level": 95}, "95"), ({"tasks": ["other"]}, "other")],
)
def test_invalid_options_are_refused(runs: Runs, options: dict[str, Any], said: str) -> None:
    run = runs(right_for())
    with pytest.raises(UserError, match=said):
        assay.compare(run, run, **options)


def test_a_folder_without_runs_or_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="neither a run nor a result folder"):
        open_source(tmp_path)


def test_plots_show_every_row_and_escape_names(runs: Runs, tmp_path: Path) -> None:
    found = assay.compare(runs(right_for()), runs(right_for(*range(20))), category="kind")
    svg = draw_forest_plot(found).to_svg()
    texts = [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]
    assert {"sums", "even", "odd"} <= set(texts)
    write_forest_plot(found, tmp_path / "deep" / "forest.png")
    assert (tmp_path / "deep" / "forest.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InvalidOption, match="forest"):
        write_forest_plot(found, tmp_path / "forest.jpg")
    line = format_plot_line(found.rows[0], 1.0, 21)
    assert len(line) == 21 and line[10] == "│" and "●" in line[11:]


def test_a_comparison_converts_to_json_and_markdown(runs: Runs) -> None:
    found = assay.compare(runs(right_for()), runs(right_for(1)))
    assert json.loads(json.dumps(found.as_json()))["rows"][0]["documents"] == 40
    assert "| sums | exact_match | 0.0000 | 0.0250 | +2.50 |" in format_markdown_table(found, found.rows)


def test_the_latest_complete_scoring_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay import api

    monkeypatch.chdir(tmp_path)
    tasks = [str(write_task(tmp_path, name, ROWS)) for name in ("a", "b")]
    run = assay.run(model=make_model(right_for(1, 2)), tasks=tasks, no_cache=True, output_path="out")
    api.score(run, tasks=["a"])
    assert open_source(run).tasks == ["a", "b"]
    assert open_source(run).name == run.id
    api.score(run)
    assert open_source(run.folder).name == f"{run.id} (scoring 2)"
    assert [row.difference for row in assay.compare(run, run).rows] == [0.0, 0.0]


def test_models_are_compared_by_their_newest_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sums, more = (str(write_task(tmp_path, name, ROWS)) for name in ("sums", "more"))
    for model, tasks in (
        (make_model(right_for(*range(5)), name="old"), [sums, more]),
        (make_model(right_for(*range(10)), name="old"), [sums]),
        (make_model(right_for(*range(30)), name="new"), [sums, more]),
    ):
        assay.run(model=model, tasks=tasks, no_cache=True, seed=len(list(tmp_path.rglob("*.sqlite"))))
    found = assay.compare("model:old", "model:new")
    assert {row.task: row.first for row in found.rows} == {"sums": 0.25, "more": 0.125}
    assert {row.second for row in found.rows} == {0.75}
    assert any(one.kind == "settings" and "seed" in one.what for one in found.mismatches)
    with pytest.raises(UnknownName, match="called `none`") as error:
        assay.compare("model:old", "model:none")
    assert "new, old" in error.value.hint


def test_p_values_are_adjusted_for_several_runs(runs: Runs) -> None:
    base, others = runs(right_for()), [runs(right_for(*range(count))) for count in (0, 6, 12)]
    alone = [assay.compare(base, other) for other in others]
    together = adjust_comparisons(alone)
    assert [one.family for one in together] == [3, 3, 3]
    raw = [one.rows[0].p_value for one in alone]
    assert [one.rows[0].adjusted_p for one in together] == pytest.approx([1.0, 2 * raw[1], 3 * raw[2]])
    assert alone[1].rows[0].differs and not together[1].rows[0].differs
    wider = [
        (one.rows[0].detectable, other.rows[0].detectable) for one, other in zip(alone, together, strict=True)
    ]
    assert all(first < second for first, second in wider if first is not None and second is not None)
    notes = [text for kind, text in collect_remarks(together[1]) if kind == "note"]
    assert any("p and detectable are adjusted for all 3 tests (holm)" in note for note in notes)


def test_repeated_answers_are_compared(runs: Runs) -> None:
    sampled = {"until": ["\n"], "do_sample": True, "temperature": 1.0}
    keys = {"repeats": 4, "generation_kwargs": sampled}

    def sometimes(chance: int) -> Any:
        return lambda request: (
            str(request.document + 1) if (request.document + request.repeat) % 4 < chance else "no"
        )

    first, second = runs(sometimes(2), keys=keys), runs(sometimes(3), keys=keys)
    found = assay.compare(first, second)
    assert any("use `--metric exact_match.mean`" in note for note in found.notes)
    names = ["exact_match.mean", "exact_match.pass^2", "exact_match.pass@4"]
    rows = {row.metric: row for row in assay.compare(first, second, metrics=names).rows}
    assert (rows[names[0]].first, rows[names[0]].second) == (0.5, 0.75)
    assert rows[names[1]].first == pytest.approx(1 / 6)
    assert rows[names[2]].difference == 0.0
    numbers = {one.metric: one.value for one in open_source(second).read_estimates()}
    assert numbers["exact_match.mean"] == 0.75


def test_a_field_missing_in_some_tasks_is_a_note_and_in_all_tasks_an_error(tmp_path: Path) -> None:
    plain = [{"question": row["question"], "answer": row["answer"]} for row in ROWS]
    tasks = [str(write_task(tmp_path, "sums", ROWS)), str(write_task(tmp_path, "plain", plain))]
    first, second = (
        assay.run(
            model=make_model(right_for(*known)), tasks=tasks, no_cache=True, output_path=str(tmp_path / place)
        )
        for known, place in ((range(9), "a"), (range(30), "b"))
    )
    found = assay.compare(first, second, category="kind", cluster_by="text")
    assert {row.category for row in found.categories} == {"odd", "even"}
    assert [row.clusters for row in found.rows] == [10, None]
    assert any("`plain` have no field `kind`" in note for note in found.notes)
    with pytest.raises(UnknownName, match="no field `colour`"):
        assay.compare(first, second, category="colour")


def test_a_single_cluster_gives_no_p_value(runs: Runs) -> None:
    rows = [{**row, "text": "one"} for row in ROWS]
    found = assay.compare(runs(right_for(), rows), runs(right_for(*range(40)), rows), cluster_by="text")
    (row,) = found.rows
    assert (row.low, row.high, row.p_value, row.differs) == (-1.0, 1.0, 1.0, False)
    assert any("one cluster" in note for note in row.notes)
    json.dumps(found.as_json(), allow_nan=False)
