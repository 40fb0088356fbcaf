"""`openai`: servers with OpenAI's chat completions or responses API."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

from assay.core.errors import AssayError, MediaError
from assay.core.ports import Ability, Traits
from assay.core.records.messages import Media, Prompt, Text
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Outcome, Response, Usage
from assay.models.prices import build_billed_name
from assay.models.remote.capabilities.cache import ServerCapabilities
from assay.models.remote.capabilities.chat_probe import ServerUnreachable, probe_chat, probe_tools
from assay.models.remote.concurrency import iterate_completed
from assay.models.remote.endpoint import Endpoint, count_probe_posts
from assay.models.remote.errors import CallFailed
from assay.models.remote.options import Options, read_options
from assay.models.remote.output_limits import compute_output_limit
from assay.models.remote.protocol.chat import Choice, build_response, split_choice
from assay.models.remote.protocol.media import MediaEncoding, prepare_media, write_in_thread
from assay.models.remote.protocol.payloads import PayloadWriter
from assay.models.remote.token_bounds import TokenBound, TokenBounds
from assay.models.remote.tokenizer import load_tokenizer

__all__ = [
    "OpenAIModel",
    "build_media_encoding",
    "build_unreachable_error",
    "describe_probe",
    "openai_for_lmms_eval",
    "probe_server",
]

_WINDOW = 8
_CONTENT_FILTER_CODES = ("content_filter", "content_policy", "responsibleaipolicyviolation")
_IGNORED = frozenset("tokenized_requests add_bos_token custom_prefix_token_id max_length".split())
"""Arguments of lm-eval's chat models without effect, because the server applies the chat template."""

_TOKENIZER_OPTIONS = ("tokenizer", "tokenizer_backend", "revision")
"""Arguments that only serve to count tokens for `tpm`."""


