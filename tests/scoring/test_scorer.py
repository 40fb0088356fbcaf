from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.core.errors import ErrorGroup
from assay.core.records.specs import FilterStep, MetricSpec, PipelineSpec, TaskSpec
from assay.core.records.verdicts import Evidence, Score
from assay.scoring.scorer import MetricReport, Scorer

RECORDED: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("recorded_judgements.json").read_text("utf-8")
)
"""What lm-evaluation-harness 0.4.13 made of these answers."""


def make_scorer(*metrics: Any, output_type: Any = "generate_until", **more: Any) -> Scorer:
    specs = [one if isinstance(one, MetricSpec) else MetricSpec(metric=one) for one in metrics]
    return Scorer.from_spec(
        TaskSpec(name="t", path="t.yaml", output_type=output_type, metrics=tuple(specs), **more)
    )


def judge(scorer: Scorer, answer: Any, target: Any, **more: Any) -> dict[str, Any]:
    return scorer.judge(**{"fields": {}, "answers": [answer], "target": target, "choices": None, **more})


def plain(value: Any) -> Any:
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize(
    "row", RECORDED, ids=[f"{place}-{row['output_type']}" for place, row in enumerate(RECORDED)]
)
def test_a_document_is_judged_as_published(row: dict[str, Any]) -> None:
    metrics = [MetricSpec(metric=name, arguments=arguments) for name, arguments in row["metrics"]]
    raw = make_scorer(*metrics, output_type=row["output_type"]).judge(
        fields={},
        answers=row["answers"],
        target=row["target"],
        choices=row["choices"],
        multiple_inputs=row["multiple_inputs"],
        multiple_targets=row["multiple_targets"],
        question=row["question"],
    )
    assert list(raw) == list(row["raw"])
    for name, expected in row["raw"].items():
        if name == "brier_score":  # NumPy's exp may differ in the last bit between machines
            assert raw[name][0] == expected[0]
            assert raw[name][1] == pytest.approx(expected[1], rel=1e-14)
        else:
            assert plain(raw[name]) == expected


@pytest.mark.parametrize(
    ("output_type", "expected"),
    [
        ("multiple_choice", ["acc", "acc_norm"]),
        ("loglikelihood", ["perplexity", "acc"]),
        ("loglikelihood_rolling", ["word_perplexity", "byte_perplexity", "bits_per_byte"]),
        ("generate_until", ["exact_match"]),
        ("generate_until_multi_round", ["exact_match"]),
    ],
)
def test_a_task_without_metrics_gets_those_of_its_kind(output_type: str, expected: list[str]) -> None:
    scorer = make_scorer(output_type=output_type)
    assert list(scorer.metrics) == expected
    assert [pipeline.name for pipeline in scorer.pipelines] == ["none"]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ErrorGroup) as caught:
        make_scorer(
            MetricSpec(metric="exact_macth", where="t.yaml:9"),
            MetricSpec(metric="acc", aggregation="maen", where="t.yaml:10"),
            MetricSpec(metric="exact_match", arguments={"ignore_caes": True}, where="t.yaml:11"),
            pipelines=(PipelineSpec(name="p", steps=(FilterStep(function="regx", where="t.yaml:5"),)),),
        )
    problems = {problem.where: str(problem) for problem in caught.value.errors}
    assert list(problems) == ["t.yaml:5", "t.yaml:9", "t.yaml:10", "t.yaml:11"]
    assert "did you mean `exact_match`" in problems["t.yaml:9"]
    assert "did you mean `mean`" in problems["t.yaml:10"]
    assert "`ignore_caes`" in problems["t.yaml:11"]


def test_arguments_nobody_reads_do_no_harm() -> None:
    entry = MetricSpec(metric="f1", arguments={"average": "macro", "hf_evaluate": True})
    assert list(make_scorer(entry, output_type="multiple_choice").metrics) == ["f1"]


def test_the_task_file_outdoes_the_metric() -> None:
    entry = MetricSpec(metric="acc", aggregation="median", higher_is_better=False, where="t.yaml:3")
    scorer = make_scorer(entry, "ter", output_type="multiple_choice")
    assert scorer.metrics["acc"] == MetricReport("median", False, "t.yaml:3")
    assert scorer.metrics["ter"] == MetricReport("ter", False, "t.yaml, metric_list")


