"""Whole runs of tasks in lmms-eval's dialect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.making import ROWS, Function, answer_correctly, make_model, write_choices, write_task

import assay
from assay.core.dialects import Dialect
from assay.core.records.requests import Likelihood, Request
from assay.core.records.responses import LogProbability
from assay.core.records.specs import GroupMetric, GroupSpec
from assay.core.records.verdicts import Estimate
from assay.engine.results.summary import estimate_group

HELPERS = """
import json, random
from pathlib import Path

def judge(doc, results):
    score = float(results[0] == str(doc["answer"]))
    video = f"video {int(doc['answer']) % 2}"
    return {"mine": {"score": score, "video": video, "guess": random.random()}, "extra": 1.0}

def losses(doc, results):
    return {"mine": {"score": float(results[0][0] > 0)}}

def summed(items, args):
    folder = Path(args.output_path) / "submissions"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "guesses.json").write_text(json.dumps([one.get("guess") for one in items]))
    return sum(one["score"] for one in items)
"""
MINE = [{"metric": "mine", "aggregation": Function("utils.summed"), "higher_is_better": True}]


def run(workspace: Path, task: str, answers: Any = answer_correctly, **options: Any) -> assay.Run:
    model = make_model(answers)
    return assay.run(model=model, tasks=[task], include_path=[str(workspace)], no_cache=True, **options)


def likely(request: Request) -> Any:
    """`yes` is always likelier."""
    assert isinstance(request, Likelihood)
    return LogProbability(-0.5 if "yes" in request.continuation else -3.0, False)


def test_the_most_likely_choice_is_the_answer(workspace: Path) -> None:
    write_choices(workspace, dialect="lmms_eval")
    [estimate] = run(workspace, "choices", likely).estimates
    assert estimate.value == 0.5
    assert estimate.plain_stderr == estimate.stderr


def test_a_helper_is_given_losses(workspace: Path) -> None:
    write_choices(
        workspace,
        dialect="lmms_eval",
        helpers=HELPERS,
        process_results=Function("utils.losses"),
        metric_list=MINE,
    )
    [estimate] = run(workspace, "choices", likely).estimates
    assert estimate.value == 4


def test_results_files_and_clusters_of_a_task(workspace: Path) -> None:
    write_task(
        workspace,
        helpers=HELPERS,
        process_results=Function("utils.judge"),
        metric_list=MINE,
        cluster_key="video",
    )

    def answer(request: Request) -> str:
        return f"<think>hm</think> {answer_correctly(request)} " if request.document < 4 else "?"

    done = run(workspace, "sums", answer)
    [estimate] = done.estimates
    assert (estimate.metric, estimate.value, estimate.stderr) == ("mine", 4, None)
    assert estimate.plain_stderr is not None and estimate.clustered_stderr is not None
    [written] = workspace.rglob("guesses.json")
    guesses = json.loads(written.read_text("utf-8"))
    assert len(set(guesses)) == len(ROWS)

    again = run(workspace, "sums", answer, output_path=str(workspace / "again"))
    assert [one.value for one in again.estimates] == [4]
    [other] = (workspace / "again").rglob("guesses.json")
    assert json.loads(other.read_text("utf-8")) == guesses


@pytest.mark.parametrize(("options", "value"), [({}, 1.0), ({"reasoning_tags": "none"}, 0.0)])
def test_reasoning_is_removed_unless_the_run_keeps_it(
    workspace: Path, options: dict[str, Any], value: float
) -> None:
    write_task(workspace, dialect="lmms_eval")
    [estimate] = run(
        workspace, "sums", lambda request: f"<think>hm</think>{answer_correctly(request)}", **options
    ).estimates
    assert estimate.value == value


def test_a_run_can_remove_reasoning_from_any_task(workspace: Path) -> None:
    write_task(workspace)
    [estimate] = run(
        workspace,
        "sums",
        lambda request: f"<t>hm</t>{answer_correctly(request)}",
        reasoning_tags=[["<t>", "</t>"]],
    ).estimates
    assert estimate.value == 1.0


def test_a_group_uses_every_metric_that_contains_the_name_with_equal_weights() -> None:
    def one(task: str, metric: str, value: Any, scored: int, stderr: float | None = 0.1) -> Estimate:
        return Estimate(task=task, metric=metric, pipeline="none", value=value, stderr=stderr, scored=scored)

    by_task = {
        "a": [one("a", "acc", 1.0, 30), one("a", "acc_norm", 0.0, 30), one("a", "f1", 1.0, 30)],
        "b": [
            one("b", "acc", 0.0, 10),
            one("b", "acc_norm", 1.0, 10, None),
            one("b", "acc_by", {"x": 1}, 10),
        ],
    }
    entry = GroupMetric(metric="acc", weight_by_size=False)
    group = GroupSpec(name="g", dialect=Dialect.LMMS_EVAL, members=("a", "b"), metrics=(entry,))
    found = {estimate.metric: estimate for estimate in estimate_group(group, ["a", "b"], by_task)}
    assert set(found) == {"acc", "acc_norm"}
    assert found["acc"].value == 0.5
    pooled = ((29 * 0.01 * 30 + 9 * 0.01 * 10) / 38 / 40) ** 0.5
    assert found["acc"].stderr == pytest.approx(pooled)
    assert found["acc_norm"].stderr is None


def test_a_group_can_aggregate_with_its_own_function() -> None:
    by_task = {
        name: [Estimate(task=name, metric="acc", pipeline="none", value=value, scored=size)]
        for name, value, size in (("a", 0.5, 3), ("b", 1.0, 1))
    }
    entry = GroupMetric(metric="acc", aggregation=lambda values, sizes, weigh: max(values) * sum(sizes))
    group = GroupSpec(name="g", dialect=Dialect.LMMS_EVAL, members=("a", "b"), metrics=(entry,))
    [estimate] = estimate_group(group, ["a", "b"], by_task)
    assert (estimate.value, estimate.stderr) == (4.0, None)


def test_a_group_in_a_task_folder_of_lmms_eval_follows_it(workspace: Path) -> None:
    folder = workspace / "lmms_eval" / "tasks"
    write_task(folder, "short", ROWS[:2])
    write_task(folder, "long", ROWS, doc_to_text="Q: {{question}}")
    config = {
        "group": "both",
        "task": ["short", "long"],
        "aggregate_metric_list": [{"metric": "exact"}],
    }
    (folder / "both.yaml").write_text(yaml.safe_dump(config), "utf-8")

    def answer(request: Request) -> str:
        return answer_correctly(request) if request.task == "short" else "?"

    found = {one.task: one.value for one in run(workspace, "both", answer).estimates}
    assert found == {"short": 1.0, "long": 0.0, "both": 0.5}
