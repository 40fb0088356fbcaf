"""A task that the model does not support is an error before anything loads, with an alternative as hint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.contracts.test_models import ADAPTERS
from tests.making import plan_run, write_choices, write_task, write_texts

from assay.core.errors import AssayError, UnsupportedRequest
from assay.core.ports import Ability, Model, Traits
from assay.core.records.messages import Audio, Image, Message, Part, Prompt, Text, Video
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.specs import TaskSpec
from assay.core.records.tools import Tool, Tools
from assay.engine.planning.setup.capabilities import check_abilities, list_required_abilities
from assay.models import BUILTIN_MODELS, find_models_with
from assay.testing import ScriptedModel

ALL = frozenset(get_args(Ability))


def refusal(model: Model, path: Path, **options: Any) -> UnsupportedRequest:
    with pytest.raises(UnsupportedRequest) as caught:
        plan_run(model, tasks=[str(path)], **options)
    return caught.value


def request(kind: str, *parts: Part, chat: bool = False) -> Request:
    prompt = Prompt((Message("user", (*parts, Text("?"))),), chat=chat)
    match kind:
        case "generate":
            return Generate(task="t", document=0, prompt=prompt, settings=Settings({}))
        case "likelihood":
            return Likelihood(task="t", document=0, prompt=prompt, continuation="!")
        case _:
            return RollingLikelihood(task="t", document=0, prompt=prompt)


def part(kind: type[Image] | type[Audio] | type[Video]) -> Part:
    return kind(digest="0", load=lambda: None)


ASKED: dict[str, Request] = {
    "generate": request("generate"),
    "likelihood": request("likelihood"),
    "rolling": request("rolling"),
    "chat": request("generate", chat=True),
    "image": request("generate", part(Image)),
    "audio": request("generate", part(Audio)),
    "video": request("generate", part(Video)),
    "tools": Generate(
        task="t",
        document=0,
        prompt=Prompt((Message("user", (Text("?"),)),)),
        settings=Settings({}),
        tools=Tools(tools=(Tool(name="area"),)),
    ),
}


def test_every_capability_has_a_test_request() -> None:
    assert set(ASKED) == ALL


@pytest.mark.parametrize("name", ASKED)
def test_required_capabilities_follow_from_the_request(name: str) -> None:
    needed = list_required_abilities([ASKED[name]])
    assert name in needed
    assert needed <= {name, "generate"}


def make(name: str) -> Model:
    """Create an adapter, or skip if its packages are not installed."""
    try:
        model = ADAPTERS[name]()
        _ = model.traits
    except (AssayError, ImportError) as error:
        pytest.skip(str(error))
    return model


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_adapter_is_checked_against_its_traits(adapter: str, name: str) -> None:
    model = make(adapter)
    needed = list_required_abilities([ASKED[name]])
    fits = needed <= model.traits.abilities and model.traits.needs <= needed
    spec = TaskSpec(name="task")
    if fits:
        check_abilities(model, spec, (ASKED[name],))
    else:
        with pytest.raises(UnsupportedRequest, match=f"`{model.name}` cannot answer `task`"):
            check_abilities(model, spec, (ASKED[name],))


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_no_adapter_supports_more_than_its_registration_says(adapter: str) -> None:
    name = adapter.partition(" ")[0].strip(",")
    registered = [model.abilities for model in BUILTIN_MODELS if name in model.names and model.abilities]
    if registered:
        assert make(adapter).traits.abilities <= registered[0]


@pytest.mark.parametrize(
    ("write", "abilities", "hint"),
    [
        (write_choices, {"generate"}, "--mc_as_generation"),
        (write_choices, {"generate", "chat"}, "models that can: `embedded`, `smollm2`"),
        (write_texts, {"generate"}, "models that can: `embedded`"),
        (write_task, {"likelihood"}, "it supports: likelihood; models that can: `embedded`"),
    ],
)
def test_the_hint_names_an_alternative(
    workspace: Path, write: Callable[[Path], Path], abilities: set[Any], hint: str
) -> None:
    model = ScriptedModel(abilities=frozenset(abilities))
    assert hint in refusal(model, write(workspace)).hint
    assert model.opened == 0


def test_a_model_without_chat_gets_a_plain_text_hint(workspace: Path) -> None:
    model = ScriptedModel(abilities=frozenset({"generate"}))
    path = write_task(workspace)
    assert "omit --apply_chat_template" in refusal(model, path, apply_chat_template=True).hint
    plan_run(model, tasks=[str(path)])


def test_models_that_need_a_medium_are_only_suggested_with_it() -> None:
    assert "ocr" in find_models_with(["generate", "image"])
    assert "ocr" not in find_models_with(["generate"])
    assert find_models_with(["rolling", "audio"]) == ["hf", "vllm"]


class WithoutSystem(ScriptedModel):
    """Its chat template refuses system messages."""

    @property
    def traits(self) -> Traits:
        return Traits(abilities=ALL, system=False)


class WithoutAudio(ScriptedModel):
    """Its chat template leaves system messages out, and it answers all the same."""

    @property
    def traits(self) -> Traits:
        return Traits(abilities=ALL, system=False, answers_without_system=True)


def test_a_system_message_that_is_ignored_is_noted_in_the_plan(workspace: Path) -> None:
    path = write_task(workspace)
    chat: dict[str, Any] = {"apply_chat_template": True}
    assert not plan_run(WithoutAudio(), tasks=[str(path)], **chat).notes
    (note,) = plan_run(WithoutAudio(), tasks=[str(path)], system_instruction="Be brief.", **chat).notes
    assert "has no system message" in note and "--system_instruction" in note
    described = write_task(workspace, "described", description="Answer with a number.")
    (note,) = plan_run(WithoutAudio(), tasks=[str(described)], **chat).notes
    assert "described" in note and "`description`" in note


def test_an_unsupported_system_message_is_an_error_in_the_plan(workspace: Path) -> None:
    path = write_task(workspace)
    plan_run(WithoutSystem(), tasks=[str(path)], apply_chat_template=True)
    plan_run(WithoutSystem(), tasks=[str(path)], system_instruction="Be brief.")  # plain text, no role
    options = {"apply_chat_template": True, "system_instruction": "Be brief."}
    assert "does not support system messages" in refusal(WithoutSystem(), path, **options).what
    described = write_task(workspace, "described", description="Answer with a number.")
    found = refusal(WithoutSystem(), described, apply_chat_template=True)
    assert "described.yaml" in found.where and "`description`" in found.hint
    plan_run(ScriptedModel(), tasks=[str(described)], **options)
