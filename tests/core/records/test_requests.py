from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import (
    Generate,
    Likelihood,
    Request,
    RollingLikelihood,
    Settings,
    compute_fingerprint,
)
from assay.core.records.tools import ResponseFormat, Tool, ToolCall, ToolResult, Tools

ASKED: dict[str, Any] = {"task": "sums", "document": 0, "prompt": Prompt.of_text("2+2=")}
GREEDY = Settings({"until": ["\n"], "do_sample": False})
generate = Generate(**ASKED, settings=GREEDY)
likelihood = Likelihood(**ASKED, continuation=" 4")
rolling = RollingLikelihood(**ASKED)
tools = Tools(
    tools=(Tool("area", "Compute an area.", {"type": "object", "properties": {"base": {"type": "number"}}}),)
)
CHAT = Prompt((Message("system", (Text("a"),)), Message("user", (Text("b"),))), chat=True)


def with_turn(*parts: Any) -> Generate:
    """A chat whose second message consists of these parts."""
    return replace(
        generate, prompt=Prompt((Message("user", (Text("a"),)), Message("assistant", parts)), chat=True)
    )


DIFFERENT: dict[str, Request] = {
    "generate": generate,
    "generate another prompt": replace(generate, prompt=Prompt.of_text("2+3=")),
    "generate another setting": replace(generate, settings=Settings({"until": ["\n"], "do_sample": True})),
    "generate one setting more": replace(generate, settings=Settings({**GREEDY.values, "top_p": 0.9})),
    "generate without settings": replace(generate, settings=Settings()),
    "generate another repeat": replace(generate, repeat=1),
    "generate in another round": replace(generate, round=1),
    "with tools": replace(generate, tools=tools),
    "with another schema": replace(generate, tools=Tools(tools=(Tool("area"),))),
    "with a tool to call": replace(generate, tools=replace(tools, choice="required")),
    "with one call": replace(generate, tools=replace(tools, parallel=False)),
    "with calls as text": replace(generate, tools=replace(tools, syntax="json")),
    "with a format": replace(generate, response_format=ResponseFormat()),
    "with a schema": replace(generate, response_format=ResponseFormat(schema={"type": "array"})),
    "with a call in the prompt": with_turn(ToolCall("area", '{"base": 1}')),
    "with a call of another id": with_turn(ToolCall("area", '{"base": 1}', "c1")),
    "with a call of other arguments": with_turn(ToolCall("area", '{"base": 2}')),
    "with a tool result": with_turn(ToolResult("5", "c1", "area")),
    "with the tool result as text": with_turn(Text("5")),
    "likelihood": likelihood,
    "likelihood of another prompt": replace(likelihood, prompt=Prompt.of_text("2+3=")),
    "likelihood of another continuation": replace(likelihood, continuation=" 5"),
    "likelihood of a continuation without space": replace(likelihood, continuation="4"),
    "likelihood, another repeat": replace(likelihood, repeat=1),
    "rolling": rolling,
    "rolling over another prompt": replace(rolling, prompt=Prompt.of_text("2+3=")),
    "rolling, another repeat": replace(rolling, repeat=1),
}


@pytest.mark.parametrize(("first", "second"), [*combinations(DIFFERENT, 2)])
def test_what_changes_the_answer_changes_the_id(first: str, second: str) -> None:
    assert DIFFERENT[first].id != DIFFERENT[second].id


@pytest.mark.parametrize("request_", [generate, likelihood, rolling], ids=lambda item: type(item).__name__)
@pytest.mark.parametrize("change", [{"task": "other"}, {"document": 7}, {"index": 3}], ids=str)
def test_who_asks_does_not_change_the_id(request_: Request, change: dict[str, Any]) -> None:
    assert replace(request_, **change).id == request_.id


# Responses are kept under these ids for years: a change here orphans every cache there is.
@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (generate, "f47c82dc5a381992f2aced1c361ed265"),
        (replace(generate, prompt=CHAT, settings=Settings()), "0bb8c6b90ee61b816bbb44eb57d08273"),
        (likelihood, "860f59e4185443e89b77a959c5d041d3"),
        (rolling, "e00be5e81e5281fd503b6dfcfaf1ba1d"),
    ],
    ids=["generate", "generate in a chat", "likelihood", "rolling"],
)
def test_ids_are_the_same_in_every_release(request_: Request, expected: str) -> None:
    assert request_.id == expected


def test_a_fingerprint_holds_the_model_and_the_request() -> None:
    names = {
        compute_fingerprint("model one", "a"),
        compute_fingerprint("model two", "a"),
        compute_fingerprint("model one", "b"),
    }
    assert len(names) == 3


def test_the_order_of_settings_does_not_count() -> None:
    assert Settings({"a": 1, "b": 2}).digest == Settings({"b": 2, "a": 1}).digest


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        pytest.param({}, "stop", (), id="no stop strings"),
        pytest.param({"until": "\n"}, "stop", ("\n",), id="one stop string"),
        pytest.param({"until": ["\n", "."]}, "stop", ("\n", "."), id="several"),
        pytest.param({"until": None}, "stop", (), id="none said aloud"),
        pytest.param({"stop": ["."]}, "stop", (".",), id="under its other name"),
        pytest.param({}, "max_tokens", None, id="no length limit"),
        pytest.param({"max_gen_toks": 5}, "max_tokens", 5, id="lm-eval's name for it"),
        pytest.param({"max_new_tokens": "6"}, "max_tokens", 6, id="lmms-eval's name, as text"),
        pytest.param({"max_tokens": 7}, "max_tokens", 7, id="the API's name"),
        pytest.param({"max_gen_toks": None, "max_tokens": 7}, "max_tokens", 7, id="None is not a limit"),
        pytest.param({}, "temperature", 0.0, id="greedy unless told otherwise"),
        pytest.param({"do_sample": True}, "temperature", 1.0, id="sampling without a temperature"),
        pytest.param({"do_sample": True, "temperature": 0.7}, "temperature", 0.7, id="sampling with one"),
        pytest.param({"temperature": 0.7}, "temperature", 0.7, id="a temperature alone"),
        pytest.param({"do_sample": False, "temperature": 0.7}, "temperature", 0.0, id="do_sample wins"),
        pytest.param({}, "top_p", 1.0, id="all of the probability"),
        pytest.param({"top_p": 0.9}, "top_p", 0.9, id="a share of it"),
        pytest.param({"top_k": None}, "top_k", 0, id="no limit on candidates"),
        pytest.param({"top_k": 40}, "top_k", 40, id="a limit on candidates"),
        pytest.param({}, "seed", None, id="no seed"),
        pytest.param({"seed": 3}, "seed", 3, id="a seed"),
    ],
)
def test_settings_read_what_tasks_write(values: dict[str, Any], name: str, expected: object) -> None:
    assert getattr(Settings(values), name) == expected


def test_match_tells_the_kinds_apart() -> None:
    def kind(request_: Request) -> str:
        match request_:
            case Generate():
                return "generate"
            case Likelihood(continuation=continuation):
                return f"likelihood of {continuation}"
            case RollingLikelihood():
                return "rolling"

    assert [kind(one) for one in (generate, likelihood, rolling)] == [
        "generate",
        "likelihood of  4",
        "rolling",
    ]
