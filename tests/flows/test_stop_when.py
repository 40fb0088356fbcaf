"""Runs that stop when they are sure: fewer documents, the same prompts, and gone on with after a kill."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.flows.running import Bench, contents, kill, wait_until
from tests.making import make_model, write_task, write_texts

import assay
from assay.core.errors import BadOption, UnknownName
from assay.core.responses import Failure

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(600)]


def right_in(share: float, seed: int = 1) -> Callable[[Any], str]:
    """A model that knows this share of the answers, the same ones every time."""
    known = {n for n in range(len(ROWS)) if random.Random(seed * 10_000 + n).random() < share}
    return lambda request: str(request.document + 1) if request.document in known else "?"


def run_of(tmp_path: Path, answers: Any, task: Path, **options: Any) -> Any:
    return assay.run(
        model=make_model(answers),
        tasks=[str(task)],
        no_cache=True,
        output_path=str(tmp_path / "out"),
        **options,
    )


def prompts_of(run: Any) -> dict[int, str]:
    return dict(run.journal.query("SELECT document, prompt FROM requests"))


def test_a_run_stops_when_its_interval_is_narrow_enough(tmp_path: Path) -> None:
    task = write_task(tmp_path, "sums", ROWS)
    run = run_of(tmp_path, right_in(0.9), task, stop_when="ci<=5")
    about = run.facts["stopped"]["sums"]
    assert about["reached"] and about["asked"] < 400
    assert run.estimates[0].scored == about["asked"] == run.tasks["sums"]["documents"]
    assert (about["high"] - about["low"]) / 2 <= 0.05
    whole = run_of(tmp_path, right_in(0.9), task)
    assert about["low"] <= whole.estimates[0].value <= about["high"]
    assert f"{600 - about['asked']} saved" in run.table()
    again = run_of(tmp_path, lambda request: pytest.fail("asked again"), task, stop_when="ci<=5")
    assert again.facts["stopped"] == run.facts["stopped"]


def test_prompts_with_drawn_examples_are_those_of_a_whole_run(tmp_path: Path) -> None:
    task = write_task(tmp_path, "sums", ROWS[:200], num_fewshot=2, fewshot_split="test", fewshot_config={"sampler": "default"})  # fmt: skip
    whole = run_of(tmp_path, lambda request: "?", task)
    some = run_of(tmp_path, lambda request: "?", task, stop_when="ci<=6")
    assert some.facts["stopped"]["sums"]["reached"]
    asked = prompts_of(some)
    assert 32 <= len(asked) < 200
    assert {document: prompts_of(whole)[document] for document in asked} == asked
    assert len(set(asked.values())) == len(asked)


def test_documents_are_drawn_from_all_of_the_dataset_and_the_seed_decides(tmp_path: Path) -> None:
    task = write_task(tmp_path, "sums", ROWS)
    first = run_of(tmp_path, lambda request: "?", task, stop_when="ci<=6")
    other = run_of(tmp_path, lambda request: "?", task, stop_when="ci<=6", seed=7)
    asked, others = sorted(prompts_of(first)), sorted(prompts_of(other))
    assert min(asked) < 100 and max(asked) > 500
    assert asked != others


@pytest.mark.parametrize(("share", "passes"), [(0.95, True), (0.5, False)])
def test_a_gate_stops_as_soon_as_it_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, passes: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    task = write_task(tmp_path, "sums", ROWS)
    baseline = run_of(tmp_path, right_in(0.9), task)
    run = run_of(tmp_path, right_in(share, seed=2), task, stop_when=f"gate:{baseline.folder}>=-8.0")
    about = run.facts["stopped"]["sums"]
    assert about["reached"] and about["asked"] < 600
    assert (about["low"] >= -0.08) == passes
    assert (about["high"] < -0.08) == (not passes)


def test_what_is_not_sure_before_the_last_document_asks_all_and_says_so(tmp_path: Path) -> None:
    task = write_task(tmp_path, "sums", ROWS[:50])
    run = run_of(tmp_path, right_in(0.5), task, stop_when="ci<=0.1")
    assert run.estimates[0].scored == 50
    assert "all 50 documents were asked" in run.table()


def test_a_metric_without_a_mean_of_scores_asks_all(tmp_path: Path) -> None:
    task = write_texts(tmp_path, rows=40)
    from assay.core.responses import LogProbability

    run = run_of(tmp_path, lambda request: LogProbability(-3.0, True), task, stop_when="ci<=5")
    assert run.estimates[0].scored == 40
    assert "stopped" not in run.facts


def test_unanswered_documents_keep_the_interval_wide(tmp_path: Path) -> None:
    def failing(request: Any) -> Any:
        if request.document % 4 == 0:
            return Failure(request_id="", kind="server error", message="down")
        return str(request.document + 1)

    task = write_task(tmp_path, "sums", ROWS[:300])
    run = run_of(tmp_path, failing, task, stop_when="ci<=8", max_failures=1.0)
    about = run.facts["stopped"]["sums"]
    assert about["asked"] == 300
    assert about["high"] - about["low"] == pytest.approx(0.25, abs=0.01)
    mended = run_of(tmp_path, lambda request: str(request.document + 1), task, stop_when="ci<=8")
    assert mended.facts["stopped"]["sums"]["low"] > 0.8


def test_a_baseline_that_is_not_there_or_not_the_same_is_refused(tmp_path: Path) -> None:
    task = write_task(tmp_path, "sums", ROWS[:20])
    with pytest.raises(UnknownName, match="no runs in"):
        run_of(tmp_path, right_in(1.0), task, stop_when="gate:nobody>=-1")
    other = run_of(tmp_path, right_in(1.0), write_task(tmp_path / "b", "sums", ROWS[5:30]))
    with pytest.raises(BadOption, match="other documents"):
        run_of(tmp_path, right_in(1.0), task, stop_when=f"gate:{other.folder}>=-1")


def test_a_run_that_was_killed_asks_the_same_documents_in_the_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    options = [bench.write_tasks(documents=200)[1], "--no_cache", "--stop_when", "ci<=9"]
    whole = bench.finish(bench.command(*options, "--output_path", "whole", delay_ms=1))
    assert whole.returncode == 0, whole.stderr
    assert "saved" in whole.stdout
    expected = contents(bench.run_folder("whole"))
    bench.forget()
    command = bench.command(*options, "--output_path", "stopped")
    process = bench.start(command)
    assert wait_until(lambda: bench.has_asked(90), process)
    kill(process, signal.SIGKILL)
    finished = bench.finish(command)
    assert finished.returncode == 0, finished.stderr
    assert contents(bench.run_folder("stopped")) == expected
