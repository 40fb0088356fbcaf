"""Adapter from lm-eval model objects (with `generate_until` etc.) to Assay models."""

from __future__ import annotations

import asyncio
import copy
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.ports import Ability, Traits
from assay.core.records.documents import Document
from assay.core.records.messages import Audio, Image, Message, Text
from assay.core.records.requests import Generate, Likelihood, Request
from assay.core.records.responses import LogProbability, Outcome, Response
from assay.user_code.random_state import LOOKUPS_BEFORE_PROMPTS
from assay_compat.models.calls import ModelCall, PartialResults, read_key, stream_calls
from assay_compat.models.sources import ClassSource, GlobalRandomState, ObjectSource
from assay_compat.shims.lm_eval.api.instance import Instance

__all__ = ["LmEvalModel"]

_METHODS: dict[Ability, str] = {
    "generate": "generate_until",
    "likelihood": "loglikelihood",
    "rolling": "loglikelihood_rolling",
}


class LmEvalModel:
    """Passes all requests of one kind to the model as one `Instance` list, in the order of the tasks, as lm-eval does."""

    def __init__(
        self,
        source: ClassSource | ObjectSource | Any,
        *,
        seeds: Sequence[int | None] | None = None,
        requests_per_call: int | None = None,
    ) -> None:
        """`source` may be a model object. `seeds` are those of Python, NumPy and torch; None leaves them alone."""
        self._source = source if isinstance(source, (ClassSource, ObjectSource)) else ObjectSource(source)
        self._window = requests_per_call or sys.maxsize
        self._random = GlobalRandomState(seeds)
        self._partial = PartialResults()
        self._documents: dict[tuple[str, int], Mapping[str, Any]] = {}
        self._model: Any = None
        self._has_answered = False
        if not self._get_methods():
            raise InvalidOption(
                f"{self.name} is not a model: it lacks all of {', '.join(_METHODS.values())}", where="model"
            )

    def _get_methods(self) -> set[Ability]:
        found = self._source.model_class
        return {ability for ability, method in _METHODS.items() if callable(getattr(found, method, None))}

    @property
    def name(self) -> str:
        return self._source.title

    @property
    def prompted_as(self) -> str:
        """The name by which tasks select a prompt for the model."""
        return self._source.name if isinstance(self._source, ClassSource) else ""

    @property
    def traits(self) -> Traits:
        model_class = self._source.model_class
        abilities = self._get_methods()
        if _overrides(model_class, "apply_chat_template"):
            abilities.add("chat")
        if getattr(model_class, "MULTIMODAL", False):
            abilities |= {"image", "audio"}
        return Traits(abilities=frozenset(abilities), window=self._window, keeps_order=True)

    async def identify(self) -> Mapping[str, str]:
        return await asyncio.to_thread(self._source.identify)

    async def open(self) -> None:
        await asyncio.to_thread(self._load)

    def _load(self) -> None:
        with self._random.apply():
            self._model = self._source.create()
        if callable(getattr(self._model, "set_cache_hook", None)):
            self._model.set_cache_hook(self._partial)

    async def close(self) -> None:
        """Release a model of the run; the caller owns an object."""
        self._model = None

    def receive_documents(self, split: str, documents: Sequence[Document]) -> None:
        """Keep the documents of the requests that follow, for `Instance.doc`."""
        self._documents.update(((one.task, one.index), one.fields) for one in documents)

    def receive_random_states(self, states: tuple[Any, Any]) -> None:
        """Receive the generators as the loading of the tasks left them."""
        self._random.receive(states)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Send the requests of each kind in one call, in a thread."""
        if not self._has_answered:
            self._has_answered = True
            self._random.start_requests(LOOKUPS_BEFORE_PROMPTS * len({request.task for request in window}))
        kinds: dict[type[Request], list[Request]] = {}
        for request in window:
            kinds.setdefault(type(request), []).append(request)
        calls = [ModelCall(requests, self._send, self._read) for requests in kinds.values()]
        async for outcome in stream_calls(calls):
            yield outcome
        for request in window:
            self._documents.pop((request.task, request.document), None)

    def _send(self, requests: Sequence[Request], receive: Callable[[int, Any], None]) -> Sequence[Any]:
        method = _METHODS[_find_ability(requests[0])]
        instances = [self._build_instance(method, request) for request in requests]
        keys = [read_key(method, instance.args) for instance in instances]
        if _reports_final_results(type(self._model), method):
            self._partial.start(method, keys, receive)
        try:
            with self._random.apply():
                return _call_quietly(getattr(self._model, method), instances)
        finally:
            self._partial.stop()

    def _read(self, request: Request, value: Any) -> Outcome:
        if isinstance(request, Generate):
            return Response(request_id=request.id, value=str(value))
        total, greedy = (*value, False)[:2] if isinstance(value, (tuple, list)) else (value, False)
        return Response(request_id=request.id, value=LogProbability(float(total), greedy=bool(greedy)))

    def _build_instance(self, method: str, request: Request) -> Instance:
        text = self._render_prompt(request)
        arguments: tuple[Any, ...] = (text,)
        if isinstance(request, Generate):
            arguments = (text, copy.deepcopy(dict(request.settings.values)))
        elif isinstance(request, Likelihood):
            arguments = (text, request.continuation)
        if request.prompt.has_media:
            arguments = (*arguments, _collect_media(request))
        return Instance(
            request_type=method,
            doc=dict(self._documents.get((request.task, request.document), {})),
            arguments=arguments,
            idx=request.index,
            metadata=(request.task, request.document, 1),
        )

    def _render_prompt(self, request: Request) -> Any:
        """Return the prompt text; messages go through the object's chat template, which may return its own type."""
        if not request.prompt.chat:
            return (
                _write_text(request.prompt.messages[0]) if request.prompt.has_media else request.prompt.text
            )
        history = [
            {"role": message.role, "content": _write_text(message)} for message in request.prompt.messages
        ]
        if request.prompt.continues:
            return self._model.apply_chat_template(history, add_generation_prompt=False)
        return self._model.apply_chat_template(history)


