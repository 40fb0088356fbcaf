"""What a helper is told in each round, what becomes of what it returns, and how a dialogue ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from assay.core.errors import InvalidOption, TaskError
from assay.core.records.dialogues import DialogueResult
from assay.core.records.requests import Generate
from assay.tasks.dialogues import check_dialogue
from assay.tasks.task import Task

MakeTask = Callable[..., Task]
ROW = {"q": "Where?", "a": "here", "tools": [{"name": "lamp", "uses": [1]}]}


class Helper:
    """A `doc_to_text` that writes down what it is told and returns what a test wants, round by round."""

    def __init__(self, *returned: Any) -> None:
        self.returned = list(returned)
        self.told: list[dict[str, Any]] = []

    def text(
        self,
        doc: Any,
        lmms_eval_specific_kwargs: Any = None,
        previous_output: Any = None,
        round_idx: Any = None,
        previous_round_info: Any = None,
    ) -> Any:
        if round_idx is None:
            return f"{doc['q']} Go!"
        self.told.append(
            {
                "doc": doc,
                "keywords": lmms_eval_specific_kwargs,
                "outputs": list(previous_output),
                "round": round_idx,
                "info": previous_round_info,
            }
        )
        made = self.returned.pop(0)
        return made(previous_output) if callable(made) else made


@pytest.fixture
def talk(make_task: MakeTask) -> Callable[..., Any]:
    """`talk(helper, kind, …)`: the dialogue about one document."""

    def begin(helper: Helper, kind: str = "multi_round", **config: Any) -> Any:
        given = {"doc_to_text": helper.text, "doc_to_visual": lambda doc: [], **config}
        task = make_task([ROW], output_type=f"generate_until_{kind}", **given)
        document, (first, *_) = next(task.render())
        check_dialogue(task)
        return task.open_dialogue(document, first)  # type: ignore[arg-type]

    return begin


def tell(dialogue: Any, *answers: str) -> list[Any]:
    """Answer round by round: what was asked, and the end."""
    steps = [dialogue.next([])]
    for at in range(len(answers)):
        steps.append(dialogue.next(answers[: at + 1]))
    return steps


def texts(steps: list[Any]) -> list[Any]:
    return [step.prompt.text if isinstance(step, Generate) else step.answer for step in steps]


# --- multi-round ---------------------------------------------------------------------------------------


def test_each_round_is_told_all_answers_its_number_and_what_the_last_one_noted(talk: Any) -> None:
    helper = Helper(
        ([], "two?", False, ["one"], {"seen": 1}),
        ([], "three?", False, ["one", "two"], {"seen": 2}),
        (None, None, True, ["one", "two", "three"], None),
    )
    dialogue = talk(helper, lmms_eval_specific_kwargs={"default": {"post": "."}})
    assert texts(tell(dialogue, "one", "two", "three")) == [
        "Where? Go!",
        "two?",
        "three?",
        ["one", "two", "three"],
    ]
    keywords = {"default": {"post": "."}, "post": "."}
    assert helper.told == [
        {"doc": ROW, "keywords": keywords, "outputs": ["one"], "round": 1, "info": None},
        {"doc": ROW, "keywords": keywords, "outputs": ["one", "two"], "round": 2, "info": {"seen": 1}},
        {
            "doc": ROW,
            "keywords": keywords,
            "outputs": ["one", "two", "three"],
            "round": 3,
            "info": {"seen": 2},
        },
    ]


def test_what_a_round_returns_replaces_the_answers(talk: Any) -> None:
    helper = Helper(([], "go on", False, ["Cut."], None), (None, None, True, ["Cut.", None, None], None))
    steps = tell(talk(helper), "Cut this.", "And that.")
    assert steps[-1] == DialogueResult(answer=["Cut.", None, None])
    assert helper.told[1]["outputs"] == ["Cut.", "And that."]


def test_answers_are_kept_to_the_letter(talk: Any) -> None:
    helper = Helper(lambda outputs: (None, None, True, outputs, None))
    assert tell(talk(helper), "  spaces \n")[-1].answer == ["  spaces \n"]


def test_a_round_is_a_request_with_its_number_and_the_same_settings(talk: Any) -> None:
    helper = Helper(lambda outputs: ([], "Where? Go!", False, outputs, None))
    first, second = tell(talk(helper, generation_kwargs={"max_new_tokens": 9}), "x")
    assert (first.round, second.round, second.index, second.repeat) == (0, 1, 1, 0)
    assert second.settings is first.settings
    assert second.prompt == first.prompt
    assert second.id != first.id, "the same question in a later round is another draw"


def test_a_helper_that_writes_only_the_next_text_is_understood(talk: Any) -> None:
    assert texts(tell(talk(Helper("again")), "x")) == ["Where? Go!", "again"]


def test_an_answer_is_heard_once(talk: Any) -> None:
    helper = Helper(lambda outputs: ([], "go on", False, outputs, None))
    dialogue = talk(helper)
    assert dialogue.next(["x"]) is dialogue.next(["x"])
    assert len(helper.told) == 1


def test_kept_answers_are_heard_again_in_one_go(talk: Any) -> None:
    def returned() -> list[Any]:
        return [lambda outputs, n=n: ([], f"round {n}", n == 3, outputs, n) for n in (1, 2, 3)]

    slow, fast = Helper(*returned()), Helper(*returned())
    assert tell(talk(slow), "a", "b", "c")[-1] == talk(fast).next(["a", "b", "c"])
    assert slow.told == fast.told


def test_a_helper_may_scribble_on_what_it_is_given(talk: Any) -> None:
    helper = Helper(lambda outputs: ([], "go on", False, outputs, None), (None, None, True, None, None))
    dialogue = talk(helper, lmms_eval_specific_kwargs={"post": "."})
    dialogue.next(["a"])
    helper.told[0]["doc"]["tools"][0]["uses"].append(2)
    helper.told[0]["keywords"]["round_idx"] = 1
    dialogue.next(["a", "b"])
    assert helper.told[1]["doc"] == ROW and helper.told[1]["keywords"] == {"post": "."}


def test_pictures_of_a_round_stand_before_its_text(talk: Any) -> None:
    from PIL import Image

    helper = Helper(lambda outputs: ([Image.new("RGB", (2, 2))], "Look!", False, outputs, None))
    _, second = tell(talk(helper), "x")
    (message,) = second.prompt.messages
    assert [type(part).__name__ for part in message.parts] == ["Image", "Text"]
    assert second.prompt.chat


@pytest.mark.parametrize(("chat", "roles"), [(True, ["system", "user"]), (False, ["user"])])
def test_the_system_message_stands_before_every_round(
    make_task: MakeTask, chat: bool, roles: list[str]
) -> None:
    helper = Helper(lambda outputs: ([], "go on", False, outputs, None))
    task = make_task(
        [ROW],
        output_type="generate_until_multi_round",
        doc_to_text=helper.text,
        rendering={"chat": chat, "system_instruction": "Be brief. "},
    )
    document, (first,) = next(task.render())
    second = task.open_dialogue(document, first).next(["x"])  # type: ignore[arg-type]
    assert isinstance(second, Generate)
    assert [message.role for message in second.prompt.messages] == roles
    assert second.prompt.text == "Be brief. go on"


# --- messages ------------------------------------------------------------------------------------------


def make_message(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": text}]}]


def test_a_chat_model_gets_the_messages_of_each_round(talk: Any) -> None:
    def messages(doc: Any, **told: Any) -> Any:
        if not told.get("round_idx"):
            return make_message("first")
        return (
            make_message(f"after {told['previous_output']}"),
            told["round_idx"] == 2,
            told["previous_output"],
            None,
        )

    steps = tell(talk(Helper(), doc_to_messages=messages), "a", "b")
    assert texts(steps) == ["first", "after ['a']", ["a", "b"]]


def test_messages_that_are_no_round_end_the_dialogue(talk: Any) -> None:
    steps = tell(talk(Helper(), doc_to_messages=lambda doc: make_message("first")), "a")
    assert texts(steps) == ["first", ["a"]]


def test_a_model_that_does_not_chat_gets_the_texts(make_task: MakeTask) -> None:
    helper = Helper(lambda outputs: ([], "text", False, outputs, None))
    task = make_task(
        [ROW],
        output_type="generate_until_multi_round",
        doc_to_text=helper.text,
        doc_to_messages=lambda doc: make_message("message"),
        rendering={"chat_messages": False},
    )
    document, (first,) = next(task.render())
    assert texts(tell(task.open_dialogue(document, first), "x")) == ["Where? Go!", "text"]  # type: ignore[arg-type]


# --- agents --------------------------------------------------------------------------------------------

INFO = {"state": {"floor": 2, "cash": 5}, "tool_calls": 3, "invalid_steps": 1, "last_tool_result": "ok"}


def test_an_agent_is_judged_by_the_last_of_its_answers(talk: Any) -> None:
    helper = Helper(("", "next", False, ["a"], INFO), (None, None, True, ["x", '{"final": 1}'], INFO))
    assert texts(tell(talk(helper, "agentic"), "a", "b")) == ["Where? Go!", "next", '{"final": 1}']


def test_an_agent_that_takes_too_many_steps_is_judged_by_how_far_it_got(talk: Any) -> None:
    helper = Helper(*[lambda outputs: ([], "next", False, outputs, INFO)] * 2)
    dialogue = talk(helper, "agentic", generation_kwargs={"max_agentic_steps": 2})
    steps = tell(dialogue, "é", "b")
    assert json.loads(steps[-1].answer) == {
        "success": False,
        "error": "max_agentic_steps_reached",
        "tool_calls": 3.0,
        "valid_tool_calls": 3.0,
        "invalid_steps": 1.0,
        "state": {"floor": 2, "cash": 5},
        "last_model_output": "b",
        "trace": ["é", "b"],
        "cash": 5,
    }
    assert "é" in steps[-1].answer, "written as it is"


def test_without_notes_the_last_answer_stands(talk: Any) -> None:
    assert tell(talk(Helper(None), "agentic"), "that is all")[-1] == DialogueResult(answer="that is all")


def test_twelve_steps_are_allowed_where_nothing_is_said(talk: Any) -> None:
    dialogue = talk(Helper(*["more"] * 12), "agentic")
    assert isinstance(tell(dialogue, *"abcdefghijk")[-1], Generate)
    assert dialogue.next("abcdefghijkl") == DialogueResult(answer="l")


def test_what_a_step_does_not_give_stays(talk: Any) -> None:
    from PIL import Image

    red, blue = Image.new("RGB", (2, 2), "red"), Image.new("RGB", (2, 2), "blue")
    helper = Helper(
        (None, "same picture", False, None, {}), ([blue], None, False, None, {}), "only text", None
    )
    steps = tell(talk(helper, "agentic", doc_to_visual=lambda doc: [red]), "a", "b", "c")
    first, second, third, fourth = (step.prompt for step in steps)
    assert [prompt.text for prompt in (first, second, third, fourth)] == [
        "Where? Go!",
        "same picture",
        "same picture",
        "only text",
    ]
    assert second.media == first.media != third.media == fourth.media


def test_messages_are_not_for_agents(talk: Any) -> None:
    steps = tell(talk(Helper("next"), "agentic", doc_to_messages=lambda doc: make_message("message")), "a")
    assert texts(steps) == ["Where? Go!", "next"]


def test_a_full_trace_holds_every_step_as_it_was(make_task: MakeTask) -> None:
    state = {"floor": 0}

    def climb(outputs: Any) -> Any:
        state["floor"] += 1
        return [], f"floor {state['floor']}", False, outputs, {"state": state, "tool_calls": state["floor"]}

    helper = Helper(climb, climb, (None, None, True, ['{"success": true}'], {"state": state}))
    task = make_task(
        [ROW],
        output_type="generate_until_agentic",
        doc_to_text=helper.text,
        rendering={"agentic_trace_mode": "full"},
    )
    document, (first,) = next(task.render())
    answer = json.loads(tell(task.open_dialogue(document, first), "up", "up", "done")[-1].answer)  # type: ignore[arg-type]
    assert answer["success"] is True and answer["agentic_trace_mode"] == "full"
    assert [step["state"]["floor"] for step in answer["agentic_rounds"]] == [1, 2, 2]
    assert answer["agentic_rounds"][0] == {
        "round_idx": 1,
        "round_input": "Where? Go!",
        "model_output": "up",
        "terminal": False,
        "state": {"floor": 1},
        "tool_result": None,
        "tool_calls": 1,
        "valid_tool_calls": None,
        "invalid_steps": None,
        "next_input": "floor 1",
    }


# --- what is wrong before the first answer -------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"doc_to_text": "{{q}}"}, "needs a function as `doc_to_text`"),
        ({"doc_to_text": lambda doc: "x"}, "does not accept arguments about previous rounds"),
    ],
)
def test_a_dialogue_whose_rounds_nothing_makes_is_a_mistake(
    make_task: MakeTask, config: Any, said: str
) -> None:
    with pytest.raises(TaskError, match=said):
        check_dialogue(make_task([ROW], output_type="generate_until_multi_round", **config))


@pytest.mark.parametrize("steps", [0, "many", None])
def test_the_number_of_steps_must_be_one(make_task: MakeTask, steps: Any) -> None:
    task = make_task(
        [ROW],
        output_type="generate_until_agentic",
        doc_to_text=Helper().text,
        generation_kwargs={"max_agentic_steps": steps},
    )
    with pytest.raises(InvalidOption, match="whole number above 0"):
        check_dialogue(task)


def test_a_drawing_model_is_asked_once_with_its_settings(make_task: MakeTask) -> None:
    task = make_task([ROW], output_type="generate_visual_cot", generation_kwargs={"visual_cot": True})
    assert not task.is_dialogue
    _, (request,) = next(task.render())
    assert isinstance(request, Generate) and request.settings.values["visual_cot"] is True
