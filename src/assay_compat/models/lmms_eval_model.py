"""Adapter from lmms-eval model objects to Assay models.

A request reaches the model in lmms-eval's form: the text, the generation settings, a callback for the media or the
messages of the document, and the document's place in `task_dict`. The callbacks return the media of the request, which
Assay has read already.
"""

from __future__ import annotations

import asyncio
import copy
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.core.ports import Ability, Traits
from assay.core.records.documents import Document
from assay.core.records.messages import Image, Media, Text, Video
from assay.core.records.requests import Generate, Likelihood, Request
from assay.core.records.responses import LogProbability, Outcome, Response, Usage
from assay_compat.models.calls import ModelCall, stream_calls
from assay_compat.models.sources import ClassSource, GlobalRandomState, ObjectSource
from assay_compat.shims.lmms_eval.api.instance import Instance

__all__ = ["LmmsEvalModel", "is_lmms_class"]

_WINDOW = 64
"""Requests per call if the model processes them one by one: a call is the unit that an interruption loses."""

_MEDIA: frozenset[Ability] = frozenset({"image", "audio", "video"})


def is_lmms_class(model_class: type) -> bool:
    """Whether a class derives from `lmms_eval.api.model.lmms`, installed or not."""
    return any(base.__name__ == "lmms" for base in model_class.__mro__)


