"""Check before the first request that a model supports what a task asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from assay.core.errors import UnsupportedRequest
from assay.core.ports import Ability, Model, Traits
from assay.core.records.messages import Audio, Image, Video
from assay.core.records.requests import Generate, Likelihood, Request
from assay.core.records.specs import TaskSpec
from assay.models import find_models_with

__all__ = ["check_abilities", "get_required_ability", "list_required_abilities"]


def get_required_ability(request: Request) -> Ability:
    """Return the ability that a request needs."""
    if isinstance(request, Generate):
        return "generate"
    return "likelihood" if isinstance(request, Likelihood) else "rolling"


def check_abilities(model: Model, task_spec: TaskSpec, requests: tuple[Request, ...]) -> None:
    """Raise `UnsupportedRequest` if the model lacks an ability that the requests need, or the requests lack what it needs."""
    needed = list_required_abilities(requests)
    traits = model.traits
    missing = sorted(needed - traits.abilities)
    if missing:
        raise UnsupportedRequest(
            f"the model `{model.name}` cannot answer `{task_spec.name}`: it does not support {', '.join(missing)}",
            where=task_spec.place("output_type"),
            hint="; ".join(_suggest_alternatives(task_spec, needed, missing, traits)),
        )
    unmet = sorted(traits.needs - needed)
    if unmet:
        raise UnsupportedRequest(
            f"the model `{model.name}` cannot answer `{task_spec.name}`: it needs {', '.join(unmet)} in the prompt",
            where=task_spec.place("doc_to_visual"),
            hint=_suggest_models(needed),
        )
    refuses = not traits.system and not traits.answers_without_system
    if refuses and any(_has_system(request) for request in requests):
        raise UnsupportedRequest(
            f"the model `{model.name}` cannot answer `{task_spec.name}`: its chat template does not support system messages",
            where=task_spec.place("description") if task_spec.description else "--system_instruction",
            hint="omit --system_instruction, or --apply_chat_template if the task has a `description`",
        )


def list_required_abilities(requests: Iterable[Request]) -> set[Ability]:
    """Return all abilities that requests need."""
    kinds: dict[type, Ability] = {Image: "image", Audio: "audio", Video: "video"}
    needed: set[Ability] = set()
    for request in requests:
        needed.add(get_required_ability(request))
        needed |= {kinds[type(part)] for part in request.prompt.media}
        if request.prompt.chat:
            needed.add("chat")
        if isinstance(request, Generate) and request.native_tools is not None:
            needed.add("tools")
    return needed


def _suggest_alternatives(
    spec: TaskSpec, needed: set[Ability], missing: Sequence[str], traits: Traits
) -> Iterator[str]:
    """Yield alternatives, the closest first."""
    if missing == ["likelihood"] and spec.output_type.compares_choices:
        yield "--mc_as_generation asks for the letter of a choice instead (scores are not comparable)"
    if "tools" in missing:
        yield "--tool_calls json describes the tools in the prompt"
    if missing == ["chat"]:
        yield "omit --apply_chat_template to send plain text"
    yield f"it supports: {', '.join(sorted(traits.abilities))}"
    yield _suggest_models(needed)


def _suggest_models(needed: set[Ability]) -> str:
    able = find_models_with(needed)
    names = ", ".join(f"`{name}`" for name in able[:5])
    return f"models that can: {names}" if able else "`assay ls models` shows others"


def _has_system(request: Request) -> bool:
    return request.prompt.chat and any(message.role == "system" for message in request.prompt.messages)
