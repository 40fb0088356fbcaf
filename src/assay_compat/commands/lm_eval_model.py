"""Adapter from lm-eval model objects (with `generate_until` etc.) to Assay models."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.ports import Ability, Traits
from assay.core.requests import Generate, Likelihood, Request
from assay.core.responses import Failure, LogProbability, Outcome, Response
from assay_compat.shims.lm_eval.api.instance import Instance

__all__ = ["LmEvalModel"]

_METHODS: dict[Ability, str] = {
    "generate": "generate_until",
    "likelihood": "loglikelihood",
    "rolling": "loglikelihood_rolling",
}
_WINDOW = 512


class LmEvalModel:
    """Passes requests to the object as `Instance` lists, one window at a time."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._key = uuid.uuid4().hex
        if not any(callable(getattr(model, method, None)) for method in _METHODS.values()):
            raise InvalidOption(
                f"{type(model).__name__} is not a model: it lacks all of {', '.join(_METHODS.values())}",
                where="model",
            )

    @property
    def name(self) -> str:
        return type(self._model).__name__

    @property
    def traits(self) -> Traits:
        abilities: set[Ability] = {
            ability for ability, method in _METHODS.items() if callable(getattr(self._model, method, None))
        }
        if callable(getattr(self._model, "apply_chat_template", None)):
            abilities.add("chat")
        return Traits(abilities=frozenset(abilities), window=_WINDOW)

    async def identify(self) -> Mapping[str, str]:
        """Return a unique identity, because the contents of the object are unknown."""
        return {"name": self.name, "object": self._key}

    async def open(self) -> None:
        """Do nothing: the object is ready."""

    async def close(self) -> None:
        """Do nothing: the caller owns the object."""

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Send the requests of each kind in one call, in a thread."""
        kinds: dict[tuple[str, type[Request]], list[Request]] = {}
        for request in window:
            kinds.setdefault((request.task, type(request)), []).append(request)
        for asked in kinds.values():
            for outcome in await asyncio.to_thread(self._call_model, asked):
                yield outcome

    def _call_model(self, asked: Sequence[Request]) -> list[Outcome]:
        method, read = _select_method(asked[0])
        instances = [self._build_instance(method, request) for request in asked]
        values = list(getattr(self._model, method)(instances))
        if len(values) != len(asked):
            message = f"{self.name}.{method} returned {len(values)} answers for {len(asked)} requests"
            return [Failure(request_id=one.id, kind="model error", message=message) for one in asked]
        return [
            Response(request_id=one.id, value=read(value)) for one, value in zip(asked, values, strict=True)
        ]

    def _build_instance(self, method: str, request: Request) -> Instance:
        text = self._render_prompt(request)
        arguments: tuple[Any, ...] = (text,)
        if isinstance(request, Generate):
            arguments = (text, dict(request.settings.values))
        elif isinstance(request, Likelihood):
            arguments = (text, request.continuation)
        return Instance(
            request_type=method,
            doc={},
            arguments=arguments,
            idx=request.index,
            metadata=(request.task, request.document, 1),
        )

    def _render_prompt(self, request: Request) -> str:
        """Return the prompt text; messages go through the object's chat template."""
        if not request.prompt.chat:
            return request.prompt.text
        history = [{"role": message.role, "content": message.text} for message in request.prompt.messages]
        if request.prompt.continues:
            return str(self._model.apply_chat_template(history, add_generation_prompt=False))
        return str(self._model.apply_chat_template(history))


def _select_method(request: Request) -> tuple[str, Callable[[Any], str | LogProbability]]:
    """Return the method for a request and the function that parses its result."""
    if isinstance(request, Generate):
        return "generate_until", str
    if isinstance(request, Likelihood):
        return "loglikelihood", lambda pair: LogProbability(float(pair[0]), greedy=bool(pair[1]))
    return "loglikelihood_rolling", lambda total: LogProbability(
        float(total[0] if isinstance(total, tuple) else total)
    )
