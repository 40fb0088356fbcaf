"""Tests of tasks that share a run: a task with a slow judge does not use the capacity of others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.making import make_model, write_task

import assay
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Request, Settings
from assay.core.records.responses import Outcome
from assay.engine.running.model_queue import sort_window
from assay.engine.running.open_documents import OpenDocumentLimiter
from assay.testing import ScriptedModel


def test_the_first_task_with_capacity_continues() -> None:
    async def scene() -> list[str | None]:
        rooms = OpenDocumentLimiter(3, dialogues=["talk"], dialogue_limit=1)
        said = [rooms.choose_task(["a", "talk", "b"])]
        await rooms.add("a", 3)
        said.append(rooms.choose_task(["a", "talk", "b"]))
        await rooms.add("talk", 1)
        said.append(rooms.choose_task(["a", "talk", "b"]))
        await rooms.add("b", 4)
        said.append(rooms.choose_task(["a", "talk", "b"]))
        waiting = asyncio.ensure_future(rooms.wait(["a", "talk", "b"]))
        await asyncio.sleep(0)
        assert not waiting.done()
        await rooms.remove("talk", 1)
        await waiting
        await rooms.wait_for_dialogues()
        said.append(rooms.choose_task(["a", "talk", "b"]))
        return said

    assert asyncio.run(scene()) == ["a", "talk", "b", None, "talk"]


class SlowJudge(ScriptedModel):
    """A judge that answers only after `released` has an item."""

    def __init__(self, released: list[str]) -> None:
        super().__init__(lambda request: "Verdict: correct", name="judge", window=1)
        self._released = released

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        while not self._released:
            await asyncio.sleep(0.01)
        async for outcome in super().answer(window):
            yield outcome


def test_a_task_waiting_for_its_judge_does_not_block_the_next_or_accumulate_documents(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge of the first task says nothing until the second task has been asked in full."""
    for module in ("run", "running.document_reader"):
        monkeypatch.setattr(f"assay.engine.{module}.CHUNK_SIZE", 4)
    metric = {
        "metric": "correct",
        "aggregation": "mean",
        "higher_is_better": True,
        "judge": {"kind": "binary"},
    }
    many = [{"question": f"{n} and 0?", "answer": str(n)} for n in range(200)]
    first = write_task(workspace, "first", many, metric_list=[metric])
    second = write_task(workspace, "second", [{"question": f"{n}, 1?", "answer": "1"} for n in range(40)])
    asked: Counter[str] = Counter()
    released: list[str] = []

    def answers(request: Request) -> str:
        asked[request.task] += 1
        if asked["second"] == 40 and not released:
            released.append(f"{asked['first']} of the first task had been asked")
        return "1"

    finished = assay.run(
        model=make_model(answers, window=1),
        judge=SlowJudge(released),
        tasks=[str(first), str(second)],
        no_cache=True,
    )
    assert sum(finished.outcomes("first").values()) == 200
    assert finished.outcomes("second") == {"scored": 40}
    assert int(released[0].split()[0]) < 100, "what is judged slowly must not all be asked meanwhile"


def test_a_window_groups_requests_with_a_common_prefix() -> None:
    def ask(text: str, document: int) -> Request:
        return Generate(task="t", document=document, prompt=Prompt.of_text(text), settings=Settings({}))

    texts = ["b" * 300, "a", "b" * 300 + "!", "a", "c"]
    window = [ask(text, at) for at, text in enumerate(texts)]
    assert [request.document for request in sort_window(window)] == [1, 3, 2, 0, 4]
