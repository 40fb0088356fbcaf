"""`assay score` and `assay verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Assay
from tests.making import ROWS, Function, write_choices, write_task

from assay import models
from assay.core.errors import MissingPackage
from assay.core.records.responses import Failure, Response
from assay.store.runs.lookup import list_runs
from assay.testing import ScriptedModel

RUN = ["run", "--model", "scripted", "tasks/one.yaml", "--no_cache"]
EXACT = "def score(doc, results):\n    return {'right': float(results[0] == doc['answer'])}\n"
LENIENT = "def score(doc, results):\n    return {'right': float(str(doc['answer']) in results[0])}\n"
"""Longer than EXACT: Python recognises a changed module by its size and its time in seconds."""


@pytest.fixture
def tasks(workspace: Path, scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A task whose answers are right in substance and wrong to the letter."""
    monkeypatch.setattr(scripted, "_answers", lambda request: f"It is {request.document + 1}.")
    return workspace / "tasks"


def write_own(tasks: Path, helpers: str) -> None:
    metrics = [{"metric": "right", "aggregation": "mean", "higher_is_better": True}]
    write_task(tasks, "one", helpers=helpers, process_results=Function("utils.score"), metric_list=metrics)


@pytest.fixture
def no_model(scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call it, and nobody can make or open the model any more."""

    def forbid() -> None:
        def refuse(*arguments: Any, **keywords: Any) -> Any:
            raise AssertionError("the model was asked")

        monkeypatch.setitem(models.MODELS._items, "scripted", refuse)
        monkeypatch.setattr(ScriptedModel, "open", refuse)
        monkeypatch.setattr(ScriptedModel, "answer", refuse)

    return forbid


def estimates(called: Any) -> dict[tuple[str, str, str], tuple[Any, Any, int]]:
    return {
        (row["task"], row["filter"], row["metric"]): (row["before"], row["now"], row["moved"])
        for row in json.loads(called.out)["estimates"]
    }


def test_the_score_with_and_without_reasoning_needs_no_model(
    workspace: Path,
    scripted: ScriptedModel,
    assay_command: Assay,
    no_model: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(request: Any) -> Response:
        return Response(request_id=request.id, value=str(request.document + 1), reasoning="7?", finish="stop")

    monkeypatch.setattr(scripted, "_answers", answer)
    filters = [{"function": "regex", "regex_pattern": r"(\d+)"}, {"function": "take_first"}]
    write_task(workspace / "tasks", "one", filter_list=[{"name": "number", "filter": filters}])
    assert assay_command(*RUN).code == 0
    no_model()
    key = ("one", "number", "exact_match")
    kept = estimates(assay_command("score", "latest", "--dry_run", "--json", "--reasoning", "keep"))
    assert kept[key][:2] == (1.0, 0.0)  # the filter takes the 7 of the reasoning
    stripped = estimates(assay_command("score", "latest", "--dry_run", "--json", "--reasoning", "strip"))
    assert stripped[key][:2] == (1.0, 1.0)


# --- score ---------------------------------------------------------------------------------------------


def test_runs_show_names_the_judge_that_changed(tasks: Path, assay_command: Assay) -> None:
    write_task(tasks, "one", metric_list=[{"metric": "good", "judge": {"kind": "binary"}}])
    assay_command(*RUN, "--judge", "dummy,seed=1")
    called = assay_command("score", "latest", "--judge", "embedded")
    assert called.code == 0, called.err
    shown = assay_command("runs", "show", "latest").out
    assert "changed: model: the judge: `dummy` before, `embedded` now" in shown
    (scoring,) = json.loads(assay_command("runs", "show", "latest", "--json").out)["scorings"]
    assert scoring["notes"] == ["model: the judge: `dummy` before, `embedded` now"]


def test_corrected_helper_is_applied_and_old_scores_are_kept(
    tasks: Path, assay_command: Assay, no_model: Any
) -> None:
    write_own(tasks, EXACT)
    assay_command(*RUN)
    no_model()
    write_own(tasks, LENIENT)
    called = assay_command("score", "latest", "--json")
    assert called.code == 0, called.err
    document = json.loads(called.out)
    assert estimates(called) == {("one", "none", "right"): (0.0, 1.0, 6)}
    assert document["changed"] == {"one": ["metric right"]}
    assert document["notes"] == ["code: helper files changed: tasks/utils.py"]
    (summary,) = list_runs()
    assert summary.scores == (("one", "right", 0.0),), "the run itself says what it said"
    shown = assay_command("runs", "show", "latest")
    assert "scoring 1" in shown.out
    assert "changed: one: metric right" in shown.out
    assert "1.0000" in shown.out


def test_changed_filter_is_applied_and_reported(tasks: Path, assay_command: Assay, no_model: Any) -> None:
    write_task(tasks, "one")
    assay_command(*RUN)
    no_model()
    steps = [{"function": "regex", "regex_pattern": r"(\d+)"}, {"function": "take_first"}]
    write_task(tasks, "one", filter_list=[{"name": "none", "filter": steps}])
    called = assay_command("score", "latest")
    assert called.code == 0, called.err
    assert "0.0000   1.0000" in called.out
    assert "changed since the run: one: filter none" in called.out
    assert "stored as scoring 1" in called.err
    again = assay_command("score", "latest", "--dry_run")
    assert "nothing stored" in again.err
    (summary,) = list_runs()
    assert [path.name for path in (summary.folder / "scorings").iterdir()] == ["1"]


def test_unchanged_task_gives_the_same_scores(tasks: Path, assay_command: Assay, no_model: Any) -> None:
    write_task(tasks, "one")
    write_choices(tasks, "two")
    assay_command("run", "--model", "scripted", "tasks/one.yaml", "--no_cache")
    no_model()
    called = assay_command("score", "latest")
    assert "filters, metrics and helpers are unchanged" in called.out


def test_other_filters_and_metrics_can_be_applied(tasks: Path, assay_command: Assay, no_model: Any) -> None:
    write_task(tasks, "one")
    assay_command(*RUN)
    no_model()
    arguments = [
        "--metric",
        "bleu",
        "--metric",
        "exact_match",
        "--filter",
        "lowercase",
        "--dry_run",
        "--json",
    ]
    called = assay_command("score", "latest", *arguments)
    assert called.code == 0, called.err
    assert set(estimates(called)) == {("one", "lowercase", "bleu"), ("one", "lowercase", "exact_match")}
    assert json.loads(called.out)["changed"] == {}


def test_responses_of_predict_only_are_scored(tasks: Path, assay_command: Assay, no_model: Any) -> None:
    write_own(tasks, LENIENT)
    assay_command(*RUN, "--predict_only")
    no_model()
    called = assay_command("score", "latest", "--json")
    assert estimates(called) == {("one", "none", "right"): (None, 1.0, 0)}


def test_failed_requests_are_counted(
    tasks: Path, assay_command: Assay, scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch, no_model: Any
) -> None:
    failure = Failure(request_id="", kind="timeout", message="too slow")
    monkeypatch.setattr(scripted, "_answers", lambda r: failure if r.document == 2 else str(r.document + 1))
    write_task(tasks, "one")
    assay_command(*RUN)
    no_model()
    (row,) = json.loads(assay_command("score", "latest", "--json").out)["estimates"]
    assert (row["scored"], row["failed"], row["now"]) == (5, 1, 1.0)


def test_responses_to_other_prompts_are_not_scored(tasks: Path, assay_command: Assay, no_model: Any) -> None:
    write_task(tasks, "one")
    assay_command(*RUN)
    no_model()
    write_task(tasks, "one", doc_to_text="Q: {{question}}")
    called = assay_command("score", "latest")
    assert called.code == 2
    assert "6 of 6 documents of `one` have different prompts" in called.err
    (summary,) = list_runs()
    assert not list((summary.folder / "scorings").iterdir()), "nothing half-made is left"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "other"], "the run has no task `other`"),
        (["--filter", "lowercas"], "did you mean `lowercase`"),
        (["--metric", "exact_macth"], "did you mean `exact_match`"),
    ],
)
def test_unknown_names_are_rejected(
    tasks: Path, assay_command: Assay, arguments: list[str], message: str
) -> None:
    write_task(tasks, "one")
    assay_command(*RUN)
    called = assay_command("score", "latest", *arguments)
    assert called.code == 2
    assert message in called.err


def test_latest_scoring_is_exported_by_default(tasks: Path, assay_command: Assay) -> None:
    write_own(tasks, EXACT)
    assay_command(*RUN)
    write_own(tasks, LENIENT)
    assay_command("score", "latest")

    def right(*arguments: str) -> list[float]:
        out = assay_command("export", "latest", "--format", "jsonl", *arguments).out
        return [json.loads(line)["verdicts"][0]["value"] for line in out.splitlines()]

    assert right() == [1.0] * 6
    assert "scoring 1" in assay_command("export", "latest", "--format", "csv").err
    assert right("--scoring", "0") == [0.0] * 6
    assert right("--scoring", "1") == [1.0] * 6
    refused = assay_command("export", "latest", "--format", "csv", "--scoring", "7")
    assert (refused.code, "no scoring 7" in refused.err) == (2, True)


# --- verify --------------------------------------------------------------------------------------------


def test_unchanged_run_has_no_drift(tasks: Path, assay_command: Assay) -> None:
    write_task(tasks, "one", num_fewshot=2)
    assay_command(*RUN)
    called = assay_command("verify", "latest")
    assert (called.code, called.out) == (0, "6 documents, 6 requests rendered: no changes\n")


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "prompt": (
        {"doc_to_text": "Question: {{question}}\nAnswer now:"},
        "one: prompts changed  (6 of 6 documents)",
    ),
    "settings": ({"generation_kwargs": {"max_gen_toks": 3}}, "one: generation settings changed"),
    "data": (
        {"rows": [*ROWS[:5], {"question": "What is 5 + 1?", "answer": "six"}]},
        "documents changed  (1 of 6",
    ),
    "task": (
        {"metric_list": [{"metric": "exact_match", "ignore_case": True}]},
        "one: changed: metric exact_match",
    ),
}


@pytest.mark.parametrize(("kind", "change"), CHANGES.items(), ids=CHANGES)
def test_drift_is_reported_with_examples(
    tasks: Path, assay_command: Assay, kind: str, change: tuple[dict[str, Any], str]
) -> None:
    write_task(tasks, "one")
    assay_command(*RUN)
    keys, words = change
    write_task(tasks, "one", **keys)
    called = assay_command("verify", "latest")
    assert called.code == 3
    assert f"{kind}: " in called.out
    assert words in called.out
    document = json.loads(assay_command("verify", "latest", "--json").out)
    assert document["drifted"] is True
    assert kind in {drift["kind"] for drift in document["drifts"]}
    kinds = sorted({drift["kind"] for drift in document["drifts"]})
    ignored = [word for name in kinds for word in ("--ignore", name)]
    assert assay_command("verify", "latest", *ignored).code == 0


def test_the_first_differences_are_shown(tasks: Path, assay_command: Assay) -> None:
    write_task(tasks, "one")
    assay_command(*RUN)
    write_task(tasks, "one", doc_to_text="Question: {{question}}\nReply:")
    (prompt,) = (
        drift
        for drift in json.loads(assay_command("verify", "latest", "--json").out)["drifts"]
        if drift["kind"] == "prompt"
    )
    assert (prompt["count"], prompt["total"], len(prompt["examples"])) == (6, 6, 3)
    example = prompt["examples"][0]
    assert example["document"] == 0
    assert example["then"].endswith("Answer:")
    assert example["now"].endswith("Reply:")


def test_added_and_removed_documents_are_counted(tasks: Path, assay_command: Assay) -> None:
    write_task(tasks, "one")
    assay_command(*RUN)
    write_task(tasks, "one", ROWS[:4])
    assert "documents are gone  (2 of 6 documents)" in assay_command("verify", "latest").out
    write_task(tasks, "one", [*ROWS, *ROWS[:1]])
    assert "documents are new" in assay_command("verify", "latest").out


def test_changed_model_identity_is_reported(
    tasks: Path, assay_command: Assay, scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_task(tasks, "one")
    assay_command(*RUN)

    async def identify() -> dict[str, str]:
        return {"name": "scripted", "template_sha256": "new"}

    monkeypatch.setattr(scripted, "identify", identify)
    called = assay_command("verify", "latest")
    assert called.code == 3
    assert "template: the model's `template_sha256`: nothing before, new now" in called.out


def test_missing_model_package_skips_only_the_model(
    tasks: Path, assay_command: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_task(tasks, "one")
    assay_command(*RUN)

    def missing() -> Any:
        raise MissingPackage.of("scripting", "the model `scripted`")

    monkeypatch.setitem(models.MODELS._items, "scripted", missing)
    called = assay_command("verify", "latest")
    assert called.code == 0, called.err
    assert "not checked: the model and its template: the model `scripted` needs the package" in called.out
    assert "no changes" in called.out


def test_only_kinds_of_drift_can_be_ignored(tasks: Path, assay_command: Assay) -> None:
    write_task(tasks, "one")
    assay_command(*RUN)
    called = assay_command("verify", "latest", "--ignore", "weather")
    assert called.code == 2
    assert "one of: scores, data, prompt" in called.err
