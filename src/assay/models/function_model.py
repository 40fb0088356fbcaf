"""Models given as Python objects: functions of a prompt, and objects that implement the `Model` protocol in part."""

from __future__ import annotations

import asyncio
import inspect
import uuid
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, get_origin

from assay.core.errors import InvalidOption
from assay.core.fingerprints import digest_text
from assay.core.function_sources import SourceFile
from assay.core.ports import Ability, Model, Traits
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Outcome, Response
from assay.models.tokens import cut_at_stops

__all__ = ["FunctionModel", "ModelObject", "adapt_model"]

_MEMBERS = ("name", "traits", "identify", "open", "answer", "close")
_LIST_NAMES = ("prompts", "texts", "batch")
_WINDOW = 32
"""Prompts per call of a function over a list."""

_IN_FLIGHT = 16
"""Concurrent calls of an asynchronous function."""

_END = object()
_instance_ids: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


class ModelObject(Protocol):
    """An object with the members of `Model`, whose methods may be ordinary functions."""

    @property
    def name(self) -> str: ...

    @property
    def traits(self) -> Traits: ...

    def identify(self) -> Any: ...

    def open(self) -> Any: ...

    def answer(self, window: Sequence[Request]) -> Any: ...

    def close(self) -> Any: ...


class FunctionModel:
    """A model that calls a function with each prompt.

    The function gets the text of the prompt; a parameter called `messages` gets a chat as a list of dictionaries with `role`
    and `content`, a parameter called `prompts` (or annotated as a list) a list of texts. Parameters called `stop`,
    `max_tokens`, `temperature` and `seed` get the settings of the request. The function may be asynchronous.

    >>> FunctionModel(str.upper, name="shout").name
    'shout'
    """

    def __init__(
        self, function: Callable[..., Any], *, name: str = "", version: str = "", in_flight: int = _IN_FLIGHT
    ) -> None:
        """`version`: identifies the model behind the function; without it, the source of the function does.
        `in_flight`: the number of concurrent calls of an asynchronous function."""
        self._function = function
        self._name = name or _find_name(function)
        self._version = version
        self._in_flight = in_flight
        parameters = _list_parameters(function)
        self._setting_names = [
            name for name in ("stop", "max_tokens", "temperature", "seed") if name in parameters
        ]
        first = next(iter(parameters.values()), None)
        self._takes_messages = first is not None and first.name == "messages"
        self._takes_list = first is not None and (
            first.name in _LIST_NAMES or (_is_list_type(first.annotation) and not self._takes_messages)
        )
        call = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        self._is_async = inspect.iscoroutinefunction(inspect.unwrap(call))

    @property
    def name(self) -> str:
        return self._name

    @property
    def traits(self) -> Traits:
        abilities: set[Ability] = {"generate"}
        if self._takes_messages:
            abilities.add("chat")
        return Traits(
            abilities=frozenset(abilities),
            window=_WINDOW if self._takes_list else 1,
            in_flight=self._in_flight if self._is_async else 1,
        )

    async def identify(self) -> Mapping[str, str]:
        """Return the name and the version, or a hash of the source. A function that uses other objects is unique."""
        if self._version:
            return {"name": self.name, "version": self._version}
        file = SourceFile()
        file.add("function", self._function)
        known = {"name": self.name, "source": digest_text(file.render())}
        return {**known, "instance": _find_instance_id(self._function)} if file.unsaved else known

    async def open(self) -> None:
        """Nothing to load."""

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Call the function, once per request or once per window."""
        texts = [
            request for request in window if isinstance(request, Generate) and not request.prompt.has_media
        ]
        for request in window:
            if request not in texts:
                kind = "media" if request.prompt.has_media else "log probabilities"
                message = f"a model function supports no {kind}"
                yield Failure(request_id=request.id, kind="bad request", message=message)
        groups: dict[str, list[Generate]] = {}  # the requests of one call have the same settings
        for request in texts:
            key = request.settings.digest if self._takes_list else request.id
            groups.setdefault(key, []).append(request)
        for requests in groups.values():
            for outcome in await self._call(requests):
                yield outcome

    async def _call(self, requests: Sequence[Generate]) -> list[Outcome]:
        given = [self._build_input(request) for request in requests]
        settings = requests[0].settings
        values: dict[str, Any] = {
            "stop": list(settings.stop),
            "max_tokens": settings.max_tokens,
            "temperature": settings.temperature,
            "seed": settings.seed,
        }
        keywords = {name: values[name] for name in self._setting_names}
        argument = given if self._takes_list else given[0]
        if self._is_async:
            returned = await self._function(argument, **keywords)
        else:
            returned = await asyncio.to_thread(self._function, argument, **keywords)
            if inspect.isawaitable(returned):
                returned = await returned
        if not self._takes_list:
            return [_build_outcome(requests[0], returned)]
        if isinstance(returned, str) or not isinstance(returned, Iterable):
            message = (
                f"the model function returned {_describe_value(returned)} for a list of prompts, not a list"
            )
            return [_build_failure(request, message) for request in requests]
        answers = list(returned)
        if len(answers) != len(requests):
            message = f"the model function returned {len(answers)} answers for {len(requests)} prompts"
            return [_build_failure(request, message) for request in requests]
        return [_build_outcome(request, one) for request, one in zip(requests, answers, strict=True)]

    def _build_input(self, request: Generate) -> Any:
        if self._takes_messages:
            return [{"role": message.role, "content": message.text} for message in request.prompt.messages]
        return request.prompt.text

    async def close(self) -> None:
        """Nothing to release."""


def adapt_model(given: Any, *, where: str = "model") -> Model:
    """Return a model for a Python object: a function, or an object with the members of `Model`.

    Members that are usually asynchronous may be ordinary methods. `answer` may return a list.

    Raises:
        InvalidOption: The object is a class, or lacks a member.
    """
    if isinstance(given, type):
        raise InvalidOption(
            f"`{where}` is the class {given.__name__}, not an instance",
            where=where,
            hint=f"pass an instance: `{given.__name__}()`",
        )
    missing = [name for name in _MEMBERS if not hasattr(given, name)]
    if len(missing) == len(_MEMBERS) or "answer" in missing:
        if callable(given):
            return FunctionModel(given)
        if len(missing) == len(_MEMBERS):
            raise InvalidOption(
                f"`{where}` must be a name, a function or a model, not {type(given).__name__}",
                where=where,
                hint="pass a function of a prompt: model=lambda prompt: …",
            )
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        raise InvalidOption(
            f"the model {type(given).__name__} lacks {names}",
            where=where,
            hint="see `assay.Model` for all members, or pass a function of a prompt: model=lambda prompt: …",
        )
    is_complete = inspect.isasyncgenfunction(given.answer) and all(
        inspect.iscoroutinefunction(getattr(given, name)) for name in ("identify", "open", "close")
    )
    is_adapted = hasattr(given.answer, "__wrapped__") or not inspect.ismethod(given.answer)
    return given if is_complete or (is_adapted and isinstance(given, Model)) else _AdaptedModel(given)


class _AdaptedModel:
    """A model whose methods may be synchronous."""

    def __init__(self, model: Any) -> None:
        self._model = model
        for name in dir(type(model)):  # optional members, which protocols look up on the object
            if not name.startswith("_") and name not in _MEMBERS:
                setattr(self, name, getattr(model, name))

    @property
    def name(self) -> str:
        return str(self._model.name)

    @property
    def traits(self) -> Traits:
        traits: Traits = self._model.traits
        return traits

    async def identify(self) -> Mapping[str, str]:
        found: Mapping[str, str] = await _call(self._model.identify)
        return found

    async def open(self) -> None:
        await _call(self._model.open)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Yield the outcomes of an ordinary method from a thread, one by one."""
        answer = self._model.answer
        if inspect.isasyncgenfunction(answer):
            async for outcome in answer(window):
                yield outcome
            return
        returned = await _call(answer, window)
        if hasattr(returned, "__aiter__"):
            async for outcome in returned:
                yield outcome
            return
        if not isinstance(returned, Iterable):
            raise InvalidOption(
                f"`answer` of the model {type(self._model).__name__} returned {_describe_value(returned)}",
                where="model",
                hint="return a list of `assay.Response`, or yield them",
            )
        outcomes = iter(returned)
        while (outcome := await asyncio.to_thread(next, outcomes, _END)) is not _END:
            if not isinstance(outcome, (Response, Failure)):
                raise InvalidOption(
                    f"`answer` of the model {type(self._model).__name__} returned {_describe_value(outcome)}",
                    where="model",
                    hint="yield an `assay.Response` or an `assay.Failure` for each request",
                )
            yield outcome

    async def close(self) -> None:
        await _call(self._model.close)


