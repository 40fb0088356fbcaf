"""Judging as lmms-eval does it."""

from __future__ import annotations

from typing import Any

import pytest

from assay.core.dialects import Dialect
from assay.core.errors import ErrorGroup, TaskError
from assay.core.records.specs import FilterStep, MetricSpec, PipelineSpec, TaskSpec
from assay.scoring.lmms_eval import resolve_reasoning_tags
from assay.scoring.scorer import Scorer

EXACT = (MetricSpec(metric="exact_match", aggregation="mean"),)


def spec(**fields: Any) -> TaskSpec:
    return TaskSpec(**{"name": "t", "dialect": "lmms_eval", "metrics": EXACT, **fields})


def answers(scorer: Scorer, *responses: Any) -> list[Any]:
    return scorer.pipelines[0].apply([list(responses)], [{}])


@pytest.mark.parametrize(
    ("fields", "run", "expected"),
    [
        ({}, None, Dialect.LMMS_EVAL.default_reasoning_tags),
        ({"dialect": "lm_eval"}, None, ()),
        ({"dialect": "lm_eval"}, (("<t>", "</t>"),), (("<t>", "</t>"),)),
        ({}, (), ()),
        ({"reasoning_tags": "none"}, (("<t>", "</t>"),), ()),
        ({"reasoning_tags": [["<t>", "</t>"]]}, (), (("<t>", "</t>"),)),
    ],
)
def test_the_task_then_the_run_then_the_dialect_say_what_thoughts_are(
    fields: Any, run: Any, expected: Any
) -> None:
    assert resolve_reasoning_tags(spec(**fields), run) == expected


def test_tags_that_are_no_pairs_are_refused() -> None:
    with pytest.raises(TaskError, match="invalid reasoning tags"):
        resolve_reasoning_tags(spec(reasoning_tags=["<think>"]))
    with pytest.raises(ErrorGroup, match="invalid reasoning tags"):
        Scorer.from_spec(spec(reasoning_tags="<think>"))


def test_thoughts_are_cut_out_after_the_filters() -> None:
    assert answers(Scorer.from_spec(spec()), "<think>A or B</think> B") == ["B"]
    assert answers(Scorer.from_spec(spec(), tags=()), "<think>A</think> B") == ["<think>A</think> B"]
    several = PipelineSpec(name="k", steps=(FilterStep(function="take_first_k", arguments={"k": 2}),))
    kept = answers(Scorer.from_spec(spec(pipelines=(several,))), "<think>x</think>1", "2")
    assert kept == [["1", "2"]]


def test_thoughts_are_cut_out_before_the_filters_where_the_task_says_so() -> None:
    regex = PipelineSpec(
        name="r",
        steps=(
            FilterStep(function="regex", arguments={"regex_pattern": "([A-D])"}),
            FilterStep(function="take_first"),
        ),
    )
    fields: dict[str, Any] = {"pipelines": (regex,), "reasoning_tags": "none"}
    assert answers(Scorer.from_spec(spec(**fields)), "<think>A</think> B") == ["A"]
    assert answers(Scorer.from_spec(spec(**fields, auto_strip_thinking=True)), "<think>A</think> B") == ["B"]


def score_answers(scorer: Scorer, given: list[Any], target: Any, **more: Any) -> dict[str, Any]:
    return scorer.judge(fields={}, answers=given, target=target, choices=more.pop("choices", None), **more)


def test_answers_are_stripped_and_a_missing_one_is_empty() -> None:
    scorer = Scorer.from_spec(spec(process_results=lambda doc, results: {"seen": results}))
    assert score_answers(scorer, [" a "], None) == {"seen": ["a"]}
    assert score_answers(scorer, [None], None) == {"seen": [""]}
    assert score_answers(scorer, [["a ", " b"]], None) == {"seen": ["a", "b"]}


def test_any_of_several_targets_will_do() -> None:
    scorer = Scorer.from_spec(spec())
    assert score_answers(scorer, ["b"], ["a", "b"], multiple_targets=True) == {"exact_match": 1.0}
    assert score_answers(scorer, ["c"], ["a", "b"], multiple_targets=True) == {"exact_match": 0.0}


def test_of_choices_the_one_with_the_smallest_loss_is_the_answer() -> None:
    scorer = Scorer.from_spec(spec(output_type="multiple_choice", metrics=(MetricSpec(metric="acc"),)))
    found = score_answers(scorer, [(2.0, False), (0.5, True)], 1, choices=["no", "yes"])
    assert found == {"acc": 1.0}


def test_helpers_get_losses() -> None:
    def process(doc: Any, results: Any) -> dict[str, Any]:
        return {"loss": results[0][0]}

    scorer = Scorer.from_spec(spec(output_type="multiple_choice", process_results=process))
    assert score_answers(scorer, [(2.0, False)], None) == {"loss": 2.0}


def test_only_listed_metrics_are_reported() -> None:
    assert not Scorer.from_spec(spec()).is_reported("other")
    assert Scorer.from_spec(spec(dialect="lm_eval")).is_reported("other")


def test_corpus_metrics_get_lists_of_references_and_answers() -> None:
    scorer = Scorer.from_spec(spec(metrics=(MetricSpec(metric="bleu"),)))
    assert scorer.judge(fields={}, answers=["b "], target="a", choices=None) == {"bleu": [["a"], ["b"]]}


def test_an_aggregation_of_a_metric_that_is_never_returned_may_be_unknown() -> None:
    metrics = (*EXACT, MetricSpec(metric="never", aggregation="mean_last30"))
    Scorer.from_spec(spec(metrics=metrics, process_results=lambda doc, results: {"exact_match": 1.0}))
    with pytest.raises(ErrorGroup, match="mean_last30"):
        Scorer.from_spec(spec(metrics=(MetricSpec(metric="exact_match", aggregation="mean_last30"),)))