class LmmsEvalModel:
    """Passes requests to the model as `Instance` lists, in the order of the tasks."""

    def __init__(
        self,
        source: ClassSource | ObjectSource | Any,
        *,
        seeds: Sequence[int | None] | None = None,
        requests_per_call: int | None = None,
    ) -> None:
        self._source = source if isinstance(source, (ClassSource, ObjectSource)) else ObjectSource(source)
        one_by_one = str(self._source.batch_size) in ("1", "None")
        self._window = requests_per_call or (_WINDOW if one_by_one else sys.maxsize)
        self._random = GlobalRandomState(seeds)
        self._documents: dict[tuple[str, int], tuple[str, Mapping[str, Any]]] = {}
        self._files: tempfile.TemporaryDirectory[str] | None = None
        self._model: Any = None

    @property
    def name(self) -> str:
        return self._source.title

    @property
    def prompted_as(self) -> str:
        """The name by which tasks select a prompt for the model (`lmms_eval_specific_kwargs`)."""
        return self._source.name if isinstance(self._source, ClassSource) else ""

    @property
    def _is_simple(self) -> bool:
        return bool(getattr(self._source.model_class, "is_simple", True))

    @property
    def traits(self) -> Traits:
        abilities: set[Ability] = {"generate", "likelihood", *_MEDIA}
        if not self._is_simple:
            abilities.add("chat")
        return Traits(abilities=frozenset(abilities), window=self._window, keeps_order=True)

    async def identify(self) -> Mapping[str, str]:
        return await asyncio.to_thread(self._source.identify)

    async def open(self) -> None:
        await asyncio.to_thread(self._load)

    def _load(self) -> None:
        with self._random.apply():
            self._model = self._source.create()
        self._files = tempfile.TemporaryDirectory(prefix="assay-media-")

    async def close(self) -> None:
        """Release the model and temporary media files."""
        self._model = None
        if self._files is not None:
            self._files.cleanup()

    def receive_documents(self, split: str, documents: Sequence[Document]) -> None:
        """Keep the documents of the requests that follow, for `task_dict`."""
        self._documents.update(((one.task, one.index), (split, one.fields)) for one in documents)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Send the requests of each kind in one call, in a thread."""
        calls = [ModelCall(requests, self._send, _read_value) for requests in _divide(window)]
        async for outcome in stream_calls(calls):
            yield outcome
        for request in window:
            self._documents.pop((request.task, request.document), None)

    def _send(self, requests: Sequence[Request], receive: Callable[[int, Any], None]) -> Sequence[Any]:
        method = "generate_until" if isinstance(requests[0], Generate) else "loglikelihood"
        documents: dict[str, dict[str, dict[int, _RequestDocument]]] = {}
        instances = []
        for request in requests:
            split, fields = self._documents.get((request.task, request.document), ("test", {}))
            document = _RequestDocument(fields, request)
            documents.setdefault(request.task, {}).setdefault(split, {})[request.document] = document
            instances.append(self._build_instance(method, request, split))
        self._model.task_dict = documents
        with self._random.apply():
            return list(getattr(self._model, method)(instances))

    def _build_instance(self, method: str, request: Request, split: str) -> Instance:
        text, place = request.prompt.text, (request.document, request.task, split)
        arguments: tuple[Any, ...]
        if isinstance(request, Likelihood):
            arguments = (text, request.continuation, self._load_visuals, *place)
        else:
            settings = copy.deepcopy(dict(request.settings.values)) if isinstance(request, Generate) else {}
            simple = (text, settings, self._load_visuals, *place)
            arguments = simple if self._is_simple else (text, self._load_messages, settings, *place)
        metadata = {"task": request.task, "doc_id": request.document, "repeats": 1, "split": split}
        return Instance(request_type=method, arguments=arguments, idx=request.index, metadata=metadata)

    # --- the callbacks of a request: `doc_to_visual`, `doc_to_messages` ----------------------------

    def _load_visuals(self, document: Any, *ignored: Any, **settings: Any) -> list[Any]:
        request = document.request
        return [self._load_medium(part) for part in request.prompt.media]

    def _load_messages(self, document: Any, *ignored: Any, **settings: Any) -> list[dict[str, Any]]:
        return [
            {"role": message.role, "content": [self._write_part(part) for part in message.parts]}
            for message in document.request.prompt.messages
        ]

    def _write_part(self, part: Text | Media) -> dict[str, Any]:
        if isinstance(part, Text):
            return {"type": "text", "text": part.text}
        content = {"type": type(part).__name__.lower(), "url": self._load_medium(part)}
        if isinstance(part, Video):
            bounds = {"start_time": part.start_s, "end_time": part.end_s}
            content.update({key: value for key, value in bounds.items() if value is not None})
        return content

    def _load_medium(self, part: Media) -> Any:
        """Return an image, the samples of a clip, or the path or the frames of a video."""
        content = part.load()
        if isinstance(part, Image):
            return content.copy()
        if not isinstance(part, Video):
            samples, rate_hz = content
            return {"array": samples, "sampling_rate": rate_hz}
        if not isinstance(content, (bytes, bytearray)):
            return str(content) if isinstance(content, Path) else content
        assert self._files is not None
        path = Path(self._files.name) / f"{part.digest[:32]}.mp4"
        if not path.exists():
            path.write_bytes(content)
        return str(path)


class _RequestDocument(dict[str, Any]):
    """A document in `task_dict`, with the request that the model asks it about."""

    def __init__(self, fields: Mapping[str, Any], request: Request) -> None:
        super().__init__(fields)
        self.request = request


def _divide(window: Sequence[Request]) -> Iterator[list[Request]]:
    """Divide a window into calls: one kind each, and one prompt for each document (rounds of a dialogue differ)."""
    left = list(window)
    while left:
        prompts: dict[tuple[str, int], str] = {}
        call: list[Request] = []
        rest: list[Request] = []
        for request in left:
            media = request.prompt.digest if isinstance(request, Generate) else _digest_media(request)
            same = prompts.setdefault((request.task, request.document), media) == media
            (call if same and type(request) is type(left[0]) else rest).append(request)
        yield call
        left = rest


def _digest_media(request: Request) -> str:
    return " ".join(part.digest for part in request.prompt.media)


def _read_value(request: Request, value: Any) -> Outcome:
    """Read a text, a `GenerationResult`, a pair of text and token counts, or a pair of log probability and greedy.

    The models of lmms-eval return losses, and its interface describes log probabilities: the sign tells which it is.
    """
    if not isinstance(request, Generate):
        total, greedy = (*value, False)[:2] if isinstance(value, (tuple, list)) else (value, False)
        value = LogProbability(-abs(float(total)), greedy=bool(greedy))
        return Response(request_id=request.id, value=value)
    counts = getattr(value, "token_counts", None)
    text = getattr(value, "text", value)
    if isinstance(text, (tuple, list)) and text and isinstance(text[0], str):
        text, counts = text[0], text[1] if len(text) == 2 and not isinstance(text[1], str) else counts
    return Response(request_id=request.id, value=str(text), usage=_read_usage(counts))


def _read_usage(counts: Any) -> Usage | None:
    if counts is None:
        return None
    values = counts if isinstance(counts, Mapping) else vars(counts)
    return Usage(
        input_tokens=int(values.get("input_tokens") or 0), output_tokens=int(values.get("output_tokens") or 0)
    )
