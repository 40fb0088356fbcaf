"""Tests of `summarise`: estimates of tasks and groups."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.making import ROWS, Function, answer_correctly, make_model, write_choices, write_task

import assay
from assay.core.dialects import Dialect
from assay.core.records.requests import Request
from assay.core.records.responses import Failure
from assay.core.records.specs import GroupMetric, GroupSpec
from assay.core.records.verdicts import Estimate
from assay.engine.results.summary import estimate_group
from assay.stats.intervals.confidence_intervals import wilson_interval

FAILED = Failure(request_id="", kind="timeout", message="too slow")


def write_group(folder: Path, name: str, members: list[Any], *metrics: dict[str, Any], **keys: Any) -> None:
    config = {"group": name, "task": members, "aggregate_metric_list": list(metrics) or None, **keys}
    config = {key: value for key, value in config.items() if value is not None}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")


def right_below(limit: int) -> Any:
    def answer(request: Request) -> str:
        said = answer_correctly(request)
        return said if int(said) <= limit else "wrong"

    return answer


def estimate(task: str, metric: str, value: float, scored: int) -> Estimate:
    return Estimate(task=task, metric=metric, pipeline="none", value=value, scored=scored)


def estimates(
    workspace: Path, tasks: list[str], answers: Any = answer_correctly, **options: Any
) -> dict[str, Estimate]:
    run = assay.run(
        model=make_model(answers), tasks=tasks, include_path=[str(workspace)], no_cache=True, **options
    )
    return {f"{one.task} {one.metric},{one.pipeline}": one for one in run.estimates}


def test_a_task_has_a_mean_a_standard_error_and_a_document_count(workspace: Path) -> None:
    write_task(workspace)
    estimate = estimates(workspace, ["sums"], right_below(2))["sums exact_match,none"]
    assert estimate.value == pytest.approx(2 / 6)
    assert estimate.stderr == pytest.approx(math.sqrt((2 / 6) * (4 / 6) / 5))
    assert (estimate.scored, estimate.unscored, estimate.failed) == (6, 0, 0)
    assert estimate.higher_is_better is True


def test_a_group_is_weighted_by_documents_by_default(workspace: Path) -> None:
    write_task(workspace, "short", ROWS[:2])
    write_task(workspace, "long", ROWS)
    members = ["short", "long"]
    write_group(workspace, "weighted", members, {"metric": "exact_match"})
    write_group(workspace, "plain", members, {"metric": "exact_match", "weight_by_size": False})
    found = estimates(workspace, ["weighted", "plain"], right_below(2))
    assert found["weighted exact_match,none"].value == pytest.approx((2 + 2) / 8)
    assert found["plain exact_match,none"].value == pytest.approx((1 + 1 / 3) / 2)
    assert found["weighted exact_match,none"].scored == 8


def test_a_group_counts_failed_documents(workspace: Path) -> None:
    write_task(workspace, "one")
    write_task(
        workspace, "two", [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(10, 13)]
    )
    write_group(workspace, "both", ["one", "two"], {"metric": "exact_match"})

    def mostly(request: Request) -> Any:
        return FAILED if request.document == 0 else answer_correctly(request)

    group = estimates(workspace, ["both"], mostly)["both exact_match,none"]
    assert (group.scored, group.failed, group.value) == (7, 2, 1.0)


def test_a_group_reports_the_pipelines_it_names_and_only_metrics_its_tasks_have(workspace: Path) -> None:
    pipelines = [{"name": name, "filter": [{"function": "take_first"}]} for name in ("strict", "loose")]
    write_task(workspace, "piped", filter_list=pipelines)
    write_choices(workspace)
    write_group(
        workspace, "one", ["piped", "choices"], {"metric": "exact_match", "filter_list": ["strict", "gone"]}
    )
    write_group(workspace, "every", ["piped", "choices"], {"metric": "exact_match"}, {"metric": "f1"})
    from assay.core.records.responses import LogProbability

    found = estimates(
        workspace,
        ["one", "every"],
        lambda request: "1" if hasattr(request, "settings") else LogProbability(-1.0),
    )
    assert [key for key in found if key.startswith("one")] == ["one exact_match,strict"]
    assert [key for key in found if key.startswith("every")] == [
        "every exact_match,loose",
        "every exact_match,strict",
    ]


def test_a_group_of_groups_counts_every_task_once(workspace: Path) -> None:
    write_task(workspace, "a", ROWS[:2])
    write_task(workspace, "b", ROWS)
    write_group(workspace, "inner", ["a", "b"], {"metric": "exact_match"})
    write_group(workspace, "outer", ["inner", "a"], {"metric": "exact_match"})
    found = estimates(workspace, ["outer"], right_below(1))
    assert found["outer exact_match,none"].scored == 8
    assert found["outer exact_match,none"].value == pytest.approx(2 / 8)


def test_a_group_without_metrics_has_no_estimate(workspace: Path) -> None:
    write_task(workspace)
    write_group(workspace, "silent", ["sums"])
    assert list(estimates(workspace, ["silent"])) == ["sums exact_match,none"]


def test_tasks_come_in_the_requested_order_before_groups(workspace: Path) -> None:
    for name in ("z", "a"):
        write_task(workspace, name)
    write_group(workspace, "m", ["z", "a"], {"metric": "exact_match"})
    assert [key.partition(" ")[0] for key in estimates(workspace, ["m"])] == ["z", "a", "m"]


def test_a_task_weighs_as_many_documents_as_its_best_covered_metric() -> None:
    by_task = {
        "a": [estimate("a", "acc", 1.0, 1), estimate("a", "other", 0.0, 6)],
        "b": [estimate("b", "acc", 0.0, 2)],
    }
    group = GroupSpec(name="g", members=("a", "b"), metrics=(GroupMetric(metric="acc"),))
    (found,) = estimate_group(group, ["a", "b"], by_task)
    assert (found.value, found.scored) == (6 / 8, 3)


def test_the_last_definition_of_a_group_metric_applies(workspace: Path) -> None:
    write_task(workspace, "one", ROWS[:2])
    write_task(workspace, "two", ROWS)
    twice = [{"metric": "exact_match", "weight_by_size": sized} for sized in (True, False)]
    write_group(workspace, "both", ["one", "two"], *twice)
    found = estimates(workspace, ["both"], right_below(2))
    assert found["both exact_match,none"].value == pytest.approx((1 + 2 / 6) / 2)


def test_a_metric_matched_by_two_names_of_an_lmms_eval_group_is_pooled_once() -> None:
    by_task = {name: [estimate(name, metric, 1.0, 2) for metric in ("acc", "acc_norm")] for name in "ab"}
    metrics = (GroupMetric(metric="acc"), GroupMetric(metric="acc_norm"))
    group = GroupSpec(name="g", members=("a", "b"), metrics=metrics, dialect=Dialect.LMMS_EVAL)
    assert [one.metric for one in estimate_group(group, ["a", "b"], by_task)] == ["acc", "acc_norm"]


def test_a_failed_group_aggregation_has_no_estimate_and_a_reason(workspace: Path) -> None:
    write_task(workspace, "one", helpers="def pooled(values, sizes, weight_by_size):\n    return 1 / 0\n")
    group = "group: all\ntask: [one]\naggregate_metric_list:\n  - metric: exact_match\n"
    (workspace / "all.yaml").write_text(group + "    aggregation: !function utils.pooled\n", "utf-8")
    found = estimates(workspace, ["all"])["all exact_match,none"]
    assert (found.value, found.stderr, found.scored) == (None, None, 6)
    assert "ZeroDivisionError" in found.why


def test_a_run_can_use_its_own_bootstrap_draws(workspace: Path) -> None:
    metric = {"metric": "exact_match", "aggregation": "median", "higher_is_better": True}
    write_task(workspace, metric_list=[metric])

    def error(**options: Any) -> float:
        run = assay.run(
            model=make_model(right_below(3)), tasks=["sums"], include_path=["."], no_cache=True, **options
        )
        (number,) = run.estimates
        assert number.stderr is not None
        return float(number.stderr)

    theirs, own = error(bootstrap_iters=2000), error(bootstrap_iters=2000, bootstrap_draws="own")
    assert own != theirs
    assert own == pytest.approx(theirs, rel=0.1)


# --- intervals ------------------------------------------------------------------------------------------


def test_few_documents_have_a_wide_interval(workspace: Path) -> None:
    write_task(workspace)
    run = assay.run(model=make_model(), tasks=["sums"], include_path=["."], no_cache=True)
    (number,) = run.estimates
    assert (number.value, number.stderr) == (1.0, 0.0)
    assert number.interval == pytest.approx((0.6097, 1.0), abs=1e-4)
    assert number.interval_method == "wilson"


def test_a_group_has_an_interval_unless_it_has_no_standard_error(workspace: Path) -> None:
    for name in ("a", "b"):
        write_task(workspace, name)
    write_group(workspace, "both", ["a", "b"], {"metric": "exact_match"})
    run = assay.run(model=make_model(right_below(3)), tasks=["both"], include_path=["."], no_cache=True)
    by_name = {number.task: number for number in run.estimates}
    group = by_name["both"]
    assert group.interval is not None and group.interval_method == "stratified"
    assert group.interval[0] < group.value < group.interval[1]
    without = assay.run(
        model=make_model(right_below(3)), tasks=["both"], include_path=["."], no_cache=True, bootstrap_iters=0
    )
    assert all(number.interval is None for number in without.estimates)


def test_clusters_reach_the_interval(workspace: Path) -> None:
    helpers = (
        "def process_results(doc, results):\n"
        "    return {'right': {'score': float(doc['n'] < 30), 'video': doc['n'] // 6}}\n"
        "def mean(values):\n"
        "    return sum(value['score'] for value in values) / len(values)\n"
    )
    rows = [{"n": n, "question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(60)]
    keys: dict[str, Any] = {
        "process_results": Function("utils.process_results"),
        "metric_list": [{"metric": "right", "aggregation": Function("utils.mean"), "higher_is_better": True}],
        "cluster_key": "video",
        "dialect": "lmms_eval",
    }
    write_task(workspace, "videos", rows, helpers=helpers, **keys)
    run = assay.run(model=make_model(), tasks=["videos"], include_path=["."], no_cache=True)
    (number,) = run.estimates
    assert (number.interval_method, number.clusters) == ("clustered", 10)
    found = wilson_interval(5, 10)  # ten clusters that are all right or all wrong are ten documents
    assert number.interval == pytest.approx((found.low, found.high), abs=1e-6)


PASSAGES = [
    {"question": f"What is {n} + 1?", "answer": str(n + 1), "passage": f"text {n // 6}"} for n in range(60)
]


def right_in_even_passages(request: Request) -> str:
    said = answer_correctly(request)
    return said if (int(said) - 1) // 6 % 2 == 0 else "wrong"


def estimate_passages(workspace: Path, **keys: Any) -> Estimate:
    name = "clustered" if "cluster_key" in keys else "plain"
    write_task(workspace, name, PASSAGES, **keys)
    found = estimates(workspace, [name], right_in_even_passages)
    (number,) = found.values()
    return number


def test_the_cluster_key_names_a_column_of_the_documents(workspace: Path) -> None:
    """Plain numbers are clustered too; the standard error stays that of other harnesses."""
    plain = estimate_passages(workspace)
    clustered = estimate_passages(workspace, cluster_key="passage")
    assert (plain.interval_method, plain.clusters) == ("wilson", None)
    assert (clustered.interval_method, clustered.clusters) == ("clustered", 10)
    assert clustered.stderr == plain.stderr
    assert clustered.interval is not None and plain.interval is not None
    assert width(clustered) > 2 * width(plain)


def width(number: Estimate) -> float:
    assert number.interval is not None
    return number.interval[1] - number.interval[0]


def test_a_corpus_metric_is_clustered(workspace: Path) -> None:
    metrics = [{"metric": "chrf", "aggregation": "chrf", "higher_is_better": True}]
    plain = estimate_passages(workspace, metric_list=metrics)
    clustered = estimate_passages(workspace, metric_list=metrics, cluster_key="passage")
    assert "clustered" in clustered.interval_method and "clustered" not in plain.interval_method
    assert width(clustered) > 1.5 * width(plain)


def test_a_group_is_as_unsure_as_its_clustered_tasks(workspace: Path) -> None:
    groups = {}
    for key in (None, "passage"):
        for name in ("a", "b"):
            write_task(workspace, name, PASSAGES, cluster_key=key)
        write_group(workspace, "both", ["a", "b"], {"metric": "exact_match"})
        groups[key] = estimates(workspace, ["both"], right_in_even_passages)["both exact_match,none"]
    assert groups["passage"].interval_method == "stratified, clustered"
    assert width(groups["passage"]) > 1.9 * width(groups[None])


def test_a_single_cluster_has_no_interval(workspace: Path) -> None:
    write_task(workspace, rows=[{**row, "passage": "one"} for row in ROWS], cluster_key="passage")
    number = estimates(workspace, ["sums"], right_below(3))["sums exact_match,none"]
    assert number.interval is None and number.stderr is not None


def test_repeats_are_clustered(workspace: Path) -> None:
    sampled = {"until": ["\n"], "do_sample": True, "temperature": 1.0}
    found = {}
    for key in (None, "passage"):
        name = f"by_{key}"
        write_task(workspace, name, PASSAGES, cluster_key=key, repeats=2, generation_kwargs=sampled)
        model = make_model(right_in_even_passages)
        run = assay.run(model=model, tasks=[name], include_path=[str(workspace)], no_cache=True)
        (facts,) = run.facts["repeats"]
        found[key] = facts["numbers"]["mean"]["interval"]
        assert facts["clusters"] == (10 if key else None)
    assert found["passage"][1] - found["passage"][0] > 2 * (found[None][1] - found[None][0])
