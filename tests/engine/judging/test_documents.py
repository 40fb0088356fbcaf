"""`judge`: a document's responses to answers to verdicts, whatever the task's own code does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.making import Function, make_model, plan_run, write_choices, write_task, write_texts

from assay.core.records.responses import Failure, LogProbability, Outcome, Response, Usage
from assay.core.records.verdicts import Score, Unscored
from assay.engine.judging.documents import judge_documents, list_scores
from assay.engine.open_document import JudgedBatch, OpenDocument
from assay.engine.planning.records import PlannedTask


def plan_task(path: Path) -> PlannedTask:
    (task,) = plan_run(make_model(), tasks=[str(path)]).tasks.values()
    return task


def make_documents(task: PlannedTask, values: Sequence[Sequence[Any]]) -> list[OpenDocument]:
    """The task's documents, each with these values for its requests."""
    opened = []
    for (document, requests), given in zip(task.task.render(), values, strict=False):
        outcomes: list[Outcome | None] = [
            value if isinstance(value, Failure) else Response(request_id=request.id, value=value)
            for request, value in zip(requests, given, strict=True)
        ]
        opened.append(OpenDocument(document, requests, ("",) * len(requests), outcomes, 0))
    return opened


def read_scores(judged: JudgedBatch) -> dict[tuple[int, str, str], Any]:
    return {
        (verdict.document, verdict.pipeline, verdict.metric): verdict.value
        for verdict in judged.verdicts
        if isinstance(verdict, Score)
    }


FAILED = Failure(request_id="", kind="timeout", message="no answer in 120 s")


def test_correct_and_wrong_answers_are_scored(workspace: Path) -> None:
    task = plan_task(write_task(workspace))
    judged = judge_documents(task, make_documents(task, [["1"], ["7"]]))
    assert read_scores(judged) == {(0, "none", "exact_match"): 1.0, (1, "none", "exact_match"): 0.0}
    assert judged.outcomes == [(0, "scored", ""), (1, "scored", "")]
    assert [answer.values for answer in judged.answers] == [("1",), ("7",)]


def test_a_failed_request_fails_only_its_document(workspace: Path) -> None:
    task = plan_task(write_choices(workspace))
    good = [LogProbability(-1.0), LogProbability(-2.0)]
    judged = judge_documents(task, make_documents(task, [[good[0], FAILED], good]))
    assert judged.outcomes == [(0, "failed", "timeout: no answer in 120 s"), (1, "scored", "")]
    assert {document for document, _, _ in read_scores(judged)} == {1}


def test_repeats_are_filtered_together_and_choices_separately(workspace: Path) -> None:
    path = write_task(
        workspace,
        repeats=3,
        filter_list=[
            {"name": "first", "filter": [{"function": "take_first"}]},
            {"name": "vote", "filter": [{"function": "majority_vote"}, {"function": "take_first"}]},
        ],
    )
    task = plan_task(path)
    judged = judge_documents(task, make_documents(task, [["7", "1", "1"], ["2", "2", "7"]]))
    assert read_scores(judged) == {
        (0, "first", "exact_match"): 0.0,
        (0, "vote", "exact_match"): 1.0,
        (1, "first", "exact_match"): 1.0,
        (1, "vote", "exact_match"): 1.0,
    }
    assert all(len(answer.values) == 1 for answer in judged.answers)


def test_likelihoods_reach_filters_as_lm_eval_gives_them(workspace: Path) -> None:
    helpers = "def results(doc, results):\n    assert results == [(-1.0, True), (-2.0, False)], results\n    return {'acc': 1}\n"
    task = plan_task(write_choices(workspace, helpers=helpers, process_results=Function("utils.results")))
    judged = judge_documents(task, make_documents(task, [[LogProbability(-1.0, True), LogProbability(-2.0)]]))
    assert read_scores(judged) == {(0, "none", "acc"): 1}
    helpers = "def results(doc, results):\n    assert results == [-3.0], results\n    return {'word_perplexity': 1}\n"
    task = plan_task(
        write_texts(
            workspace / "texts",
            helpers=helpers,
            process_results=Function("utils.results"),
            metric_list=[{"metric": "word_perplexity"}],
        )
    )
    assert read_scores(judge_documents(task, make_documents(task, [[LogProbability(-3.0)]])))


def test_helper_code_that_raises_leaves_its_document_unscored_with_the_traceback(workspace: Path) -> None:
    helpers = "def results(doc, results):\n    return {'exact_match': 1 / (int(doc['answer']) - 2)}\n"
    task = plan_task(write_task(workspace, helpers=helpers, process_results=Function("utils.results")))
    judged = judge_documents(task, make_documents(task, [["x"], ["x"], ["x"]]))
    assert [outcome for _, outcome, _ in judged.outcomes] == ["scored", "unscored", "scored"]
    (unscored,) = [verdict for verdict in judged.verdicts if isinstance(verdict, Unscored)]
    assert (unscored.document, unscored.metric, unscored.pipeline) == (1, "exact_match", "none")
    assert "ZeroDivisionError" in unscored.why
    assert "utils.py" in unscored.why
    assert judged.outcomes[1][2] == unscored.why


