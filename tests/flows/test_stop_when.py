"""Runs with a stop rule: fewer documents, the same prompts, and resumable after a kill."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.flows.running import CommandRunner, kill, read_tables, wait_until
from tests.making import Function, make_model, write_task, write_texts

import assay
from assay.api import verify
from assay.core.errors import InvalidOption, UnknownName
from assay.core.records.responses import Failure, LogProbability

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(600)]


def answer_with_accuracy(share: float, seed: int = 1) -> Callable[[Any], str]:
    """Return answers of which a fixed share is correct."""
    known = {n for n in range(len(ROWS)) if random.Random(seed * 10_000 + n).random() < share}
    return lambda request: str(request.document + 1) if request.document in known else "?"


def run_task(tmp_path: Path, answers: Any, task: Path, **options: Any) -> Any:
    return assay.run(
        model=make_model(answers),
        tasks=[str(task)],
        no_cache=True,
        output_path=str(tmp_path / "out"),
        **options,
    )


def read_prompts(run: Any) -> dict[int, str]:
    return dict(run.journal.query("SELECT document, prompt FROM requests"))


def test_a_run_stops_when_its_interval_is_narrow_enough(tmp_path: Path) -> None:
    task = write_task(tmp_path, "sums", ROWS)
    run = run_task(tmp_path, answer_with_accuracy(0.9), task, stop_when="ci<=5")
    about = run.facts["stopped"]["sums"]
    assert about["reached"] and about["asked"] < 400
    assert run.estimates[0].scored == about["asked"] == run.tasks["sums"]["documents"]
    assert (about["high"] - about["low"]) / 2 <= 0.05
    whole = run_task(tmp_path, answer_with_accuracy(0.9), task)
    assert about["low"] <= whole.estimates[0].value <= about["high"]
    assert f"{600 - about['asked']} not asked" in run.table()
    again = run_task(tmp_path, lambda request: pytest.fail("asked again"), task, stop_when="ci<=5")
    assert again.facts["stopped"] == run.facts["stopped"]


def test_sampled_few_shot_examples_match_those_of_a_complete_run(tmp_path: Path) -> None:
    task = write_task(tmp_path, "sums", ROWS[:200], num_fewshot=2, fewshot_split="test", fewshot_config={"sampler": "default"})  # fmt: skip
    whole = run_task(tmp_path, lambda request: "?", task)
    some = run_task(tmp_path, lambda request: "?", task, stop_when="ci<=6")
    assert some.facts["stopped"]["sums"]["reached"]
    asked = read_prompts(some)
    assert 32 <= len(asked) < 200
    assert {document: read_prompts(whole)[document] for document in asked} == asked
    assert len(set(asked.values())) == len(asked)


def test_documents_are_sampled_from_the_whole_dataset_by_seed(tmp_path: Path) -> None:
    task = write_task(tmp_path, "sums", ROWS)
    first = run_task(tmp_path, lambda request: "?", task, stop_when="ci<=6")
    other = run_task(tmp_path, lambda request: "?", task, stop_when="ci<=6", seed=7)
    asked, others = sorted(read_prompts(first)), sorted(read_prompts(other))
    assert min(asked) < 100 and max(asked) > 500
    assert asked != others


@pytest.mark.parametrize(("share", "passes"), [(0.95, True), (0.5, False)])
def test_a_gate_stops_as_soon_as_the_outcome_is_certain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, passes: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    task = write_task(tmp_path, "sums", ROWS)
    baseline = run_task(tmp_path, answer_with_accuracy(0.9), task)
    run = run_task(
        tmp_path, answer_with_accuracy(share, seed=2), task, stop_when=f"gate:{baseline.folder}>=-8.0"
    )
    about = run.facts["stopped"]["sums"]
    assert about["reached"] and about["asked"] < 600
    assert (about["low"] >= -0.08) == passes
    assert (about["high"] < -0.08) == (not passes)


def test_an_undecided_run_uses_all_documents_and_says_so(tmp_path: Path) -> None:
    task = write_task(tmp_path, "sums", ROWS[:50])
    run = run_task(tmp_path, answer_with_accuracy(0.5), task, stop_when="ci<=0.1")
    assert run.estimates[0].scored == 50
    assert "asked all 50 documents" in run.table()


def test_a_task_without_a_mean_score_runs_to_the_end_and_gives_the_reason(tmp_path: Path) -> None:
    texts, sums = write_texts(tmp_path, rows=40), write_task(tmp_path, "sums", ROWS)

    def answer(request: Any) -> Any:
        return "?" if request.task == "sums" else LogProbability(-3.0, True)

    options: dict[str, Any] = {"no_cache": True, "output_path": str(tmp_path / "out"), "stop_when": "ci<=5"}
    model = make_model(answer)
    plan = assay.plan(model=model, tasks=[str(texts), str(sums)], **options)
    assert any(note.startswith("texts: --stop_when does not apply: ") for note in plan.notes)
    assert "--stop_when watches exact_match of sums" in plan.notes
    run = assay.run(model=model, tasks=[str(texts), str(sums)], **options)
    assert run.facts["stopped"]["sums"]["reached"]
    why = run.facts["stopped"]["texts"]["why_not"]
    assert why and f"texts: asked all 40 documents: {why}" in run.table()
    with pytest.raises(InvalidOption, match="the rule applies to no task: texts"):
        run_task(tmp_path, answer, texts, stop_when="ci<=5")


TWO_METRICS = """
def judged(doc, results):
    right = float(results[0].strip() == doc["answer"])
    return {"stars": 1 + 4 * right, "error": 1 - right}
