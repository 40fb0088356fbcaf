"""Probe what a chat server supports with a few small calls.

Servers differ, and many silently ignore fields they do not support. So the probe checks effects: several answers must
arrive, and an image must increase the number of prompt tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assay.core.errors import InvalidOption, UserError
from assay.core.records.messages import Audio, Image, Message, Part, Prompt, Text
from assay.core.records.requests import Generate, Settings
from assay.core.records.tools import Tool, Tools
from assay.models.remote.capabilities.cache import ServerCapabilities, load_capabilities, save_capabilities
from assay.models.remote.endpoint import Endpoint
from assay.models.remote.errors import CallError, CallFailed
from assay.models.remote.options import Options
from assay.models.remote.protocol.chat import ParsedReply
from assay.models.remote.protocol.media import MediaEncoding
from assay.models.remote.protocol.payloads import PayloadWriter
from assay.models.remote.retries import RetryPolicy
from assay.models.remote.token_bounds import PROBE_BOUND

__all__ = [
    "ServerUnreachable",
    "build_refusal_error",
    "fetch_model_identity",
    "list_models",
    "probe_chat",
    "probe_tools",
]

_QUESTION = "Say yes."
_IMAGE_SIDE_PIXELS = 64
_MAX_REFUSED_SETTINGS = 5
_OPTIONAL_SETTINGS = ("temperature", "stop", "seed")


class ServerUnreachable(Exception):
    """The server does not answer."""


async def probe_chat(endpoint: Endpoint, options: Options) -> ServerCapabilities:
    """Return the capabilities of a chat server, from the cache or by probing.

    Raises:
        ServerUnreachable: The server does not answer.
        UserError: The server rejects the call, for example because of a wrong key or an unknown model.
    """
    listed = await fetch_model_identity(endpoint, options)
    server = _build_key(options)
    known = load_capabilities(server, listed)
    if known is not None:
        return known
    capabilities, tokens = await _try_question(
        endpoint, options, ServerCapabilities(long_limit_name=options.is_openai)
    )
    tries = [
        _try_image(endpoint, options, capabilities, tokens),
        _try_audio(endpoint, options, capabilities, tokens),
    ]
    if options.api == "chat":
        tries += [_try_n(endpoint, options, capabilities), _try_logprobs(endpoint, options, capabilities)]
    for found in await asyncio.gather(*tries):
        capabilities = replace(capabilities, **found)
    if listed and isinstance(listed.get("max_model_len"), int):
        capabilities = replace(capabilities, max_length=listed["max_model_len"])
    return save_capabilities(server, listed, capabilities)


async def probe_tools(
    endpoint: Endpoint, options: Options, capabilities: ServerCapabilities
) -> ServerCapabilities:
    """Return the capabilities with `tools`: whether the server accepts a tool and counts tokens for it."""
    if capabilities.tools is not None:
        return capabilities
    tool = Tool("say", "Say a word.", {"type": "object", "properties": {"word": {"type": "string"}}})
    try:
        plain = await _ask(endpoint, options, capabilities, (Text(_QUESTION),))
        reply = await _ask(endpoint, options, capabilities, (Text(_QUESTION),), tools=Tools(tools=(tool,)))
    except CallFailed as error:
        if error.cause.kind in ("connection", "timeout", "rate limit"):
            return capabilities  # unknown: the run reports it
        found = False
    else:
        counted = plain.usage is not None and reply.usage is not None and bool(plain.usage.input_tokens)
        found = not counted or reply.usage.input_tokens > plain.usage.input_tokens  # type: ignore[union-attr]
    listed = await fetch_model_identity(endpoint, options)
    return save_capabilities(_build_key(options), listed, replace(capabilities, tools=found))


def _build_key(options: Options) -> str:
    """Return the name under which the capabilities of a server are cached."""
    return f"{options.api} {options.address().url} {options.model} {sorted(options.extra_body)}"


async def list_models(endpoint: Endpoint) -> list[Mapping[str, Any]] | None:
    """Return the models that `/models` lists; None if the server has no such list."""
    patience = shorten_retries(endpoint.retry_policy)
    try:
        outcome = await endpoint.get("/models", lambda value: list(value["data"]), retry_policy=patience)
    except CallFailed as error:
        if error.cause.kind == "connection":
            raise ServerUnreachable(error.cause.message) from None
        return None
    return [one for one in outcome.value if isinstance(one, Mapping)]


async def fetch_model_identity(endpoint: Endpoint, options: Options) -> Mapping[str, Any] | None:
    """Return what the server reports about the model, without fields that change between calls."""
    for one in await list_models(endpoint) or ():
        if one.get("id") == options.model:
            return {
                key: one[key] for key in ("id", "owned_by", "root", "max_model_len", "meta") if key in one
            }
    return None


def build_refusal_error(
    error: CallError, options: Options, listed: list[Mapping[str, Any]] | None
) -> UserError:
    """Return the error for a server that rejects a plain question."""
    names = [str(one.get("id")) for one in listed or ()]
    where = f"--model_args model={options.model}"
    if error.kind == "not found":
        hint = f"available: {', '.join(names[:8])}" if names else "check `base_url`: http://host:port/v1"
        return InvalidOption(
            f"model not found at {options.address().url}: {error.message}", where=where, hint=hint
        )
    return UserError(f"{options.address().url} rejected a test request: {error.message}", where=where)


def shorten_retries(policy: RetryPolicy) -> RetryPolicy:
    """Return a retry policy for probes: few attempts, short delays."""
    return replace(policy, retries=min(policy.retries, 2), initial_delay_s=min(policy.initial_delay_s, 0.3))


# --- single probes ---------------------------------------------------------------------------------------------


async def _try_question(
    endpoint: Endpoint, options: Options, capabilities: ServerCapabilities
) -> tuple[ServerCapabilities, int]:
    """Ask a plain question; drop settings that the server rejects. Return the prompt tokens as well."""
    for _ in range(_MAX_REFUSED_SETTINGS + 1):
        try:
            reply = await _ask(endpoint, options, capabilities, (Text(_QUESTION),))
        except CallFailed as error:
            cause = error.cause
            if cause.kind in ("connection", "timeout"):
                raise ServerUnreachable(cause.message) from None
            reduced = _drop_named_setting(capabilities, cause) or await _drop_failing_settings(
                endpoint, options, capabilities, cause
            )
            if reduced is None:
                listed = await list_models(endpoint) if cause.kind == "not found" else None
                raise build_refusal_error(cause, options, listed) from None
            capabilities = reduced
        else:
            capabilities = replace(
                capabilities,
                generates=True,
                model=reply.model,
                system_fingerprint=reply.system_fingerprint,
            )
            return capabilities, reply.usage.input_tokens if reply.usage else 0
    raise build_refusal_error(cause, options, None)


def _drop_named_setting(capabilities: ServerCapabilities, error: CallError) -> ServerCapabilities | None:
    """Drop the setting that an error message names; return None if it names none."""
    if error.kind != "bad request":
        return None
    low = error.message.lower()
    if "max_completion_tokens" in low and not capabilities.long_limit_name:
        return replace(capabilities, long_limit_name=True)
    if "max_completion_tokens" in low and capabilities.long_limit_name and "max_tokens" not in low:
        return replace(capabilities, long_limit_name=False)
    for name in _OPTIONAL_SETTINGS:
        if name in low and name not in capabilities.refused:
            note = f"the server rejects `{name}`; requests omit it"
            return replace(
                capabilities, refused=capabilities.refused | {name}, notes=(*capabilities.notes, note)
            )
    return None


async def _drop_failing_settings(
    endpoint: Endpoint, options: Options, capabilities: ServerCapabilities, error: CallError
) -> ServerCapabilities | None:
    """Drop each setting that alone makes a server fail, for errors that name no setting.

    Return None if the server fails without these settings, too, or if some were dropped before.
    """
    if error.kind not in ("server error", "bad request") or capabilities.refused:
        return None
    bare = replace(capabilities, refused=frozenset(_OPTIONAL_SETTINGS))

    async def works(tried: ServerCapabilities) -> bool:
        try:
            await _ask(endpoint, options, tried, (Text(_QUESTION),))
        except CallFailed:
            return False
        return True

    if not await works(bare):
        return None
    refused = [
        name for name in _OPTIONAL_SETTINGS if not await works(replace(bare, refused=bare.refused - {name}))
    ]
    notes = tuple(f"the server fails with `{name}`; requests omit it" for name in refused)
    return (
        replace(capabilities, refused=frozenset(refused), notes=(*capabilities.notes, *notes))
        if refused
        else None
    )


async def _try_image(
    endpoint: Endpoint, options: Options, capabilities: ServerCapabilities, tokens: int
) -> dict[str, Any]:
    """Return whether the server accepts an image and counts tokens for it."""

    def load() -> Any:
        from PIL import Image as Pictures

        return Pictures.new("RGB", (_IMAGE_SIDE_PIXELS, _IMAGE_SIDE_PIXELS), (200, 30, 30))

    part = Image(digest="probe", load=load, source="probe")
    return {"images": await _reads_media(endpoint, options, capabilities, part, tokens)}


async def _try_audio(
    endpoint: Endpoint, options: Options, capabilities: ServerCapabilities, tokens: int
) -> dict[str, Any]:
    def load() -> Any:
        import numpy

        return numpy.zeros(8000, numpy.float32), 16_000

    part = Audio(digest="probe", load=load, source="probe")
    return {"audio": await _reads_media(endpoint, options, capabilities, part, tokens)}


async def _reads_media(
    endpoint: Endpoint, options: Options, capabilities: ServerCapabilities, part: Part, tokens: int
) -> bool:
    try:
        reply = await _ask(endpoint, options, capabilities, (part, Text(_QUESTION)))
    except CallFailed:
        return False
    return reply.usage is None or not tokens or reply.usage.input_tokens > tokens


async def _try_n(endpoint: Endpoint, options: Options, capabilities: ServerCapabilities) -> dict[str, Any]:
    try:
        reply = await _ask(endpoint, options, capabilities, (Text(_QUESTION),), n=2)
    except CallFailed:
        return {"n": False}
    return {"n": len(reply.choices) == 2}


async def _try_logprobs(
    endpoint: Endpoint, options: Options, capabilities: ServerCapabilities
) -> dict[str, Any]:
    asking = replace(options, extra_body={**options.extra_body, "logprobs": True, "top_logprobs": 1})
    writer, body = _write_question(asking, capabilities, (Text(_QUESTION),))
    try:
        outcome = await endpoint.post(
            writer.path,
            body,
            lambda value: value["choices"][0],
            tokens=PROBE_BOUND,
            retry_policy=shorten_retries(endpoint.retry_policy),
        )
    except CallFailed:
        return {"logprobs": False}
    given = outcome.value.get("logprobs")
    return {"logprobs": isinstance(given, Mapping) and bool(given.get("content"))}


async def _ask(
    endpoint: Endpoint,
    options: Options,
    capabilities: ServerCapabilities,
    parts: tuple[Part, ...],
    n: int = 1,
    tools: Tools | None = None,
) -> ParsedReply:
    writer, body = await asyncio.to_thread(_write_question, options, capabilities, parts, n, tools)
    outcome = await endpoint.post(
        writer.path,
        body,
        writer.parse_reply,
        tokens=PROBE_BOUND,
        retry_policy=shorten_retries(endpoint.retry_policy),
    )
    return outcome.value


def _write_question(
    options: Options,
    capabilities: ServerCapabilities,
    parts: tuple[Part, ...],
    n: int = 1,
    tools: Tools | None = None,
) -> tuple[PayloadWriter, bytes]:
    settings = Settings(
        {"until": ["\n\n"], "max_gen_toks": 16 if options.is_openai else 2, "do_sample": n > 1}
    )
    prompt = Prompt((Message("user", parts),), chat=True)
    request = Generate(task="probe", document=0, prompt=prompt, settings=settings, tools=tools)
    writer = PayloadWriter(options, capabilities, MediaEncoding())
    return writer, writer.write_body(request, writer.get_fields(settings, 0, n))
