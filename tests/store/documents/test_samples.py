from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import UserError
from assay.core.records.documents import Document
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.responses import LogProbability, Response
from assay.core.records.tools import ResponseFormat, Tool, ToolCall, Tools
from assay.core.records.verdicts import Answer, Estimate, Evidence, Score, Unscored, Verdict
from assay.store.documents.details import read_document
from assay.store.documents.records import read_document_records
from assay.store.documents.samples import read_samples
from assay.store.journal.journal import Journal
from assay.store.runs.run import Run

SETTINGS = Settings({"until": ["\n"], "temperature": 0.5})


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal.open_for_writing(tmp_path / "run")
    yield journal
    journal.close()


def keep(
    journal: Journal, document: int, requests: list[tuple[Request, Any]], fields: Any, target: Any
) -> None:
    """A document with its requests, each answered with the value beside it unless that is None."""
    named = [(request, f"{request.task}-{request.id}", value) for request, value in requests]
    journal.add_documents(
        [
            (
                Document(task=requests[0][0].task, index=document, fields=fields),
                target,
                [request for request, _, _ in named],
                [name for _, name, _ in named],
            )
        ]
    ).result()
    answered = [(name, Response(request_id="", value=value)) for _, name, value in named if value is not None]
    journal.add_responses(answered, source="model").result()


def generate(document: int, repeat: int = 0, prompt: str = "Q") -> Generate:
    return Generate(
        task="a", document=document, repeat=repeat, prompt=Prompt.of_text(prompt), settings=SETTINGS
    )


def test_a_generation_is_a_row_under_lm_evals_names(journal: Journal) -> None:
    keep(journal, 3, [(generate(3), "four")], {"q": "2+2"}, "4")
    judged = [Score(document=3, metric="exact_match", pipeline="strict", value=0.0)]
    journal.add_judged(
        "a", [(3, "scored", "")], [Answer(document=3, pipeline="strict", values=("4",))], judged
    ).result()
    assert list(read_samples(journal, "a")) == [
        {
            "doc_id": 3,
            "doc": {"q": "2+2"},
            "target": "4",
            "arguments": [["Q", {"until": ["\n"], "temperature": 0.5}]],
            "resps": [["four"]],
            "filtered_resps": ["4"],
            "filter": "strict",
            "metrics": ["exact_match"],
            "exact_match": 0.0,
        }
    ]


def test_choices_and_rolling_show_their_arguments_and_log_probabilities(journal: Journal) -> None:
    choices: list[tuple[Request, Any]] = [
        (
            Likelihood(task="a", document=0, index=at, prompt=Prompt.of_text("Q"), continuation=f" {name}"),
            LogProbability(-float(at), at == 0),
        )
        for at, name in enumerate("xyz")
    ]
    keep(journal, 0, choices, {}, 1)
    rolling = RollingLikelihood(task="b", document=0, prompt=Prompt.of_text("text"))
    keep(journal, 0, [(rolling, LogProbability(-math.inf))], {}, "text")
    for task in "ab":
        journal.add_judged(
            task, [(0, "scored", "")], [Answer(document=0, pipeline="none", values=())], []
        ).result()
    [row] = read_samples(journal, "a")
    assert row["arguments"] == [["Q", " x"], ["Q", " y"], ["Q", " z"]]
    assert row["resps"] == [[[0.0, True]], [[-1.0, False]], [[-2.0, False]]]
    [row] = read_samples(journal, "b")
    assert (row["arguments"], row["resps"]) == ([["text"]], [[-math.inf]])


def test_repeats_are_the_responses_of_one_request(journal: Journal) -> None:
    keep(journal, 0, [(generate(0, repeat), f"r{repeat}") for repeat in range(3)], {}, "4")
    journal.add_judged(
        "a", [(0, "scored", "")], [Answer(document=0, pipeline="none", values=("r0",))], []
    ).result()
    [row] = read_samples(journal, "a")
    assert (len(row["arguments"]), row["resps"]) == (1, [["r0", "r1", "r2"]])


