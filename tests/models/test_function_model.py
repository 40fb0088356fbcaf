from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.core.errors import AssayError, InvalidOption, UnknownName
from assay.core.ports import SupportsPreview
from assay.core.records.requests import Request
from assay.models.function_model import FunctionModel, adapt_model

calls: list[Any] = []


def add(prompt: str) -> str:
    first, second = map(int, re.findall(r"\d+", prompt.rpartition("Question")[2])[-2:])
    return f" = {first + second}\nQuestion: = 7"


async def add_later(prompt: str) -> str:
    await asyncio.sleep(0)
    return add(prompt)


def add_all(prompts: list[str]) -> list[str]:
    calls.append(len(prompts))
    return [add(prompt) for prompt in prompts]


def add_chat(messages: Any, stop: Any = None, max_tokens: int | None = None) -> str:
    calls.append((messages[-1]["role"], stop, max_tokens))
    return add(messages[-1]["content"])


def read_score(run: assay.Run) -> float:
    (estimate,) = run.estimates
    assert isinstance(estimate.value, float)
    return estimate.value


@pytest.mark.parametrize("model", [add, add_later, add_all, lambda prompt: add(prompt)])
@pytest.mark.usefixtures("workspace")
def test_a_function_is_a_model(model: Any) -> None:
    calls.clear()
    run = assay.run(model=model, tasks=["quickstart_addition"], limit=6)
    assert read_score(run) == 1.0
    assert run.model == ("function" if model.__name__ == "<lambda>" else model.__name__)
    assert calls == ([6] if model is add_all else [])


@pytest.mark.usefixtures("workspace")
def test_a_function_of_messages_gets_the_chat_and_the_settings() -> None:
    calls.clear()
    run = assay.run(model=add_chat, tasks=["quickstart_addition"], limit=1, apply_chat_template=True)
    assert read_score(run) == 1.0
    ((role, stop, max_tokens),) = calls
    assert role == "user" and stop and max_tokens


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda prompt: 7, "the model function returned a value of type int, not a text"),
        (lambda prompt: None, "the model function returned None, not a text"),
        (lambda prompts: ["one"], "the model function returned 1 answers for 2 prompts"),
        (
            lambda prompts: "one",
            "the model function returned a value of type str for a list of prompts, not a list",
        ),
    ],
)
def test_a_wrong_answer_of_a_function_is_a_failure(function: Any, message: str) -> None:
    with pytest.warns(UserWarning, match="all 2 documents failed"):
        run = assay.run(model=function, tasks=["quickstart_addition"], limit=2)
    assert all(message in record["why"] for record in run.records("quickstart_addition"))


@pytest.mark.usefixtures("workspace")
def test_an_exception_of_a_function_is_reported() -> None:
    def fail(prompt: str) -> str:
        raise ValueError("no connection")

    with pytest.raises(AssayError, match=r"failed .* times in a row: ValueError: no connection"):
        assay.run(model=fail, tasks=["quickstart_addition"], limit=50)


@pytest.mark.usefixtures("workspace")
def test_a_run_of_a_function_is_resumed_with_the_function() -> None:
    run = assay.run(model=add, tasks=["quickstart_addition"], limit=2)
    with pytest.raises(UnknownName, match="no model is called `add`") as caught:
        assay.resume(run.folder)
    assert caught.value.where == str(run.folder)
    assert f"assay.resume({run.id!r}, model=…)" in caught.value.hint
    assert assay.resume(run.folder, model=add).id == run.id


def test_the_source_identifies_a_function_and_objects_make_it_unique() -> None:
    connection = object()

    def answer(prompt: str) -> str:
        return f"{connection}"

    def identify(model: Any) -> Any:
        return asyncio.run(FunctionModel(model).identify())

    assert identify(add) == identify(add) != identify(add_later)
    assert "instance" not in identify(add)
    assert identify(answer) == identify(answer) and "instance" in identify(answer)
    named = FunctionModel(answer, name="mine", version="2")
    assert asyncio.run(named.identify()) == {"name": "mine", "version": "2"}


class SyncModel:
    """A model whose methods are not asynchronous."""

    name = "sync"
    traits = assay.Traits(abilities=frozenset({"generate"}), window=4)

    def identify(self) -> dict[str, str]:
        return {"version": "1"}

    def open(self) -> None:
        calls.append("open")

    def answer(self, window: Sequence[Request]) -> Any:
        return [assay.Response(request_id=one.id, value=add(one.prompt.text)) for one in window]

    def close(self) -> None:
        calls.append("close")

    def preview(self, request: Request) -> str:
        return request.prompt.text


class AsyncListModel(SyncModel):
    async def answer(self, window: Sequence[Request]) -> Any:
        return super().answer(window)


class GeneratorModel(SyncModel):
    def answer(self, window: Sequence[Request]) -> Any:
        yield from super().answer(window)


class ForwardingModel(SyncModel):
    def answer(self, window: Sequence[Request]) -> AsyncIterator[Any]:
        async def generate() -> AsyncIterator[Any]:
            for one in SyncModel.answer(self, window):
                yield one

        return generate()


@pytest.mark.parametrize("kind", [SyncModel, AsyncListModel, GeneratorModel, ForwardingModel])
@pytest.mark.usefixtures("workspace")
def test_methods_may_be_synchronous(kind: type[SyncModel]) -> None:
    calls.clear()
    run = assay.run(model=kind(), tasks=["quickstart_addition"], limit=6)
    assert read_score(run) == 1.0 and calls == ["open", "close"]


def test_optional_members_of_a_synchronous_model_stay() -> None:
    assert isinstance(adapt_model(SyncModel()), SupportsPreview)


class Incomplete:
    name = "incomplete"

    def answer(self, window: Sequence[Request]) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (Incomplete(), "the model Incomplete lacks `traits`, `identify`, `open`, `close`"),
        (SyncModel, "`model` is the class SyncModel, not an instance"),
        (7, "`model` must be a name, a function or a model, not int"),
    ],
)
def test_an_unsuitable_object_is_an_error_with_a_hint(given: Any, what: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        assay.run(model=given, tasks=["quickstart_addition"], limit=1)
    assert caught.value.what == what and caught.value.where == "model" and caught.value.hint


@pytest.mark.usefixtures("workspace")
def test_an_answer_of_another_type_is_an_error() -> None:
    class Texts(SyncModel):
        def answer(self, window: Sequence[Request]) -> Any:
            return ["5"]

    with pytest.raises(InvalidOption, match="returned a value of type str"):
        assay.run(model=Texts(), tasks=["quickstart_addition"], limit=1)


@pytest.mark.usefixtures("workspace")
def test_a_run_with_a_function_is_resumed_with_it(workspace: Path) -> None:
    run = assay.run(model=add, tasks=["quickstart_addition"], limit=2)
    assert assay.resume(run, model=add).folder == run.folder
