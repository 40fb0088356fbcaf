"""BFCL: documents, prompts and verdicts of the built-in group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.builtin_tasks.bfcl.utils import (
    REPOSITORY,
    doc_to_target,
    doc_to_text,
    list_tools,
    load_category,
    process_results,
)
from assay.core.records.requests import Generate
from assay.core.records.responses import Response
from assay.core.records.tools import ToolAnswer, ToolCall
from assay.testing import ScriptedModel

AREA = {
    "name": "area",
    "parameters": {
        "type": "dict",
        "properties": {"base": {"type": "integer"}, "unit": {"type": "string"}},
        "required": ["base"],
    },
}
QUESTION = [[{"role": "system", "content": "Be exact."}, {"role": "user", "content": "The area?"}]]


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A copy of the hub with one document in two categories."""
    folder = tmp_path / REPOSITORY
    (folder / "possible_answer").mkdir(parents=True)
    for category in ("simple_python", "irrelevance"):
        line = json.dumps({"id": f"{category}_0", "question": QUESTION, "function": [AREA]})
        (folder / f"BFCL_v4_{category}.json").write_text(line + "\n", "utf-8")
    answer = json.dumps(
        {"id": "simple_python_0", "ground_truth": [{"area": {"base": [10], "unit": ["cm", ""]}}]}
    )
    (folder / "possible_answer" / "BFCL_v4_simple_python.json").write_text(answer + "\n", "utf-8")
    return tmp_path


def test_a_document_has_its_functions_and_possible_answers(hub: Path) -> None:
    (document,) = load_category("simple_python", str(hub))["test"]
    assert document["possible_answers"] == [{"area": {"base": [10], "unit": ["cm", ""]}}]
    prompt = doc_to_text(document)
    assert '"name": "area"' in prompt
    assert "(system) Be exact.\n\nThe area?" in prompt
    assert doc_to_target(document) == "[area(base=10)]"


@pytest.mark.parametrize(
    ("category", "response", "expected"),
    [
        ("simple_python", "[area(base=10)]", (1.0, 1.0)),
        ("simple_python", "[area(base=10, unit='CM')]", (1.0, 1.0)),
        ("simple_python", "[area(base=9)]", (0.0, 1.0)),
        ("simple_python", "I cannot say.", (0.0, 0.0)),
        ("irrelevance", "I cannot say.", (1.0, 1.0)),
        ("irrelevance", "[area(base=9)]", (0.0, 1.0)),
    ],
)
def test_calls_are_judged(hub: Path, category: str, response: str, expected: tuple[float, float]) -> None:
    (document,) = load_category(category, str(hub))["test"]
    found = process_results(document, [response])
    assert (found["acc"], found["parsed"]) == expected


@pytest.mark.parametrize(
    ("language", "kind", "values", "expected"),
    [
        ("java", "long", [5], "[f(x=5L)]"),
        ("java", "ArrayList", [["a", "b"]], '[f(x=new ArrayList<>(Arrays.asList("a", "b")))]'),
        ("java", "integer", ["count"], "[f(x=count)]"),
        ("javascript", "dict", [{"a": [True]}], '[f(x={"a": true})]'),
        ("python", "dict", [{"a": [1, 2], "b": ["", 3]}], "[f(x={'a': 1})]"),
    ],
)
def test_targets_are_written_in_the_language_of_the_functions(
    language: str, kind: str, values: list[Any], expected: str
) -> None:
    function = {"name": "f", "parameters": {"properties": {"x": {"type": kind}}, "required": ["x"]}}
    document = {
        "category": f"simple_{language}",
        "functions": [function],
        "possible_answers": [{"f": {"x": values}}],
    }
    assert doc_to_target(document) == expected


def test_the_target_scores_one_in_a_run(hub: Path) -> None:
    run = assay.run(model="oracle", tasks=["bfcl_simple_python"], data_root=str(hub), no_cache=True)
    assert {one.metric: one.value for one in run.estimates} == {"acc": 1.0, "parsed": 1.0}


@pytest.mark.parametrize(
    ("category", "calls", "expected"),
    [
        ("simple_python", [ToolCall("area", '{"base": 10}')], (1.0, 1.0)),
        ("simple_python", [ToolCall("area", '{"base": 9}')], (0.0, 1.0)),
        ("simple_python", [ToolCall("area", '{"base": ')], (0.0, 0.0)),
        ("simple_python", [], (0.0, 0.0)),
        ("irrelevance", [], (1.0, 1.0)),
        ("irrelevance", [ToolCall("area", '{"base": 9}')], (0.0, 1.0)),
    ],
)
def test_native_calls_are_judged(
    hub: Path, category: str, calls: list[ToolCall], expected: tuple[float, float]
) -> None:
    (document,) = load_category(category, str(hub))["test"]
    found = process_results(document, [ToolAnswer.from_calls("Here: [area(base=10)]", calls)])
    assert (found["acc"], found["parsed"]) == expected


def test_models_with_tools_call_natively_and_others_get_the_same_prompt(hub: Path) -> None:
    def answer(request: Any) -> Any:
        if request.tools is None:
            return "[area(base=10)]"
        assert request.tools.tools[0].parameters["properties"]["base"] == {"type": "integer"}
        assert request.prompt.text == "(system) Be exact.\n\nThe area?"
        return Response(request_id="", value="", tool_calls=(ToolCall("area", '{"base": 10}'),))

    for abilities in ({"generate"}, {"generate", "chat", "tools"}):
        model = ScriptedModel(answer, abilities=frozenset(abilities))  # type: ignore[arg-type]
        done = assay.run(model=model, tasks=["bfcl_simple_python"], data_root=str(hub))
        assert {one.metric: one.value for one in done.estimates} == {"acc": 1.0, "parsed": 1.0}
        assert model.asked[0].prompt.chat == ("tools" in abilities)
    prompted = ScriptedModel(answer, abilities=frozenset({"generate", "chat", "tools"}))
    assay.run(
        model=prompted, tasks=["bfcl_simple_python"], data_root=str(hub), tool_calls="python", no_cache=True
    )
    assert isinstance(prompted.asked[0], Generate) and prompted.asked[0].tools is None
    (document,) = load_category("simple_python", str(hub))["test"]
    assert prompted.asked[0].prompt.text == doc_to_text(document)


def test_tools_of_java_are_source_text_and_names_have_no_dots() -> None:
    function = {
        "name": "geo.area",
        "description": "Area.",
        "parameters": {
            "type": "dict",
            "properties": {"base": {"type": "ArrayList", "items": {"type": "long"}, "description": "Bases."}},
            "required": ["base"],
        },
    }
    (java,) = list_tools({"category": "simple_java", "functions": [function]})
    assert java["name"] == "geo_area"
    assert java["parameters"]["properties"]["base"]["type"] == "string"
    assert "Java value (`ArrayList`)" in java["parameters"]["properties"]["base"]["description"]
    (python,) = list_tools({"category": "simple_python", "functions": [function]})
    assert python["parameters"]["properties"]["base"]["items"] == {"type": "integer"}