class OpenAIModel:
    """A model on a server with OpenAI's protocol: text, images, audio, video as frames.

    >>> OpenAIModel(model="m", base_url="http://localhost:8000/v1/chat/completions").name
    'm'
    """

    def __init__(self, *, batch_size: Any = None, rpm: Any = None, tpm: Any = None, **arguments: Any) -> None:
        counting = {name: value for name, value in arguments.items() if name in _TOKENIZER_OPTIONS}
        unused = _IGNORED.union(_TOKENIZER_OPTIONS)
        arguments = {name: value for name, value in arguments.items() if name not in unused}
        self._options = read_options("openai", {"rpm": rpm, "tpm": tpm, **arguments}, ())
        self._media = build_media_encoding(self._options)
        self._capabilities = ServerCapabilities(long_limit_name=self._options.is_openai)
        self._probe_calls: Counter[str] = Counter()
        self._writer = PayloadWriter(self._options, self._capabilities, self._media)
        self._endpoint: Endpoint | None = None
        self._bounds = TokenBounds(
            self._options.model, media=self._media, system_prompt=self._options.system_prompt
        )
        self._tokenizer_arguments = {name: value for name, value in counting.items() if value}
        self._gives_tokens = False
        self._traits: tuple[ServerCapabilities, Traits] | None = None

    def give_tokens(self) -> None:
        """Request the log-probability of every token, if the server supports it."""
        self._gives_tokens = True

    @property
    def name(self) -> str:
        """The server's name of the model."""
        return self._options.model

    @property
    def options(self) -> Options:
        """The arguments of the model."""
        return self._options

    @property
    def billed_as(self) -> str:
        """The name of the model in price tables; a self-hosted server costs nothing."""
        return build_billed_name(self._options.address().url, self._options.model)

    def find_output_limit(self, request: Generate) -> int | None:
        """Return the largest number of tokens of the answer, with the limits in `extra_body`."""
        return compute_output_limit(request.settings, self._options)

    @property
    def traits(self) -> Traits:
        """Probed capabilities; without a probe, what such servers usually support. Audio needs a probe: few support it."""
        if (
            self._traits is None or self._traits[0] is not self._capabilities
        ):  # the engine reads them for every answer
            self._traits = (self._capabilities, self._build_traits())
        return self._traits[1]

    def _build_traits(self) -> Traits:
        abilities: set[Ability] = {"generate", "chat", "image", "video"}
        if self._capabilities.images is False:
            abilities -= {"image", "video"}
        if self._capabilities.audio or not self._options.probe:
            abilities |= {"audio"}
        if self._media.whole_videos:
            abilities |= {"video"}
        if self._capabilities.tools is not False:
            abilities |= {"tools"}
        return Traits(
            abilities=frozenset(abilities),
            window=_WINDOW,
            in_flight=self._options.max_concurrency,
            tokens=self._returns_tokens,
        )

    @property
    def _returns_tokens(self) -> bool:
        return self._options.api == "chat" and bool(self._capabilities.logprobs)

    async def identify(self) -> Mapping[str, str]:
        """Server, model and all arguments that affect answers. Makes no call."""
        return build_identity(self._options, f"openai {self._options.api}")

    def preview(self, request: Request) -> str:
        """Return the messages; the server's chat template is unknown."""
        return format_preview(request)

    async def probe(self) -> Sequence[str]:
        """Find out what the server supports and update `traits`."""
        self._capabilities, notes, calls = await probe_server(self._options, self._capabilities, probe_chat)
        self._probe_calls += calls
        return notes

    async def probe_tools(self) -> Sequence[str]:
        """Find out whether the server accepts tools and counts tokens for them."""
        if not self._options.probe or not self._capabilities.generates:
            return ()
        endpoint = self._options.open_endpoint()
        try:
            self._capabilities = await probe_tools(endpoint, self._options, self._capabilities)
            self._probe_calls += endpoint.posts
        finally:
            await endpoint.close()
        if self._capabilities.tools is False:
            return [f"{self._options.address().url} does not support tools; the prompts describe them"]
        return ()

    @property
    def seen(self) -> Mapping[str, Any]:
        """Probed capabilities and the number of calls that probing took, for the manifest."""
        return describe_probe(self._capabilities, self._probe_calls)

    def prepare(self, part: Media) -> None:
        """Encode a media part ahead of its call; the engine calls this in a thread."""
        prepare_media(part, self._media)

    async def open(self) -> None:
        """Connect. An unreachable server or a wrong key is reported before the first request."""
        endpoint = self._options.open_endpoint()
        try:
            if self._options.probe and not self._capabilities.generates:
                self._capabilities = await probe_chat(endpoint, self._options)
                self._probe_calls += endpoint.posts
            if endpoint.rate_limit.tokens is not None:
                await self._load_tokenizer()
        except ServerUnreachable as error:
            await endpoint.close()
            raise build_unreachable_error(self._options, error) from None
        except BaseException:
            await endpoint.close()
            raise
        tokens = self._gives_tokens and self._returns_tokens
        self._writer = PayloadWriter(self._options, self._capabilities, self._media, tokens=tokens)
        self._endpoint = endpoint

    async def _load_tokenizer(self) -> None:
        """Load the tokenizer that counts tokens for `tpm`, if the user names one."""
        if "tokenizer" not in self._tokenizer_arguments:
            return
        options = read_options("openai", {"model": self.name, **self._tokenizer_arguments}, ())
        tokenizer = await asyncio.to_thread(load_tokenizer, options)
        if tokenizer is not None:
            encode = tokenizer.encoder.encode_bare
            self._bounds.count_text_tokens = lambda text: len(encode([text])[0])

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Answer each request in its own call; repeats of one prompt in one call if the server supports it."""
        if len(window) == 1:
            for outcome in await self._answer(window):
                yield outcome
            return
        async for outcome in iterate_completed(
            [self._answer(group) for group in self._group_repeats(window)]
        ):
            yield outcome

    def hold_requests(self, held: bool) -> None:
        """Start no calls while `held`."""
        if self._endpoint is not None:
            self._endpoint.limiter.hold(held)

    def count_queued(self) -> int:
        """Return how many calls wait for a slot."""
        return 0 if self._endpoint is None else self._endpoint.limiter.queued

    async def close(self) -> None:
        """Close the connections."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.close()

    # --- one call ----------------------------------------------------------------------------------

    def _group_repeats(self, window: Sequence[Request]) -> list[Sequence[Request]]:
        """Group requests that one call can answer: repeats of one prompt."""
        if not self._capabilities.n or self._options.api != "chat":
            return [(request,) for request in window]
        groups: dict[Any, list[Request]] = {}
        for request in window:
            alike = isinstance(request, Generate) and request.settings.temperature > 0
            alike = alike and request.tools is None and request.response_format is None  # type: ignore[union-attr]
            key = (request.prompt.digest, request.settings.digest, request.round) if alike else request.id  # type: ignore[union-attr]
            groups.setdefault(key, []).append(request)
        return list(groups.values())

    async def _answer(self, group: Sequence[Request]) -> list[Outcome]:
        endpoint, first = self._endpoint, group[0]
        if endpoint is None:
            raise RuntimeError("answer() was called before open()")
        if not isinstance(first, Generate):
            message = "chat completions return no log-probabilities of prompts; use `openai-completions`"
            return [Failure(request_id=one.id, kind="bad request", message=message) for one in group]
        writer = self._writer
        fields = writer.get_fields(first.settings, first.repeat, len(group))
        has_limit = endpoint.rate_limit.tokens is not None
        stops_were_sent = bool(fields.stops) and "stop" not in self._capabilities.refused
        try:
            if first.prompt.has_media:
                body = await write_in_thread(writer.write_body, first, fields)
                bound = await write_in_thread(self._bound_tokens, first, len(group)) if has_limit else None
            else:
                body = writer.write_body(first, fields)
                bound = self._bound_tokens(first, len(group)) if has_limit else None
            answered = await endpoint.post(writer.path, body, writer.parse_reply, tokens=bound)
        except MediaError as error:
            return [Failure(request_id=one.id, kind="bad media", message=str(error)) for one in group]
        except CallFailed as error:
            return [self._outcome_from_error(one, error) for one in group]
        reply = answered.value
        served = reply.served
        if bound is not None:
            self._bounds.learn(bound, reply.usage)
        if stops_were_sent and self._stop_sending_stops(reply.choices, first.prompt):
            return await self._answer(group)
        outcomes: list[Outcome] = [
            build_response(request, choice, usage, self._options, answered.seconds, fields.stops, served)  # type: ignore[arg-type]
            for request, choice, usage in zip(group, reply.choices, _split_usage(reply.usage), strict=False)
        ]
        for request in group[len(reply.choices) :]:  # fewer choices than requested: ask again
            outcomes += await self._answer((request,))
        return outcomes

    def _bound_tokens(self, request: Generate, answers: int) -> TokenBound:
        """Return the largest number of tokens of a call that asks for several answers."""
        limit = self.find_output_limit(request)
        return self._bounds.compute(request.prompt, None if limit is None else limit * answers, request)

    def _stop_sending_stops(self, choices: Sequence[Choice], prompt: Prompt) -> bool:
        """Send no stop strings to a server that reasons: they would end the reasoning, and are applied to the answer here.

        Returns whether a stop string ended the reasoning of one of these answers, so that the call must be repeated.
        """
        splits = [split_choice(choice, self._options, is_chat=prompt.chat) for choice in choices]
        if all(split.reasoning is None for split in splits):
            return False
        if "stop" not in self._capabilities.refused:
            self._capabilities = replace(self._capabilities, refused=self._capabilities.refused | {"stop"})
            tokens = self._gives_tokens and self._returns_tokens
            self._writer = PayloadWriter(self._options, self._capabilities, self._media, tokens=tokens)
        return any(
            not split.is_finished and choice.finish == "stop"
            for split, choice in zip(splits, choices, strict=True)
        )

    def _outcome_from_error(self, request: Request, error: CallFailed) -> Outcome:
        """Return the failure; a prompt that a content filter blocked is a refusal."""
        cause = error.cause
        if cause.status == 400 and any(
            word in f"{cause.code} {cause.message}".lower() for word in _CONTENT_FILTER_CODES
        ):
            return Response(request_id=request.id, value="", finish="refused")
        return error.to_failure(request.id)