def test_a_task_may_judge_by_itself() -> None:
    def process_results(fields: dict[str, Any], results: list[Any]) -> dict[str, Any]:
        return {"mine": float(results[0] == fields["gold"]), "detail": {"said": results}}

    scorer = make_scorer("mine", "other", process_results=process_results, output_type="multiple_choice")
    raw = scorer.judge(fields={"gold": "x"}, answers=("x", "y"), target=None, choices=None)
    assert raw == {"mine": 1.0, "detail": {"said": ["x", "y"]}}
    assert scorer.find_report("mine").aggregation == "mean"
    assert scorer.find_report("detail") == MetricReport("mean", None, "")


def keyword_metric(predictions: list[str], references: list[str], bonus: float = 0.0) -> float:
    return float(predictions[0] == references[0]) + bonus


def pair_metric(items: list[str]) -> float:
    return float(items[0] == items[1])


def broken_metric(references: list[Any], predictions: list[Any]) -> Any:
    return references[0] + 1


def many_metric(references: list[str], predictions: list[str]) -> dict[str, float]:
    return {"pass@1": 1.0, "pass@2": 0.5}


def test_a_function_is_called_as_its_signature_says() -> None:
    scorer = make_scorer(MetricSpec(metric=keyword_metric, arguments={"bonus": 0.5}), pair_metric)
    assert judge(scorer, "a", "a") == {"keyword_metric": 1.5, "pair_metric": 1.0}


def test_an_error_inside_a_metric_is_not_hidden() -> None:
    with pytest.raises(TypeError, match="concatenate"):
        judge(make_scorer(broken_metric), "a", "a")


def test_new_keys_are_reported_as_the_metric_they_came_from() -> None:
    scorer = make_scorer(
        "exact_match", MetricSpec(metric=many_metric, aggregation="median", higher_is_better=True)
    )
    assert scorer.find_report("pass@1").aggregation == "median", "also before anything was judged"
    assert judge(scorer, "a", "b") == {"exact_match": 0.0, "pass@1": 1.0, "pass@2": 0.5}
    assert scorer.metrics["pass@2"].aggregation == "median"
    assert scorer.metrics["pass@2"].higher_is_better is True


def test_the_best_of_several_targets_counts_for_anls() -> None:
    raw = judge(
        make_scorer("anls", "exact_match"), "Berne", ["Basel", "Bern", "berne"], multiple_targets=True
    )
    assert raw == {"anls": 1.0, "exact_match": 0.0}


def test_an_entry_given_twice_is_one() -> None:
    twice = make_scorer("exact_match", MetricSpec(metric="exact_match", arguments={"ignore_case": True}))
    assert judge(twice, "A", "a") == {"exact_match": 1.0}


@pytest.mark.parametrize("target", [None, 1.5, [0], -9])
def test_a_target_that_is_no_choice_is_an_error(target: Any) -> None:
    scorer = make_scorer("acc", output_type="multiple_choice")
    with pytest.raises(ValueError, match="is not an index of the 2 choices"):
        scorer.judge(fields={}, answers=[(-1.0, True), (-2.0, False)], target=target, choices=["a", "b"])


def test_a_target_outside_the_choices_is_never_right_and_said(caplog: pytest.LogCaptureFixture) -> None:
    scorer = make_scorer("acc", output_type="multiple_choice")
    raw = scorer.judge(fields={}, answers=[(-1.0, True), (-2.0, False)], target="c", choices=["a", "b"])
    assert raw == {"acc": 0.0}
    assert "'c' is not one of the 2 choices" in caplog.text


def test_each_choice_needs_its_log_probability() -> None:
    scorer = make_scorer("acc", output_type="multiple_choice")
    with pytest.raises(ValueError, match="2 log-probabilities for 3 choices"):
        scorer.judge(fields={}, answers=[(-1.0, True), (-2.0, False)], target=0, choices=["a", "b", "c"])


@pytest.mark.parametrize("value", [True, 3, 0.5, math.inf, np.float64(0.5), np.int64(2), np.bool_(True)])
def test_a_number_is_a_score(value: Any) -> None:
    (verdict,) = make_scorer("acc").to_verdicts(7, "none", {"acc": value})
    assert verdict == Score(document=7, metric="acc", pipeline="none", value=value)
    assert type(verdict.value) in {bool, int, float}


@pytest.mark.parametrize(
    "value", [math.nan, None, "text", (1, 0), [0.5], {"score": 1.0}, np.array([1.0, 2.0])]
)
def test_anything_else_is_evidence(value: Any) -> None:
    (verdict,) = make_scorer("acc").to_verdicts(7, "none", {"acc": value})
    assert isinstance(verdict, Evidence)
    assert verdict.value is value
