"""A model written for lm-eval (an object with `generate_until` and the like) as a model of Assay's."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from assay.core.errors import BadOption
from assay.core.ports import Ability, Traits
from assay.core.requests import Generate, Likelihood, Request
from assay.core.responses import Failure, LogProbability, Outcome, Response
from assay_compat.foreign.lm_eval.api.instance import Instance

__all__ = ["ForeignModel"]

_METHODS: dict[Ability, str] = {
    "generate": "generate_until",
    "likelihood": "loglikelihood",
    "rolling": "loglikelihood_rolling",
}
_WINDOW = 512


class ForeignModel:
    """Hands requests over as `Instance` objects, a window at a time."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._key = uuid.uuid4().hex
        if not any(callable(getattr(model, method, None)) for method in _METHODS.values()):
            raise BadOption(
                f"{type(model).__name__} is not a model: it has none of {', '.join(_METHODS.values())}",
                where="model",
            )

    @property
    def name(self) -> str:
        return type(self._model).__name__

    @property
    def traits(self) -> Traits:
        can: set[Ability] = {
            ability for ability, method in _METHODS.items() if callable(getattr(self._model, method, None))
        }
        if callable(getattr(self._model, "apply_chat_template", None)):
            can.add("chat")
        return Traits(abilities=frozenset(can), window=_WINDOW)

    async def identify(self) -> Mapping[str, str]:
        """Nobody knows what is in the object, so that it is like no other."""
        return {"name": self.name, "object": self._key}

    async def open(self) -> None:
        """It is open."""

    async def close(self) -> None:
        """Whoever made it closes it."""

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Each kind of request in one call, in a thread."""
        kinds: dict[tuple[str, type[Request]], list[Request]] = {}
        for request in window:
            kinds.setdefault((request.task, type(request)), []).append(request)
        for asked in kinds.values():
            for outcome in await asyncio.to_thread(self._answers, asked):
                yield outcome

    def _answers(self, asked: Sequence[Request]) -> list[Outcome]:
        method, read = _reading(asked[0])
        instances = [self._instance(method, request) for request in asked]
        values = list(getattr(self._model, method)(instances))
        if len(values) != len(asked):
            message = f"{self.name}.{method} gave {len(values)} answers to {len(asked)} requests"
            return [Failure(request_id=one.id, kind="model error", message=message) for one in asked]
        return [
            Response(request_id=one.id, value=read(value)) for one, value in zip(asked, values, strict=True)
        ]

    def _instance(self, method: str, request: Request) -> Instance:
        text = self._text(request)
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

    def _text(self, request: Request) -> str:
        """The prompt as the model reads it; messages go through its own template."""
        if not request.prompt.chat:
            return request.prompt.text
        history = [{"role": message.role, "content": message.text} for message in request.prompt.messages]
        if request.prompt.continues:
            return str(self._model.apply_chat_template(history, add_generation_prompt=False))
        return str(self._model.apply_chat_template(history))


def _reading(request: Request) -> tuple[str, Callable[[Any], str | LogProbability]]:
    """The method for a kind of request, and how what it gives is read."""
    if isinstance(request, Generate):
        return "generate_until", str
    if isinstance(request, Likelihood):
        return "loglikelihood", lambda pair: LogProbability(float(pair[0]), greedy=bool(pair[1]))
    return "loglikelihood_rolling", lambda total: LogProbability(
        float(total[0] if isinstance(total, tuple) else total)
    )