def test_a_target_that_cannot_be_rendered_leaves_its_document_unscored(workspace: Path) -> None:
    helpers = "def target(doc):\n    return {'1': '1'}[doc['answer']]\n"
    task = plan_task(write_task(workspace, helpers=helpers, doc_to_target=Function("utils.target")))
    judged = judge_documents(task, make_documents(task, [["1"], ["2"]]))
    assert [outcome for _, outcome, _ in judged.outcomes] == ["scored", "unscored"]


FUSSY = """
class Fussy:
    def apply(self, resps, docs):
        seen = [values[0] for values in resps]
        if "bad" in seen:
            raise ValueError("a bad answer")
        return seen
"""


def plan_fussy_task(folder: Path, *, per_document: bool) -> PlannedTask:
    steps = [{"function": Function("utils.Fussy")}]
    task = plan_task(write_task(folder, helpers=FUSSY, filter_list=[{"name": "fussy", "filter": steps}]))
    task.scorer.pipelines = (replace(task.scorer.pipelines[0], per_document=per_document),)
    return task


def test_a_filter_that_raises_affects_only_its_document(workspace: Path) -> None:
    task = plan_fussy_task(workspace, per_document=True)
    judged = judge_documents(task, make_documents(task, [["1"], ["bad"], ["3"]]))
    assert [outcome for _, outcome, _ in judged.outcomes] == ["scored", "unscored", "scored"]
    assert read_scores(judged) == {(0, "fussy", "exact_match"): 1.0, (2, "fussy", "exact_match"): 1.0}


def test_a_cross_document_filter_that_raises_leaves_all_documents_unscored(workspace: Path) -> None:
    task = plan_fussy_task(workspace, per_document=False)
    judged = judge_documents(task, make_documents(task, [["1"], ["bad"], ["3"]]))
    assert [outcome for _, outcome, _ in judged.outcomes] == ["unscored"] * 3
    assert all("a bad answer" in verdict.why for verdict in judged.verdicts if isinstance(verdict, Unscored))
    assert len(judged.verdicts) == 3, "each document counts as unscored under its metric"


def test_answers_are_stored_without_scoring(workspace: Path) -> None:
    task = plan_task(write_task(workspace))
    judged = judge_documents(task, make_documents(task, [["1"], [FAILED]]), score=False)
    assert judged.verdicts == []
    assert [answer.values for answer in judged.answers] == [("1",)]
    assert sorted(judged.outcomes) == [
        (0, "skipped", ""),
        (1, "failed", "timeout: no answer in 120 s"),
    ]


def test_helper_code_can_modify_its_copy_of_a_document(workspace: Path) -> None:
    helpers = "def results(doc, results):\n    doc.clear()\n    return {'exact_match': 1.0}\n"
    steps = [{"name": name, "filter": [{"function": "take_first"}]} for name in ("one", "two")]
    path = write_task(
        workspace, helpers=helpers, process_results=Function("utils.results"), filter_list=steps
    )
    task = plan_task(path)
    opened = make_documents(task, [["1"]])
    judge_documents(task, opened)
    assert opened[0].document.fields["answer"] == "1"


def test_the_progress_score_covers_one_metric_and_one_pipeline() -> None:
    def score(document: int, metric: str, pipeline: str, value: float) -> Score:
        return Score(document=document, metric=metric, pipeline=pipeline, value=value)

    judged = JudgedBatch(
        verdicts=[score(0, "acc", "none", 1.0), score(0, "acc", "other", 0.0), score(0, "f1", "none", 0.5)]
    )
    assert list_scores(judged, "none", "acc") == [1.0]


def test_reasoning_that_hits_the_token_limit_is_never_scored(workspace: Path) -> None:
    task = plan_task(write_task(workspace))
    documents = make_documents(task, [[""], [""]])
    for document, finish in zip(documents, ("length", "stop"), strict=True):
        (response,) = document.outcomes
        assert isinstance(response, Response)
        document.outcomes[0] = replace(response, finish=finish, reasoning="so it is 1")  # type: ignore[arg-type]
    judged = judge_documents(task, documents)
    assert judged.outcomes == [
        (0, "truncated", "the token limit ended the reasoning; there is no answer"),
        (1, "empty", "the response consists of reasoning; there is no answer"),
    ]
    assert [type(verdict) for verdict in judged.verdicts] == [Unscored, Score]


def test_hidden_reasoning_that_hits_the_token_limit_is_never_scored(workspace: Path) -> None:
    task = plan_task(write_task(workspace))
    (document,) = make_documents(task, [[""]])
    (response,) = document.outcomes
    assert isinstance(response, Response)
    document.outcomes[0] = replace(response, finish="length", usage=Usage(9, 64, reasoning_tokens=64))
    judged = judge_documents(task, [document])
    assert judged.outcomes == [(0, "truncated", "the token limit ended the reasoning; there is no answer")]
    assert [type(verdict) for verdict in judged.verdicts] == [Unscored]