def _find_ability(request: Request) -> Ability:
    if isinstance(request, Generate):
        return "generate"
    return "likelihood" if isinstance(request, Likelihood) else "rolling"


def _call_quietly(method: Callable[..., Any], instances: list[Instance]) -> list[Any]:
    """Call a method without its progress bar, if it can do without: Assay shows the progress."""
    quiet = "disable_tqdm" in inspect.signature(method).parameters
    return list(method(instances, disable_tqdm=True) if quiet else method(instances))


def _overrides(model_class: type, method: str) -> bool:
    """Whether a class implements a method that the abstract base class `LM` only declares."""
    for base in model_class.__mro__:
        if method in vars(base):
            return base.__name__ != "LM"
    return False


def _write_text(message: Message) -> str:
    """Return the text of a message with lm-eval's placeholder for each image."""
    parts = message.parts
    return "".join(
        part.text if isinstance(part, Text) else "<image>" if isinstance(part, Image) else ""
        for part in parts
    )


def _collect_media(request: Request) -> dict[str, list[Any]]:
    """Return the media of a request in lm-eval's form."""
    media: dict[str, list[Any]] = {}
    for part in request.prompt.media:
        if isinstance(part, Image):
            media.setdefault("visual", []).append(part.load())
        elif isinstance(part, Audio):
            samples, rate_hz = part.load()
            media.setdefault("audio", []).append({"array": samples, "sampling_rate": rate_hz})
    return media


def _reports_final_results(model_class: type, method: str) -> bool:
    """Whether the results that a model reports to its cache hook are those it returns.

    The classes of lm-eval report what they return. A subclass that overrides a method can change what its base has
    reported, so only a method that reports by itself is trusted.
    """
    for name in (method, "_loglikelihood_tokens"):
        function = getattr(model_class, name, None)
        names = getattr(getattr(function, "__code__", None), "co_names", ())
        is_known = getattr(function, "__module__", "").partition(".")[0] in ("lm_eval", "assay_compat")
        if function is not None and not is_known and ("add_partial" not in names or "super" in names):
            return False
    return True
