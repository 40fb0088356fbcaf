"""Dialogues through the whole engine: rounds go through the same journal, cache and backlog as any request."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.dialogues import GUESSING, halve, ride, write_guessing, write_lift
from tests.making import write_task

import assay
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Outcome, Response
from assay.core.records.tools import ToolCall
from assay.engine.running.model_queue import Backlog
from assay.testing import ScriptedModel

FAILED = Failure(request_id="", kind="timeout", message="no answer in 120 s")


def run(model: Any, *paths: Path, **options: Any) -> assay.Run:
    return assay.run(model=model, tasks=[str(path) for path in paths], **options)


def list_requests(model: ScriptedModel) -> list[Generate]:
    return [request for request in model.asked if isinstance(request, Generate)]


def count_rounds(model: ScriptedModel) -> Counter[int]:
    return Counter(request.round for request in list_requests(model))


# --- what is asked and judged --------------------------------------------------------------------------


def test_a_dialogue_continues_until_its_helper_ends_it(workspace: Path) -> None:
    model = ScriptedModel(halve)
    finished = run(model, write_guessing(workspace))
    assert finished.outcomes("guessing") == {"scored": 8}
    assert finished.results["guessing"]["found,none"] == 1.0
    assert count_rounds(model) == {0: 8, 1: 7, 2: 5, 3: 1}
    assert finished.journal.count_rows("requests") == finished.journal.count_rows("responses") == 21


def test_every_round_is_stored_and_shown_with_its_prompt(workspace: Path) -> None:
    finished = run(ScriptedModel(halve, abilities=frozenset(["generate"])), write_guessing(workspace))
    first = next(iter(finished.samples("guessing")))
    assert first["resps"] == [["4"], ["2"], ["3"]]
    assert [prompt.partition(" Mood")[0] for prompt, _ in first["arguments"]] == [
        "game 0: guess my number from 0 to 7.",
        "game 0: it is less than 4. You said [4].",
        "game 0: it is more than 2. You said [4, 2].",
    ]
    assert first["filtered_resps"] == [["4", "2", "3", "found in 3"]]


def test_a_helper_sees_the_reasoning_and_the_calls_of_a_response(workspace: Path) -> None:
    helpers = GUESSING.replace(
        "    guess = int(previous_output[-1])",
        "    guess = int(previous_output[-1])\n"
        "    assert previous_output[-1].reasoning == 'hm'\n"
        "    assert previous_output[-1].tool_calls[0].name == 'look'",
    )

    def think(request: Request) -> Response:
        value = halve(request)
        assert isinstance(value, str)
        return Response(request_id="", value=value, reasoning="hm", tool_calls=(ToolCall("look"),))

    finished = run(ScriptedModel(think), write_guessing(workspace, helpers=helpers))
    assert finished.outcomes("guessing") == {"scored": 8}


def test_an_agent_is_scored_by_its_last_answer(workspace: Path) -> None:
    finished = run(ScriptedModel(ride), write_lift(workspace, 7))
    assert finished.results["lift"]["success,none"] == pytest.approx(5 / 7)
    rows = list(finished.samples("lift"))
    assert rows[1]["filtered_resps"] == ['{"success": true, "state": {"floor": 1}, "trace": ["up", "done"]}']
    assert len(rows[6]["resps"]) == 5, "max_agentic_steps"
    assert '"error": "max_agentic_steps_reached"' in rows[6]["filtered_resps"][0]


def test_the_step_limit_is_configurable_and_not_a_generation_setting(workspace: Path) -> None:
    model = ScriptedModel(ride)
    finished = run(model, write_lift(workspace, 4), gen_kwargs={"max_agentic_steps": 2})
    assert max(count_rounds(model)) == 1
    assert all("max_agentic_steps" not in request.settings.values for request in list_requests(model))
    assert finished.results["lift"]["success,none"] == 0.5


@pytest.mark.parametrize(("window", "in_flight"), [(1, 1), (64, 1), (5, 3), (1, 16)])
def test_dialogues_finish_with_any_window_size(workspace: Path, window: int, in_flight: int) -> None:
    model = ScriptedModel(halve, window=window, in_flight=in_flight)
    finished = run(model, write_guessing(workspace, 11), write_lift(workspace), write_task(workspace))
    assert finished.outcomes("guessing") == {"scored": 11}
    assert finished.outcomes("sums") == {"scored": 6}


def test_a_dialogue_does_not_wait_for_slower_ones(workspace: Path) -> None:
    class Uneven(ScriptedModel):
        """Delays the first game until another has ended."""

        async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
            if window[0].document == 0 and not self.late:
                self.late = True
                await self.others.wait()
            async for outcome in super().answer(window):
                yield outcome
            if max(count_rounds(self)) == 3:
                self.others.set()

        late = False
        others = asyncio.Event()

    model = Uneven(halve, window=1, in_flight=4)
    assert run(model, write_guessing(workspace)).outcomes("guessing") == {"scored": 8}


def test_repeats_are_separate_dialogues(workspace: Path) -> None:
    def answers(request: Any) -> str:
        return "4" if request.repeat else halve(request)

    helpers = GUESSING.replace(
        "    info = previous_round_info",
        "    if round_idx == 3:\n        return None, None, True, previous_output, None\n    info = previous_round_info",
    )
    model = ScriptedModel(answers)
    finished = run(model, write_guessing(workspace, 1, repeats=2, helpers=helpers))
    (document,) = finished.samples("guessing")
    assert document["resps"] == [["4", "4"], ["2", "4"], ["3", "4"]]
    assert document["filtered_resps"] == [["4", "2", "3"]], "the first of the repeats, as for any task"


def test_identical_requests_of_one_round_are_sent_once(workspace: Path) -> None:
    helpers = GUESSING.replace("doc['name']", "'game'").replace("random.random()", "0")
    model = ScriptedModel(halve)
    finished = run(model, write_guessing(workspace, 24, helpers=helpers))
    assert finished.outcomes("guessing") == {"scored": 24}
    assert count_rounds(model) == {0: 1, 1: 2, 2: 4, 3: 1}


def test_an_identical_request_in_a_later_round_is_sent_again(workspace: Path) -> None:
    def answers(request: Any) -> str:
        return f"word {request.round}"

    model = ScriptedModel(answers)
    finished = run(model, write_lift(workspace, 1))
    (document,) = finished.samples("lift")
    assert document["resps"] == [[f"word {n}"] for n in range(5)]


def test_the_number_of_open_dialogues_is_limited(workspace: Path) -> None:
    def twice(request: Any) -> str:
        return "done" if request.round == 2 else "up"

    model = ScriptedModel(twice, window=8)
    finished = run(model, write_lift(workspace, 1500), no_cache=True)
    assert finished.outcomes("lift") == {"scored": 1500}
    rounds = list_requests(model)
    order = [request.document for request in rounds]
    widest = max(
        len(set(order[:at])) - sum(1 for request in rounds[:at] if request.round == 2)
        for at in range(0, len(order), 50)
    )
    assert widest < 800


def test_images_of_answered_rounds_are_released(workspace: Path) -> None:
    helpers = """
