"""`openai`: any server that speaks OpenAI's chat completions or responses API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

from assay.core.errors import AssayError, BadMedia
from assay.core.messages import Media, Text
from assay.core.ports import Ability, Traits
from assay.core.requests import Generate, Request
from assay.core.responses import Failure, Outcome, Response, Usage
from assay.models.prices import billed_name
from assay.models.remote.chat import response_of
from assay.models.remote.endpoint import Endpoint
from assay.models.remote.faults import NotAnswered
from assay.models.remote.gathering import as_done
from assay.models.remote.media import Look, prepare, write_aside
from assay.models.remote.options import Options, read_options
from assay.models.remote.probe import NoServer, look_at_chat
from assay.models.remote.seen import Seen
from assay.models.remote.wording import Wording

__all__ = ["OpenAIModel", "look_of", "no_server", "openai_of_lmms_eval", "seen_model"]

_WINDOW = 8
_CHARACTERS_PER_TOKEN = 4
_FILTERED = ("content_filter", "content_policy", "responsibleaipolicyviolation")
_NOT_HERE = frozenset(
    "tokenizer tokenizer_backend tokenized_requests add_bos_token custom_prefix_token_id revision max_length".split()
)
"""Arguments of lm-eval's chat models that decide nothing where the server applies the template."""


class OpenAIModel:
    """A model behind OpenAI's protocol: text, pictures, sounds, videos as frames.

    >>> OpenAIModel(model="m", base_url="http://localhost:8000/v1/chat/completions").name
    'm'
    """

    def __init__(self, *, batch_size: Any = None, rpm: Any = None, tpm: Any = None, **arguments: Any) -> None:
        arguments = {name: value for name, value in arguments.items() if name not in _NOT_HERE}
        self._options = read_options("openai", {"rpm": rpm, "tpm": tpm, **arguments}, ())
        self._look = look_of(self._options)
        self._seen = Seen(long_limit_name=self._options.is_openai)
        self._wording = Wording(self._options, self._seen, self._look)
        self._endpoint: Endpoint | None = None
        self._gives_tokens = False

    def give_tokens(self) -> None:
        """Ask for the log-probability of every token, where the server was seen to tell it."""
        self._gives_tokens = True

    @property
    def name(self) -> str:
        """The model as the server calls it."""
        return self._options.model

    @property
    def options(self) -> Options:
        """What it was told."""
        return self._options

    @property
    def billed_as(self) -> str:
        """What the price table calls it; a server of one's own costs nothing."""
        return billed_name(self._options.address().url, self._options.model)

    @property
    def traits(self) -> Traits:
        """What was seen; where nobody looked, what such servers usually do. Few hear sounds: those have to be seen."""
        abilities: set[Ability] = {"generate", "chat", "image", "video"}
        if self._seen.images is False:
            abilities -= {"image", "video"}
        if self._seen.audio or not self._options.probe:
            abilities |= {"audio"}
        if self._look.whole_videos:
            abilities |= {"video"}
        return Traits(
            abilities=frozenset(abilities),
            window=_WINDOW,
            in_flight=self._options.most_at_once,
            tokens=self._tells_tokens,
        )

    @property
    def _tells_tokens(self) -> bool:
        return self._options.api == "chat" and bool(self._seen.logprobs)

    async def identify(self) -> Mapping[str, str]:
        """Server, model and every argument that shapes an answer. Asks nobody."""
        return identity_of(self._options, f"openai {self._options.api}")

    def preview(self, request: Request) -> str:
        """The messages; the server's own template is not known here."""
        return preview_of(request)

    async def probe(self) -> Sequence[str]:
        """Try what the server can do; afterwards `traits` says what was seen."""
        self._seen, notes = await seen_model(self._options, self._seen, look_at_chat)
        return notes

    @property
    def seen(self) -> Mapping[str, Any]:
        """What the server was seen to do."""
        return self._seen.facts()

    def prepare(self, part: Media) -> None:
        """Encode a medium ahead of its call; the engine does it in a thread."""
        prepare(part, self._look)

    async def open(self) -> None:
        """Connect; a server that is not there, or wants another key, is known before the first request."""
        endpoint = self._options.endpoint()
        try:
            if self._options.probe and not self._seen.generates:
                self._seen = await look_at_chat(endpoint, self._options)
        except NoServer as error:
            await endpoint.close()
            raise no_server(self._options, error) from None
        except BaseException:
            await endpoint.close()
            raise
        tokens = self._gives_tokens and self._tells_tokens
        self._wording = Wording(self._options, self._seen, self._look, tokens=tokens)
        self._endpoint = endpoint

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Each request on its own, repeats of one prompt together where the server can."""
        if len(window) == 1:
            for outcome in await self._answer(window):
                yield outcome
            return
        async for outcome in as_done([self._answer(group) for group in self._groups(window)]):
            yield outcome

    async def close(self) -> None:
        """Close the connections."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.close()

    # --- one call ----------------------------------------------------------------------------------

    def _groups(self, window: Sequence[Request]) -> list[Sequence[Request]]:
        """Requests that one call can answer: repeats of one prompt."""
        if not self._seen.n or self._options.api != "chat":
            return [(request,) for request in window]
        groups: dict[Any, list[Request]] = {}
        for request in window:
            alike = isinstance(request, Generate) and request.settings.temperature > 0
            key = (request.prompt.digest, request.settings.digest, request.round) if alike else request.id  # type: ignore[union-attr]
            groups.setdefault(key, []).append(request)
        return list(groups.values())

    async def _answer(self, group: Sequence[Request]) -> list[Outcome]:
        endpoint, first = self._endpoint, group[0]
        if endpoint is None:
            raise RuntimeError("answer() was called before open()")
        if not isinstance(first, Generate):
            message = "chat completions give no probabilities of a prompt: `openai-completions` does"
            return [Failure(request_id=one.id, kind="bad request", message=message) for one in group]
        wording = self._wording
        manner = wording.manner(first.settings, first.repeat, len(group))
        try:
            if first.prompt.has_media:
                body = await write_aside(wording.body, first, manner)
            else:
                body = wording.body(first, manner)
            tokens = manner.max_tokens + len(body) // _CHARACTERS_PER_TOKEN if endpoint.lane.tokens else 0
            answered = await endpoint.post(wording.path, body, wording.read, tokens=tokens)
        except BadMedia as error:
            return [Failure(request_id=one.id, kind="bad media", message=str(error)) for one in group]
        except NotAnswered as error:
            return [self._refused(one, error) for one in group]
        reading = answered.value
        served = reading.served
        if tokens and reading.usage is not None:
            endpoint.lane.settle(tokens, reading.usage.input_tokens + reading.usage.output_tokens)
        outcomes: list[Outcome] = [
            response_of(request, said, usage, self._options, answered.seconds, manner.stops, served)  # type: ignore[arg-type]
            for request, said, usage in zip(group, reading.said, _shares(reading.usage), strict=False)
        ]
        for request in group[len(reading.said) :]:  # fewer than were asked for: the rest is asked for again
            outcomes += await self._answer((request,))
        return outcomes

    def _refused(self, request: Request, error: NotAnswered) -> Outcome:
        """A failure; but a filter that stops a prompt is the model's refusal."""
        fault = error.fault
        if fault.status == 400 and any(word in f"{fault.code} {fault.message}".lower() for word in _FILTERED):
            return Response(request_id=request.id, value="", finish="refused")
        return error.failure(request.id)