def test_there_is_a_row_for_each_pipeline_in_the_order_of_the_plan(journal: Journal) -> None:
    journal.set_facts({"tasks": {"a": {"pipelines": ["zeta", "alpha"]}}}).result()
    for document in range(2):
        keep(journal, document, [(generate(document, prompt=f"Q{document}"), "x")], {}, "")
        answers = [Answer(document=document, pipeline=name, values=(name,)) for name in ("alpha", "zeta")]
        verdicts = [
            Score(document=document, metric="acc", pipeline=name, value=1.0) for name in ("alpha", "zeta")
        ]
        journal.add_judged("a", [(document, "scored", "")], answers, verdicts).result()
    rows = [(row["doc_id"], row["filter"], row["filtered_resps"]) for row in read_samples(journal, "a")]
    assert rows == [
        (0, "zeta", ["zeta"]),
        (0, "alpha", ["alpha"]),
        (1, "zeta", ["zeta"]),
        (1, "alpha", ["alpha"]),
    ]


def test_documents_come_in_number_order_and_only_judged_ones(journal: Journal) -> None:
    for document in (10, 9, 2, 1):
        keep(journal, document, [(generate(document, prompt=f"Q{document}"), "x")], {"n": document}, "")
        if document != 9:
            journal.add_judged(
                "a", [(document, "scored", "")], [Answer(document=document, pipeline="p", values=())], []
            ).result()
    assert [(row["doc_id"], row["doc"]) for row in read_samples(journal, "a")] == [
        (1, {"n": 1}),
        (2, {"n": 2}),
        (10, {"n": 10}),
    ]
    assert list(read_samples(journal, "nobody")) == []


def test_evidence_is_shown_and_what_has_no_score_is_not_a_metric(journal: Journal) -> None:
    keep(journal, 0, [(generate(0), "x")], {}, "")
    verdicts: list[Verdict] = [
        Evidence(document=0, metric="f1", pipeline="p", value=(1, 0)),
        Unscored(document=0, metric="acc", pipeline="p", why="nothing to score"),
    ]
    journal.add_judged(
        "a", [(0, "scored", "")], [Answer(document=0, pipeline="p", values=())], verdicts
    ).result()
    [row] = read_samples(journal, "a")
    assert (row["metrics"], row["f1"]) == (["f1"], (1, 0))
    assert "acc" not in row


def test_a_failed_request_has_no_response(journal: Journal) -> None:
    keep(journal, 0, [(generate(0, 0), "x"), (generate(0, 1), None)], {}, "")
    choice = Likelihood(task="a", document=1, prompt=Prompt.of_text("Q"), continuation="x")
    keep(journal, 1, [(choice, None)], {}, "")
    for document in range(2):
        journal.add_judged(
            "a", [(document, "scored", "")], [Answer(document=document, pipeline="p", values=())], []
        ).result()
    assert [row["resps"] for row in read_samples(journal, "a")] == [[["x", None]], [[None]]]


def test_targets_keep_their_kind(journal: Journal) -> None:
    for document, target in enumerate(["4", 4, ["a", "b"], None]):
        keep(journal, document, [(generate(document, prompt=str(document)), "x")], {}, target)
        journal.add_judged(
            "a", [(document, "scored", "")], [Answer(document=document, pipeline="p", values=())], []
        ).result()
    assert [row["target"] for row in read_samples(journal, "a")] == ["4", 4, ["a", "b"], None]


def test_every_row_can_be_written_as_json(journal: Journal) -> None:
    keep(journal, 0, [(generate(0), "half \ud83d")], {"q": "\ud83d", "x": {1, 2}}, b"bytes")
    journal.add_judged(
        "a", [(0, "scored", "")], [Answer(document=0, pipeline="p", values=({"a": (1, 2)}, b"x"))], []
    ).result()
    [row] = read_samples(journal, "a")
    assert json.loads(json.dumps(row)) == row


# --- runs ------------------------------------------------------------------------------------------


def estimate(task: str, metric: str, pipeline: str = "none", **rest: Any) -> Estimate:
    return Estimate(task=task, metric=metric, pipeline=pipeline, value=0.5, **rest)