import gc
from PIL import Image

class Picture(Image.Image):
    pass

def doc_to_visual(doc):
    return []

def doc_to_text(doc, previous_output=None, round_idx=None, previous_round_info=None, **more):
    if round_idx is None:
        return "look"
    if round_idx == 6:
        gc.collect()
        alive = sum(type(thing) is Picture for thing in gc.get_objects())  # objects of other tests may refuse isinstance
        return None, None, True, [str(alive)], None
    picture = Picture()
    picture.im, picture._mode, picture._size = Image.new("L", (2, 2), round_idx).im, "L", (2, 2)
    return [picture], f"look {round_idx}", False, previous_output, None

def process_results(doc, results):
    return {"alive": int(results[0][0])}
"""
    metric = {"metric": "alive", "aggregation": "mean", "higher_is_better": False}
    path = write_guessing(workspace, 1, helpers=helpers, metric_list=[metric])

    class ForgetfulModel(ScriptedModel):
        async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
            async for outcome in super().answer(window):
                self.asked.clear()
                yield outcome

    finished = run(ForgetfulModel(halve), path)
    assert finished.results["guessing"]["alive,none"] <= 2, "the round just answered, and none before it"
    (document,) = finished.samples("guessing")
    assert [
        json.loads(prompt)["messages"][0]["content"][0]["type"] for prompt, _ in document["arguments"][1:]
    ] == ["image"] * 5


# --- what is remembered --------------------------------------------------------------------------------


def test_a_finished_dialogue_sends_no_more_requests(workspace: Path) -> None:
    first = run(ScriptedModel(halve), write_guessing(workspace), no_cache=True)
    model = ScriptedModel(halve)
    again = run(model, write_guessing(workspace), no_cache=True)
    assert model.asked == [] and model.opened == 0
    assert again.results == first.results


def test_the_cache_serves_the_rounds_of_another_run(workspace: Path) -> None:
    first = run(ScriptedModel(halve), write_guessing(workspace), output_path="one")
    model = ScriptedModel(halve)
    second = run(model, write_guessing(workspace), output_path="two")
    assert model.asked == [] and model.opened == 0
    assert list(second.samples("guessing")) == list(first.samples("guessing"))


def test_a_failed_round_fails_its_document_and_only_missing_rounds_are_retried(workspace: Path) -> None:
    def breaks(request: Any) -> Any:
        return FAILED if request.round == 1 and request.document in (0, 3) else halve(request)

    path = write_guessing(workspace)
    broken = run(ScriptedModel(breaks), path, no_cache=True)
    assert broken.outcomes("guessing") == {"scored": 6, "failed": 2}
    model = ScriptedModel(halve)
    mended = run(model, path, no_cache=True)
    assert [
        (request.document, request.round)
        for request in sorted(list_requests(model), key=lambda r: r.document)
    ] == [
        (0, 1),
        (0, 2),
        (3, 1),
        (3, 2),
    ]
    whole = run(ScriptedModel(halve), path, no_cache=True, output_path="whole")
    assert list(mended.samples("guessing")) == list(whole.samples("guessing"))


# --- what goes wrong -----------------------------------------------------------------------------------


def test_a_helper_that_fails_in_a_round_fails_only_its_document(workspace: Path) -> None:
    helpers = GUESSING.replace("    assert len", "    doc['nothing'] if guess == 6 else 0\n    assert len")
    finished = run(ScriptedModel(halve), write_guessing(workspace, helpers=helpers))
    assert finished.outcomes("guessing") == {"scored": 5, "failed": 3}
    query = "SELECT DISTINCT why FROM outcomes WHERE outcome = 'failed'"
    why = [text for (text,) in finished.journal.query(query)]
    assert all(text.startswith("not rendered: round 2: Traceback") for text in why)
    assert all("KeyError: 'nothing'" in text and "utils.py" in text for text in why)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("None", "`doc_to_text` returned None"),
        ("([], 'text', False)", "`doc_to_text` returned ([], 'text', False)"),
        ("([], None, False, previous_output, {})", "the text must be a string, not None"),
        ("([], 'text', False, 'abc', {})", "`previous_output` must be a list, not 'abc'"),
        ("([3], 'text', False, previous_output, {})", "int is not an image"),
    ],
)
def test_an_invalid_round_is_an_error(workspace: Path, returned: str, said: str) -> None:
    helpers = GUESSING.replace(
        "    info = previous_round_info", f"    return {returned}\n    info = previous_round_info"
    )
    finished = run(ScriptedModel(halve), write_guessing(workspace, 1, helpers=helpers))
    ((why,),) = finished.journal.query("SELECT why FROM outcomes")
    assert said in why and "Traceback" not in why


def test_a_missing_image_of_a_round_fails_its_document(workspace: Path) -> None:
    helpers = GUESSING.replace("return [], text", "return ['nowhere.png'], text")
    finished = run(ScriptedModel(halve), write_guessing(workspace, helpers=helpers))
    assert finished.outcomes("guessing") == {"scored": 1, "failed": 7}
    whys = {why for (why,) in finished.journal.query("SELECT DISTINCT why FROM outcomes WHERE why != ''")}
    assert all(why.startswith("bad media: round 1: ") and "nowhere.png" in why for why in whys)


def test_an_endless_dialogue_is_stopped_reported_and_can_resume(workspace: Path) -> None:
    path = write_guessing(workspace)
    cut = run(ScriptedModel(halve), path, no_cache=True, max_rounds=2)
    assert cut.outcomes("guessing") == {"scored": 3, "failed": 5}
    query = "SELECT DISTINCT why FROM outcomes WHERE outcome = 'failed'"
    ((why,),) = cut.journal.query(query)
    assert why.startswith("too many rounds: the dialogue did not end within 2 rounds; raise --max_rounds")
    model = ScriptedModel(halve)
    whole = run(model, path, no_cache=True)
    assert whole.outcomes("guessing") == {"scored": 8}
    assert count_rounds(model) == {2: 5, 3: 1}, "the run went on where it was cut"


# --- the backlog ---------------------------------------------------------------------------------------


def test_priority_requests_come_first_and_a_flushed_backlog_returns_partial_windows() -> None:
    async def scene() -> list[list[str]]:
        backlog = Backlog(8)
        await backlog.put(["a", "b"])  # type: ignore[list-item]
        await backlog.put_first(["x", "y"])  # type: ignore[list-item]
        taken = [await backlog.take(3)]
        waiting = asyncio.create_task(backlog.take(3))
        await asyncio.sleep(0)
        assert not waiting.done(), "a full window may still come"
        await backlog.release_partial_windows()
        taken.append(await waiting)
        return taken  # type: ignore[return-value]

    assert asyncio.run(scene()) == [["x", "y", "a"], ["b"]]