def _shares(usage: Usage | None) -> Iterator[Usage | None]:
    """What answers of one call used: the first one all of it, the others nothing."""
    yield usage
    yield from repeat(usage and Usage())


def openai_of_lmms_eval(
    *, batch_size: Any = None, rpm: Any = None, tpm: Any = None, **arguments: Any
) -> OpenAIModel:
    """The same under lmms-eval's names, with the length lmms-eval gives where a task says none."""
    return OpenAIModel(rpm=rpm, tpm=tpm, **{"max_gen_toks": 1024, **arguments})


def azure_openai(
    *, batch_size: Any = None, rpm: Any = None, tpm: Any = None, **arguments: Any
) -> OpenAIModel:
    """The same on Azure."""
    return OpenAIModel(rpm=rpm, tpm=tpm, **{"azure_openai": True, **arguments})


# --- shared with text completions ----------------------------------------------------------------------

_SHAPING = (
    "seed", "max_gen_toks", "max_length", "system_prompt", "eos_string", "think_end_token", "extra_body", "image_format",
    "max_pixels", "max_size_in_mb", "max_frames_num", "fps", "video", "tokenizer", "tokenizer_backend", "add_bos_token",
    "custom_prefix_token_id", "revision",
)  # fmt: skip


def identity_of(options: Options, api: str) -> dict[str, str]:
    """Who answers: the server, the model and every argument that is not at its default."""
    facts = {"name": options.model, "api": api, "base_url": options.address().url}
    plain = Options(model=options.model)
    for name in _SHAPING:
        value = getattr(options, name)
        if value != getattr(plain, name):
            facts[name] = json.dumps(value, sort_keys=True, default=dict)
    return facts


def look_of(options: Options) -> Look:
    """How pictures and videos are shown."""
    return Look(
        image_format=options.image_format,
        max_pixels=options.max_pixels,
        max_bytes=int(options.max_size_in_mb * 2**20),
        max_frames=options.max_frames_num,
        fps=options.fps,
        whole_videos=options.video == "file",
    )


def preview_of(request: Request) -> str:
    """Messages as people read them, media as placeholders."""
    lines = []
    for message in request.prompt.messages:
        pieces = [
            part.text if isinstance(part, Text) else f"<{type(part).__name__.lower()}>"
            for part in message.parts
        ]
        lines.append(f"{message.role}: {''.join(pieces)}" if request.prompt.chat else "".join(pieces))
    return "\n".join(lines)


async def seen_model(options: Options, seen: Seen, look_at: Any) -> tuple[Seen, list[str]]:
    """Look at the server while a plan is made. One that is not there is no mistake of the plan: the run may be finished."""
    if not options.probe:
        return seen, []
    endpoint = options.endpoint()
    try:
        found: Seen = await look_at(endpoint, replace(options))
    except NoServer as error:
        return seen, [f"nobody answers at {options.address().url}: {error}"]
    finally:
        await endpoint.close()
    return found, list(found.notes)


def no_server(options: Options, error: NoServer) -> AssayError:
    """The error for a server that is not there when it is needed."""
    return AssayError(
        f"nobody answers at {options.address().url}: {error}",
        where="--model_args base_url",
        hint="is the server running? repeat the command when it is",
    )