def test_a_run_shows_its_numbers_in_the_order_of_the_plan(tmp_path: Path) -> None:
    journal = Journal.open_for_writing(tmp_path / "run-1")
    facts = {"pipelines": ["strict", "flexible"], "metrics": ["f1", "acc"]}
    journal.set_facts({"model": "m", "tasks": {"b": facts, "a": facts}, "groups": {"g": {}}})
    journal.add_estimates(
        [
            estimate(task, metric, pipeline)
            for task in "abg"
            for metric in ("acc", "f1")
            for pipeline in ("strict", "flexible")
        ]
    ).result()
    journal.add_judged("a", [(0, "scored", ""), (1, "failed", "x")], [], []).result()
    run = Run(tmp_path / "run-1")
    assert (run.id, run.model, run.finished) == ("run-1", "m", False)
    order = [(one.task, one.pipeline, one.metric) for one in run.estimates]
    assert order[:5] == [
        ("b", "strict", "f1"),
        ("b", "strict", "acc"),
        ("b", "flexible", "f1"),
        ("b", "flexible", "acc"),
        ("a", "strict", "f1"),
    ]
    assert [task for task, _, _ in order[-4:]] == ["g"] * 4
    assert run.outcomes("a") == {"scored": 1, "failed": 1}
    run.close()
    journal.set_facts({"ended": 1.0}).result()
    journal.close()
    run = Run(tmp_path / "run-1")
    assert run.finished
    assert repr(run) == f"Run({str(tmp_path / 'run-1')!r})"
    run.close()


def test_results_stand_under_lm_evals_keys(tmp_path: Path) -> None:
    journal = Journal.open_for_writing(tmp_path)
    journal.add_estimates([estimate("a", "acc", stderr=0.1), estimate("a", "f1", "strict")]).result()
    journal.close()
    run = Run(tmp_path)
    assert run.results == {
        "a": {"acc,none": 0.5, "acc_stderr,none": 0.1, "f1,strict": 0.5, "f1_stderr,strict": "N/A"}
    }
    run.close()


def test_failed_requests_include_documents_without_a_prompt(journal: Journal) -> None:
    keep(journal, 0, [(generate(0, 0), "x"), (generate(0, 1), None)], {}, "")
    journal.add_judged("a", [(0, "failed", "timeout"), (1, "failed", "not rendered")], [], []).result()
    run = Run(journal.path.parent)
    assert run.failed_requests() == (2, 3)
    run.close()


def test_a_run_that_was_never_looked_at_can_be_closed(journal: Journal) -> None:
    Run(journal.path.parent).close()


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run") as caught:
        Run(tmp_path)
    assert "journal.sqlite" in caught.value.hint


def test_tools_and_tool_calls_are_exported(journal: Journal) -> None:
    tools = Tools(tools=(Tool("area", "Area.", {"type": "object"}),), choice="required")
    call = ToolCall("area", '{"base": 1}', "c1")
    asked = Generate(
        task="a",
        document=0,
        prompt=Prompt.of_text("Area?"),
        settings=SETTINGS,
        tools=tools,
        response_format=ResponseFormat(schema={"type": "object"}),
    )
    journal.add_documents([(Document(task="a", index=0, fields={}), "", [asked], ["f"])]).result()
    journal.add_responses(
        [("f", Response(request_id="", value="", tool_calls=(call,)))], source="model"
    ).result()
    journal.add_judged(
        "a", [(0, "scored", "")], [Answer(document=0, pipeline="none", values=("",))], []
    ).result()
    (row,) = read_samples(journal, "a")
    stored = {"id": "c1", "name": "area", "arguments": '{"base": 1}'}
    assert (row["resps"], row["tool_calls"]) == ([[""]], [[[stored]]])
    (record,) = read_document_records(journal, "a")
    (request,) = record["requests"]
    assert request["tools"] == tools.to_json()
    assert request["response_format"]["schema"] == {"type": "object"}
    assert request["tool_calls"] == [stored]
    shown = read_document(journal, "a", 0)
    assert shown is not None
    (one,) = shown.asked
    assert one.options["tools"]["choice"] == "required"
    assert one.response is not None and one.response.tool_calls == (call,)
