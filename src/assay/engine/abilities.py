"""Whether a model can do what a task asks, found before the first request."""

from __future__ import annotations

from assay.core.errors import CannotAnswer
from assay.core.messages import Audio, Image, Video
from assay.core.ports import Ability, Model
from assay.core.requests import Generate, Likelihood, Request
from assay.core.specs import TaskSpec

__all__ = ["ability", "check_abilities"]


def ability(request: Request) -> Ability:
    """What a model must be able to do to answer a request."""
    if isinstance(request, Generate):
        return "generate"
    return "likelihood" if isinstance(request, Likelihood) else "rolling"


def check_abilities(model: Model, task_spec: TaskSpec, requests: tuple[Request, ...]) -> None:
    """Raise `CannotAnswer` where the requests of a document need what the model has not, or lack what it needs."""
    kinds: dict[type, Ability] = {Image: "image", Audio: "audio", Video: "video"}
    needed: set[Ability] = {ability(request) for request in requests}
    for request in requests:
        needed |= {kinds[type(part)] for part in request.prompt.media}
        if request.prompt.chat:
            needed.add("chat")
    missing = sorted(needed - model.traits.abilities)
    if missing:
        letters = missing == ["likelihood"] and task_spec.output_type == "multiple_choice"
        other = (
            "--mc_as_generation asks for the letter of a choice instead, which is another score; "
            if letters
            else ""
        )
        raise CannotAnswer(
            f"the model `{model.name}` cannot answer `{task_spec.name}`: it does not do {', '.join(missing)}",
            where=task_spec.place("output_type"),
            hint=f"{other}it does: {', '.join(sorted(model.traits.abilities))}; `assay ls models` shows others",
        )
    unmet = sorted(model.traits.needs - needed)
    if unmet:
        raise CannotAnswer(
            f"the model `{model.name}` cannot answer `{task_spec.name}`: it needs {', '.join(unmet)} in the prompt",
            where=task_spec.place("doc_to_visual"),
            hint="`assay ls models` shows others",
        )