async def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a method that may be asynchronous."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    returned = await asyncio.to_thread(function, *arguments)
    return await returned if inspect.isawaitable(returned) else returned


def _list_parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function, eval_str=True).parameters
    except (TypeError, ValueError, NameError):
        try:
            return inspect.signature(function).parameters
        except (TypeError, ValueError):
            return {}


def _is_list_type(annotation: Any) -> bool:
    kind = get_origin(annotation) or annotation
    return isinstance(kind, type) and kind is not str and issubclass(kind, Sequence)


def _find_name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "")
    return name if name.isidentifier() else "function" if name else type(function).__name__


def _find_instance_id(function: Any) -> str:
    """Return an id of this object in this process."""
    try:
        return _instance_ids.setdefault(function, uuid.uuid4().hex)
    except TypeError:  # no weak reference to it
        return uuid.uuid4().hex


def _build_outcome(request: Generate, returned: Any) -> Outcome:
    if isinstance(returned, str):
        text = cut_at_stops(returned, request.settings.stop)
        return Response(request_id=request.id, value=text, finish="stop")
    return _build_failure(request, f"the model function returned {_describe_value(returned)}, not a text")


def _build_failure(request: Generate, message: str) -> Failure:
    return Failure(request_id=request.id, kind="model error", message=message)


def _describe_value(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