"""


def write_stars(folder: Path) -> Path:
    metrics = [
        {"metric": "stars", "aggregation": "mean", "higher_is_better": True},
        {"metric": "error", "aggregation": "mean", "higher_is_better": False},
    ]
    judged = Function("utils.judged")
    return write_task(folder, "sums", ROWS, process_results=judged, metric_list=metrics, helpers=TWO_METRICS)


def test_the_stop_rule_can_use_another_metric(tmp_path: Path) -> None:
    run = run_task(tmp_path, answer_with_accuracy(0.9), write_stars(tmp_path), stop_when="error: ci<=5")
    about = run.facts["stopped"]["sums"]
    assert about["metric"] == "error" and about["reached"]
    assert about["low"] <= 0.1 <= about["high"]
    with pytest.raises(InvalidOption, match="no metric `acc`"):
        run_task(tmp_path, answer_with_accuracy(0.9), write_stars(tmp_path), stop_when="acc: ci<=5")


def test_a_given_range_is_the_scale_of_the_scores(tmp_path: Path) -> None:
    task = write_stars(tmp_path)
    unsaid = run_task(tmp_path, answer_with_accuracy(0.9), task, stop_when="ci<=5")
    assert unsaid.facts["stopped"]["sums"]["asked"] == 600
    assert 'stars: ci<=5 in LOW..HIGH" says what they are between' in unsaid.table()
    said = run_task(tmp_path, answer_with_accuracy(0.9), task, stop_when="stars: ci<=5 in 1..5")
    about = said.facts["stopped"]["sums"]
    assert about["reached"] and about["asked"] < 400
    assert about["high"] - about["low"] <= 2 * 0.05 * 4 + 1e-9
    assert about["low"] <= 1 + 4 * 0.9 <= about["high"]


@pytest.mark.parametrize(("share", "passes"), [(0.95, True), (0.5, False)])
def test_a_gate_requires_a_lower_score_if_lower_is_better(tmp_path: Path, share: float, passes: bool) -> None:
    task = write_stars(tmp_path)
    baseline = run_task(tmp_path, answer_with_accuracy(0.9), task)
    rule = f"error: gate:{baseline.folder}>=-8.0"
    about = run_task(tmp_path, answer_with_accuracy(share, seed=2), task, stop_when=rule).facts["stopped"][
        "sums"
    ]
    assert about["reached"] and about["asked"] < 600
    assert (about["low"] >= -0.08) == passes


def test_unanswered_documents_keep_the_interval_wide(tmp_path: Path) -> None:
    def failing(request: Any) -> Any:
        if request.document % 4 == 0:
            return Failure(request_id="", kind="server error", message="down")
        return str(request.document + 1)

    task = write_task(tmp_path, "sums", ROWS[:300])
    run = run_task(tmp_path, failing, task, stop_when="ci<=8", max_failures=1.0)
    about = run.facts["stopped"]["sums"]
    assert about["asked"] == 300
    assert about["high"] - about["low"] == pytest.approx(0.25, abs=0.01)
    mended = run_task(tmp_path, lambda request: str(request.document + 1), task, stop_when="ci<=8")
    assert mended.facts["stopped"]["sums"]["low"] > 0.8


def test_a_missing_or_different_baseline_is_an_error(tmp_path: Path) -> None:
    task = write_task(tmp_path, "sums", ROWS[:20])
    with pytest.raises(UnknownName, match="no runs in"):
        run_task(tmp_path, answer_with_accuracy(1.0), task, stop_when="gate:nobody>=-1")
    other = run_task(tmp_path, answer_with_accuracy(1.0), write_task(tmp_path / "b", "sums", ROWS[5:30]))
    with pytest.raises(InvalidOption, match="other documents"):
        run_task(tmp_path, answer_with_accuracy(1.0), task, stop_when=f"gate:{other.folder}>=-1")


def test_a_killed_run_ends_with_the_same_documents(tmp_path: Path) -> None:
    runner = CommandRunner(tmp_path)
    options = [runner.write_tasks(documents=200)[1], "--no_cache", "--stop_when", "ci<=9"]
    whole = runner.finish(runner.build_command(*options, "--output_path", "whole", delay_ms=1))
    assert whole.returncode == 0, whole.stderr
    assert "not asked" in whole.stdout
    expected = read_tables(runner.find_run_folder("whole"))
    runner.clear_logs()
    command = runner.build_command(*options, "--output_path", "stopped")
    process = runner.start(command)
    assert wait_until(lambda: runner.has_requests(90), process)
    kill(process, signal.SIGKILL)
    finished = runner.finish(command)
    assert finished.returncode == 0, finished.stderr
    assert read_tables(runner.find_run_folder("stopped")) == expected


def test_clustered_documents_are_asked_in_whole_clusters(tmp_path: Path) -> None:
    """Passages of one to seven questions; a model reads a passage right or wrong."""
    passages = [f"p{n}" for n in range(150) for _ in range(1 + n % 7)]
    rows = [{**row, "passage": {"id": name}} for row, name in zip(ROWS, passages, strict=False)]
    misread = {f"p{n}" for n in range(150) if random.Random(n).random() < 0.1}

    def answer(request: Any) -> str:
        return "?" if passages[request.document] in misread else str(request.document + 1)

    task = write_task(tmp_path, "sums", rows, cluster_key="passage.id")
    plan = assay.plan(model=make_model(answer), tasks=[str(task)], stop_when="ci<=12")
    assert any(
        "watches exact_match of sums, in whole clusters of `passage.id`" in note for note in plan.notes
    )
    run = run_task(tmp_path, answer, task, stop_when="ci<=12")
    about = run.facts["stopped"]["sums"]
    assert about["reached"] and about["asked"] < len(rows)
    asked = set(read_prompts(run))
    complete = {passages[one] for one in asked}
    assert asked == {index for index in range(len(rows)) if passages[index] in complete}
    assert (about["clusters"], about["clusters_asked"]) == (len(set(passages[:600])), len(complete))
    assert about["method"] == "betting, whole clusters"
    assert f"in {len(complete)} of {about['clusters']} clusters" in " ".join(run.table().split())
    whole = run_task(tmp_path, answer, task)
    assert about["low"] <= whole.estimates[0].value <= about["high"]


def test_a_stop_rule_applies_to_the_documents_that_the_run_selects(tmp_path: Path) -> None:
    task = write_task(tmp_path, "sums", ROWS)
    run = run_task(tmp_path, lambda request: "?", task, stop_when="ci<=6", offset=300, limit=200)
    about = run.facts["stopped"]["sums"]
    assert about["reached"] and about["documents"] == 200
    assert 32 <= len(read_prompts(run)) == about["asked"] and min(read_prompts(run)) >= 300


def test_documents_that_a_stop_rule_left_out_are_not_new(tmp_path: Path) -> None:
    task = write_task(tmp_path, "sums", ROWS)
    run = assay.run(
        model="oracle", tasks=[str(task)], no_cache=True, output_path=str(tmp_path / "out"), stop_when="ci<=6"
    )
    assert run.facts["stopped"]["sums"]["asked"] < len(ROWS)
    assert verify(run).changes == ()