def _split_usage(usage: Usage | None) -> Iterator[Usage | None]:
    """Assign the usage of a call to its first answer, and none to the others."""
    yield usage
    yield from repeat(usage and Usage())


def openai_for_lmms_eval(
    *, batch_size: Any = None, rpm: Any = None, tpm: Any = None, **arguments: Any
) -> OpenAIModel:
    """Return the model with lmms-eval's default answer length."""
    return OpenAIModel(rpm=rpm, tpm=tpm, **{"max_gen_toks": 1024, **arguments})


def azure_openai(
    *, batch_size: Any = None, rpm: Any = None, tpm: Any = None, **arguments: Any
) -> OpenAIModel:
    """Return the model on Azure."""
    return OpenAIModel(rpm=rpm, tpm=tpm, **{"azure_openai": True, **arguments})


# --- shared with text completions ----------------------------------------------------------------------

_IDENTITY_OPTIONS = (
    "seed", "max_gen_toks", "max_length", "system_prompt", "eos_string", "think_end_token", "extra_body", "image_format",
    "max_pixels", "max_size_in_mb", "max_frames_num", "fps", "video", "tokenizer", "tokenizer_backend", "add_bos_token",
    "custom_prefix_token_id", "revision",
)  # fmt: skip


def build_identity(options: Options, api: str) -> dict[str, str]:
    """Return server, model and all arguments that differ from their defaults."""
    facts = {"name": options.model, "api": api, "base_url": options.address().url}
    plain = Options(model=options.model)
    for name in _IDENTITY_OPTIONS:
        value = getattr(options, name)
        if value != getattr(plain, name):
            facts[name] = json.dumps(value, sort_keys=True, default=dict)
    return facts


