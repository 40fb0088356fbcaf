"""Runs of tasks with tools: native and prompted calls, endings, resumption, exports, bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.api import plan, verify
from assay.core.errors import AssayError, UnsupportedRequest
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Response
from assay.core.records.tools import ToolCall
from assay.testing import ScriptedModel
from assay.viewer.results.notes import format_outcome_notes

ABILITIES: Any = frozenset({"generate", "chat", "tools"})
AREA = {
    "name": "area",
    "description": "Area of a rectangle.",
    "parameters": {
        "type": "object",
        "properties": {"base": {"type": "number"}, "height": {"type": "number"}, "unit": {"type": "string"}},
        "required": ["base", "height"],
    },
}
ROWS: list[dict[str, Any]] = [
    {"question": "Area of 2 by 3?", "calls": [{"name": "area", "arguments": {"base": 2, "height": 3}}]},
    {"question": "How are you?", "calls": []},
    {"question": "Area of 4 by 5?", "calls": [{"name": "area", "arguments": {"base": 4, "height": 5}}]},
]
TASK: dict[str, Any] = {
    "task": "areas",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": "areas.jsonl"}},
    "test_split": "test",
    "output_type": "generate_until",
    "doc_to_text": "{{question}}",
    "doc_to_target": "calls",
    "tools": [AREA],
    "generation_kwargs": {"until": [], "max_gen_toks": 64},
    "metric_list": [
        {"metric": "tool_call_match"},
        {"metric": "tool_schema_valid"},
        {"metric": "tool_argument_f1"},
    ],
}


def write_task(folder: Path, **changes: Any) -> str:
    rows = changes.pop("rows", ROWS)
    (folder / "areas.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "areas.yaml"
    path.write_text(json.dumps({**TASK, **changes}))
    return str(path)


def run(
    path: str, answers: Callable[[Request], Any], abilities: Any = ABILITIES, **options: Any
) -> tuple[Any, ScriptedModel]:
    model = ScriptedModel(answers, abilities=abilities)
    return assay.run(model=model, tasks=[path], **options), model


def scores(done: Any) -> dict[str, float]:
    return {one.metric: one.value for one in done.estimates}


def call(request: Request) -> Response:
    """The right call; other arguments in the last document."""
    numbers = [int(word.strip("?")) for word in request.prompt.text.split() if word.strip("?").isdigit()]
    if not numbers:
        return Response(request_id="", value="Fine.", finish="stop")
    arguments = json.dumps({"base": numbers[0], "height": 3})
    return Response(request_id="", value="", finish="stop", tool_calls=(ToolCall("area", arguments, "c1"),))


def test_native_calls_are_requested_scored_and_exported(tmp_path: Path) -> None:
    done, model = run(write_task(tmp_path), call)
    assert scores(done) == pytest.approx(
        {"tool_call_match": 2 / 3, "tool_schema_valid": 1.0, "tool_argument_f1": (1 + 1 + 2 / 3) / 3}
    )
    request = model.asked[0]
    assert isinstance(request, Generate) and request.native_tools is not None
    assert request.native_tools.names == ("area",) and request.prompt.chat
    assert "area" not in request.prompt.text.replace("Area", ""), "the prompt does not describe the tools"
    first = next(iter(done.records("areas")))
    assert first["requests"][0]["tools"]["tools"] == [AREA]
    assert first["requests"][0]["tool_calls"] == [
        {"id": "c1", "name": "area", "arguments": '{"base": 2, "height": 3}'}
    ]
    assert done.outcomes("areas") == {"scored": 3}


TEXTS = {
    "json": '[{"name": "area", "arguments": {"base": 2, "height": 3}}]',
    "python": "[area(2, height=3)]",
    "xml": '<function_calls><invoke name="area"><parameter name="base">2</parameter><parameter name="height">3</parameter></invoke></function_calls>',
}


@pytest.mark.parametrize("syntax", TEXTS)
def test_models_without_tools_get_them_as_text(tmp_path: Path, syntax: str) -> None:
    path = write_task(tmp_path, rows=ROWS[:1])
    done, model = run(path, lambda request: TEXTS[syntax], frozenset({"generate"}), tool_calls=syntax)
    assert scores(done) == {"tool_call_match": 1.0, "tool_schema_valid": 1.0, "tool_argument_f1": 1.0}
    text = model.asked[0].prompt.text
    assert json.dumps(AREA) in text and text.endswith("Area of 2 by 3?")
    assert not model.asked[0].prompt.chat
    record = next(iter(done.records("areas")))
    assert json.loads(record["requests"][0]["tool_calls"][0]["arguments"]) == {"base": 2, "height": 3}
    assert record["requests"][0]["response"] == TEXTS[syntax]


def test_malformed_calls_are_an_ending_and_not_a_zero(tmp_path: Path) -> None:
    def answer(request: Request) -> Any:
        if "2 by 3" in request.prompt.text:
            broken = ToolCall("area", '{"base": 2, "height": ')
            return Response(request_id="", value="", finish="stop", tool_calls=(broken,))
        return call(request)

    done, _ = run(write_task(tmp_path), answer)
    assert done.outcomes("areas") == {"scored": 2, "unparsed-call": 1}
    assert scores(done)["tool_call_match"] == 0.5
    assert format_outcome_notes(done)[1] == (
        "areas: documents with unparsed calls are not in the score: tool_call_match 0.5000 without them, 0.3333 as wrong; "
        "tool_schema_valid 1.0000 without them, 0.6667 as wrong; tool_argument_f1 0.8333 without them, 0.5556 as wrong"
    )
    record = next(iter(done.records("areas")))
    assert record["why"] == "the arguments of `area` are not a JSON object"
    assert {one["kind"] for one in record["verdicts"]} == {"unscored"}
    done, _ = run(write_task(tmp_path, rows=ROWS[:1]), lambda _: "area(base=2,", frozenset({"generate"}))
    assert done.outcomes("areas") == {"unparsed-call": 1}


def test_malformed_calls_count_as_wrong_only_where_zero_is_the_worst_score(tmp_path: Path) -> None:
    code = "def count(references, predictions):\n    return 5.0\n"
    (tmp_path / "utils.py").write_text(code)
    metrics = [
        {"metric": "tool_schema_valid"},
        {"metric": "tool_call_match", "higher_is_better": False},
        {"metric": "COUNT", "aggregation": "mean", "higher_is_better": True},
    ]
    path = Path(write_task(tmp_path, metric_list=metrics))
    path.write_text(path.read_text().replace('"COUNT"', "!function utils.count"))
    broken = Response(request_id="", value="", finish="stop", tool_calls=(ToolCall("area", "{"),))
    done, _ = run(str(path), lambda request: broken if "2 by 3" in request.prompt.text else call(request))
    assert scores(done) == {"tool_schema_valid": 1.0, "tool_call_match": 0.5, "count": 5.0}
    assert format_outcome_notes(done)[1:] == [
        "areas: documents with unparsed calls are not in the score: tool_schema_valid 1.0000 without them, 0.6667 as wrong"
    ]


def test_the_score_is_shown_with_and_without_malformed_calls_that_task_code_scores(tmp_path: Path) -> None:
    code = "def judge(document, results):\n    return {'acc': float('base' in results[0] and 'height' in results[0])}\n"
    (tmp_path / "utils.py").write_text(code)
    path = Path(write_task(tmp_path, metric_list=[{"metric": "acc", "aggregation": "mean"}]))
    path.write_text(path.read_text()[:-1] + ', "process_results": !function utils.judge}')
    broken = ToolCall("area", "{")
    done, _ = run(
        str(path),
        lambda request: (
            Response(request_id="", value="", finish="stop", tool_calls=(broken,))
            if "4 by 5" in request.prompt.text
            else call(request)
        ),
    )
    assert done.outcomes("areas") == {"scored": 2, "unparsed-call": 1}
    assert format_outcome_notes(done)[1] == (
        "areas: `process_results` scores documents with unparsed calls: acc 0.3333 with them, 0.5000 without"
    )


def test_unknown_tools_and_wrong_types_are_invalid(tmp_path: Path) -> None:
    calls = [
        ToolCall("volume", "{}"),
        ToolCall("area", '{"base": "2", "height": 3}'),
        ToolCall("area", '{"base": 2}'),
    ]
    done, _ = run(
        write_task(tmp_path, metric_list=[{"metric": "tool_schema_valid"}]),
        lambda request: Response(request_id="", value="", tool_calls=(calls[request.document],)),
    )
    assert scores(done) == {"tool_schema_valid": 0.0}
    assert done.outcomes("areas") == {"scored": 3}


def test_a_finished_run_answers_from_its_journal(tmp_path: Path) -> None:
    path = write_task(tmp_path)
    first, _ = run(path, call)
    again, model = run(path, call)
    assert model.asked == [] and scores(again) == scores(first)
    _, model = run(write_task(tmp_path, tool_choice="required"), call)
    assert len(model.asked) == 3, "another choice is another request"


def test_the_prompts_of_a_run_with_tools_are_verified(tmp_path: Path) -> None:
    done, _ = run(write_task(tmp_path), call, output_path=str(tmp_path / "runs"))
    found = verify(done.folder)
    assert found.requests and not [change for change in found.changes if change.kind == "prompt"]


def test_tools_of_columns_functions_and_files(tmp_path: Path) -> None:
    definition = {"type": "function", "function": AREA}
    rows = [{**ROWS[0], "mine": [definition]}, {**ROWS[1], "mine": []}]
    _, model = run(write_task(tmp_path, rows=rows, tools="mine"), call)
    asked = {request.document: request.tools for request in model.asked if isinstance(request, Generate)}
    assert asked[1] is None and asked[0] is not None and asked[0].tools[0].to_json() == AREA
    (tmp_path / "tools.json").write_text(json.dumps([{"name": "area", "input_schema": AREA["parameters"]}]))
    _, model = run(write_task(tmp_path, tools="tools.json"), call)
    assert isinstance(model.asked[0], Generate) and model.asked[0].tools is not None
    assert model.asked[0].tools.tools[0].parameters == AREA["parameters"]
    (tmp_path / "utils.py").write_text(f"def list_tools(doc):\n    return [{AREA!r}]\n")
    path = tmp_path / "areas.yaml"
    path.write_text(path.read_text().replace('"tools.json"', "!function utils.list_tools"))
    _, model = run(str(path), call, no_cache=True, output_path=str(tmp_path / "other"))
    assert isinstance(model.asked[0], Generate) and model.asked[0].tools is not None


def test_a_response_that_violates_the_format_is_an_ending(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"area": {"type": "number"}}, "required": ["area"]}
    path = write_task(
        tmp_path,
        tools=None,
        response_format=schema,
        doc_to_target="ok",
        metric_list=[{"metric": "exact_match"}],
    )
    answers = ['{"area": 6}', '{"area": "6"}', "six"]
    done, model = run(path, lambda request: answers[request.document])
    assert done.outcomes("areas") == {"scored": 1, "invalid-format": 2}
    reasons = [record["why"] for record in done.records("areas")]
    assert reasons[1] == "the answer does not match the schema: area: '6' is not of type number"
    assert "not JSON" in reasons[2]
    assert isinstance(model.asked[0], Generate) and model.asked[0].response_format is not None


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "no schema": (
        {"tools": [{"name": "a", "parameters": {"type": "dict"}}]},
        "invalid JSON schema",
        "tools[0].parameters",
    ),
    "duplicate names": ({"tools": [AREA, AREA]}, "two tools are called `area`", "tools[1]"),
    "no name": ({"tools": [{"description": "x"}]}, "needs a `name`", "tools[0]"),
    "no mapping": ({"tools": ["area"]}, "must be a mapping", "tools[0]"),
    "a number": ({"tools": 3}, "must be a list, a column, a file or a function", "tools"),
    "missing file": ({"tools": "nothing.json"}, "cannot be read", "tools"),
    "missing column": ({"tools": "nothing"}, "neither a column nor a file", "tools"),
    "unknown choice": ({"tool_choice": "volume"}, "does not exist: `volume`", "tool_choice"),
    "no choice": ({"tool_choice": 3}, "invalid value for `tool_choice`", "tool_choice"),
    "unknown mode": ({"tool_calls": "yaml"}, "invalid value for `tool_calls`", "tool_calls"),
    "parallel": ({"parallel_tool_calls": "no"}, "must be true or false", "parallel_tool_calls"),
    "no tools": ({"tools": None, "tool_choice": "auto"}, "the task has no `tools`", "tool_choice"),
    "required": (
        {"tools": [{"name": "a", "parameters": {"required": ["x"]}}]},
        "does not describe: `x`",
        "required",
    ),
    "format": (
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        "has no `schema`",
        "response_format",
    ),
    "format schema": ({"response_format": {"type": "dict"}}, "invalid JSON schema", "response_format"),
    "likelihoods": ({"output_type": "loglikelihood"}, "needs generated text", "tools"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tools_are_reported_by_plan_and_check(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay.cli.app import run_command_line

    changes, what, where = BAD[name]
    path = write_task(tmp_path, **changes)
    with pytest.raises(AssayError) as caught:
        plan(model=ScriptedModel(call, abilities=ABILITIES), tasks=[path])
    assert what in str(caught.value) and where in str(caught.value)
    if name not in ("no schema", "missing column", "unknown choice", "format"):
        return  # the loader reports it to both commands
    assert run_command_line(["check", path]) == 2
    shown = " ".join(capsys.readouterr().out.split())
    assert what.split(":")[0] in shown and where in shown


def test_a_model_without_tools_cannot_call_natively(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedRequest, match="does not support tools") as caught:
        plan(
            model=ScriptedModel(call, abilities=frozenset({"generate", "chat"})),
            tasks=[write_task(tmp_path)],
            tool_calls="native",
        )
    assert "--tool_calls json" in str(caught.value)


def test_the_oracle_gets_the_best_scores(tmp_path: Path) -> None:
    done = assay.run(model="oracle", tasks=[write_task(tmp_path)])
    assert set(scores(done).values()) == {1.0}


def test_an_answer_that_breaks_the_parser_fails_only_itself(tmp_path: Path) -> None:
    """A loop of the model is an outcome of its document, and never disappears."""
    rows = [{"question": f"Area {n}?", "calls": []} for n in range(6)]
    task = assay.Task(
        name="areas",
        documents=rows,
        prompt="{{question}}",
        target="calls",
        metric="tool_call_match",
        tools=[{"name": "area", "parameters": {"type": "object"}}],
    )

    def answer(prompt: str) -> str:
        return "+".join(["1"] * 5000) if "Area 3?" in prompt else "No function applies."

    run = assay.run(model=answer, tasks=[task], no_cache=True, output_path=str(tmp_path / "out"))
    assert "open" not in run.outcomes("areas") and sum(run.outcomes("areas").values()) == 6
    assert run.outcomes("areas")["scored"] >= 5