def build_media_encoding(options: Options) -> MediaEncoding:
    """Return how images and videos are encoded."""
    return MediaEncoding(
        image_format=options.image_format,
        max_pixels=options.max_pixels,
        max_bytes=int(options.max_size_in_mb * 2**20),
        max_frames=options.max_frames_num,
        fps=options.fps,
        whole_videos=options.video == "file",
    )


def format_preview(request: Request) -> str:
    """Return the messages as readable text, with placeholders for media."""
    lines = []
    for message in request.prompt.messages:
        pieces = [
            part.text if isinstance(part, Text) else f"<{type(part).__name__.lower()}>"
            for part in message.parts
        ]
        lines.append(f"{message.role}: {''.join(pieces)}" if request.prompt.chat else "".join(pieces))
    return "\n".join(lines)


def describe_probe(capabilities: ServerCapabilities, posts: Mapping[str, int]) -> dict[str, Any]:
    """Return what probing found, and the number of its calls and tokens unless the result came from the cache."""
    return {**capabilities.to_facts(), **count_probe_posts(posts)}


async def probe_server(
    options: Options, capabilities: ServerCapabilities, probe: Any
) -> tuple[ServerCapabilities, list[str], Counter[str]]:
    """Probe the server during planning; return its capabilities, notes, and the calls and tokens.

    An unreachable server is only a note, because the run may be finished.
    """
    if not options.probe:
        return capabilities, [], Counter()
    endpoint = options.open_endpoint()
    try:
        found: ServerCapabilities = await probe(endpoint, replace(options))
    except ServerUnreachable as error:
        return capabilities, [f"cannot reach {options.address().url}: {error}"], endpoint.posts
    finally:
        await endpoint.close()
    return found, list(found.notes), endpoint.posts


def build_unreachable_error(options: Options, error: ServerUnreachable) -> AssayError:
    """Return the error for a server that does not answer when the run starts."""
    return AssayError(
        f"cannot reach {options.address().url}: {error}",
        where="--model_args base_url",
        hint="start the server, then repeat the command",
    )
