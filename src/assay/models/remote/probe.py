"""What a server can do, found by trying: a few tiny calls, remembered for a day.

Servers differ, and many take a field they do not know without a word. So nothing is believed that was not seen: several
answers count when several came, a picture when it cost tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assay.core.errors import BadOption, UserMistake
from assay.core.messages import Audio, Image, Message, Part, Prompt, Text
from assay.core.requests import Generate, Settings
from assay.models.remote.chat import Reading
from assay.models.remote.endpoint import Endpoint
from assay.models.remote.faults import Fault, NotAnswered, Patience
from assay.models.remote.media import Look
from assay.models.remote.options import Options
from assay.models.remote.seen import Seen, recall, remember
from assay.models.remote.wording import Wording

__all__ = ["NoServer", "ask_identity", "list_models", "look_at_chat", "refuse"]

_QUESTION = "Say yes."
_SIDE = 64
_MOST_REFUSALS = 5
_NAMES = ("temperature", "stop", "seed")


class NoServer(Exception):
    """Nobody answers there."""


async def look_at_chat(endpoint: Endpoint, options: Options) -> Seen:
    """Try a server that chats, or remember what was seen of it.

    Raises:
        NoServer: Nobody answers.
        UserMistake: It answers, and will not answer this: a wrong key, a model it has not.
    """
    listed = await ask_identity(endpoint, options)
    server = f"{options.api} {options.address().url} {options.model} {sorted(options.extra_body)}"
    known = recall(server, listed)
    if known is not None:
        return known
    seen, tokens = await _first(endpoint, options, Seen(long_limit_name=options.is_openai))
    tries = [_try_image(endpoint, options, seen, tokens), _try_audio(endpoint, options, seen, tokens)]
    if options.api == "chat":
        tries += [_try_n(endpoint, options, seen), _try_logprobs(endpoint, options, seen)]
    for found in await asyncio.gather(*tries):
        seen = replace(seen, **found)
    if listed and isinstance(listed.get("max_model_len"), int):
        seen = replace(seen, max_length=listed["max_model_len"])
    return remember(server, listed, seen)


async def list_models(endpoint: Endpoint) -> list[Mapping[str, Any]] | None:
    """What `/models` says; None where it does not."""
    patience = _patience(endpoint.patience)
    try:
        answered = await endpoint.get("/models", lambda value: list(value["data"]), patience=patience)
    except NotAnswered as error:
        if error.fault.kind == "connection":
            raise NoServer(error.fault.message) from None
        return None
    return [one for one in answered.value if isinstance(one, Mapping)]


async def ask_identity(endpoint: Endpoint, options: Options) -> Mapping[str, Any] | None:
    """What the server says of the model, without what changes from call to call."""
    for one in await list_models(endpoint) or ():
        if one.get("id") == options.model:
            return {
                key: one[key] for key in ("id", "owned_by", "root", "max_model_len", "meta") if key in one
            }
    return None


def refuse(fault: Fault, options: Options, listed: list[Mapping[str, Any]] | None) -> UserMistake:
    """The error for a server that does not answer what every run asks."""
    names = [str(one.get("id")) for one in listed or ()]
    where = f"--model_args model={options.model}"
    if fault.kind == "not found":
        hint = f"it has: {', '.join(names[:8])}" if names else "is `base_url` right? http://host:port/v1"
        return BadOption(f"{options.address().url} does not know it: {fault.message}", where=where, hint=hint)
    return UserMistake(f"{options.address().url} does not answer: {fault.message}", where=where)


def _patience(patience: Patience) -> Patience:
    return replace(patience, retries=min(patience.retries, 2), first_wait_s=min(patience.first_wait_s, 0.3))


# --- tries ---------------------------------------------------------------------------------------------


async def _first(endpoint: Endpoint, options: Options, seen: Seen) -> tuple[Seen, int]:
    """A plain question; settings the server names in an error are left out from then on."""
    for _ in range(_MOST_REFUSALS + 1):
        try:
            reading = await _ask(endpoint, options, seen, (Text(_QUESTION),))
        except NotAnswered as error:
            fault = error.fault
            if fault.kind in ("connection", "timeout"):
                raise NoServer(fault.message) from None
            learnt = _without(seen, fault) or await _bare(endpoint, options, seen, fault)
            if learnt is None:
                listed = await list_models(endpoint) if fault.kind == "not found" else None
                raise refuse(fault, options, listed) from None
            seen = learnt
        else:
            seen = replace(
                seen,
                generates=True,
                model=reading.model,
                system_fingerprint=reading.system_fingerprint,
            )
            return seen, reading.usage.input_tokens if reading.usage else 0
    raise refuse(fault, options, None)


def _without(seen: Seen, fault: Fault) -> Seen | None:
    """What to leave out after an error that names a setting; None where it names none."""
    if fault.kind != "bad request":
        return None
    low = fault.message.lower()
    if "max_completion_tokens" in low and not seen.long_limit_name:
        return replace(seen, long_limit_name=True)
    if "max_completion_tokens" in low and seen.long_limit_name and "max_tokens" not in low:
        return replace(seen, long_limit_name=False)
    for name in _NAMES:
        if name in low and name not in seen.refused:
            note = f"the server does not take `{name}`: it is not sent"
            return replace(seen, refused=seen.refused | {name}, notes=(*seen.notes, note))
    return None


async def _bare(endpoint: Endpoint, options: Options, seen: Seen, fault: Fault) -> Seen | None:
    """What to leave out for a server that fails without saying why: each setting that alone makes it fail.

    None where it fails without any, or was tried like this before.
    """
    if fault.kind not in ("server error", "bad request") or seen.refused:
        return None
    bare = replace(seen, refused=frozenset(_NAMES))

    async def works(tried: Seen) -> bool:
        try:
            await _ask(endpoint, options, tried, (Text(_QUESTION),))
        except NotAnswered:
            return False
        return True

    if not await works(bare):
        return None
    refused = [name for name in _NAMES if not await works(replace(bare, refused=bare.refused - {name}))]
    notes = tuple(f"the server fails when it is sent `{name}`: it is not sent" for name in refused)
    return replace(seen, refused=frozenset(refused), notes=(*seen.notes, *notes)) if refused else None


async def _try_image(endpoint: Endpoint, options: Options, seen: Seen, tokens: int) -> dict[str, Any]:
    """A picture counts when the server takes it, and counts it."""

    def load() -> Any:
        from PIL import Image as Pictures

        return Pictures.new("RGB", (_SIDE, _SIDE), (200, 30, 30))

    part = Image(digest="probe", load=load, source="probe")
    return {"images": await _costs(endpoint, options, seen, part, tokens)}


async def _try_audio(endpoint: Endpoint, options: Options, seen: Seen, tokens: int) -> dict[str, Any]:
    def load() -> Any:
        import numpy

        return numpy.zeros(8000, numpy.float32), 16_000

    part = Audio(digest="probe", load=load, source="probe")
    return {"audio": await _costs(endpoint, options, seen, part, tokens)}


async def _costs(endpoint: Endpoint, options: Options, seen: Seen, part: Part, tokens: int) -> bool:
    try:
        reading = await _ask(endpoint, options, seen, (part, Text(_QUESTION)))
    except NotAnswered:
        return False
    return reading.usage is None or not tokens or reading.usage.input_tokens > tokens


async def _try_n(endpoint: Endpoint, options: Options, seen: Seen) -> dict[str, Any]:
    try:
        reading = await _ask(endpoint, options, seen, (Text(_QUESTION),), n=2)
    except NotAnswered:
        return {"n": False}
    return {"n": len(reading.said) == 2}


async def _try_logprobs(endpoint: Endpoint, options: Options, seen: Seen) -> dict[str, Any]:
    asking = replace(options, extra_body={**options.extra_body, "logprobs": True, "top_logprobs": 1})
    wording, body = _written(asking, seen, (Text(_QUESTION),))
    try:
        answered = await endpoint.post(
            wording.path, body, lambda value: value["choices"][0], patience=_patience(endpoint.patience)
        )
    except NotAnswered:
        return {"logprobs": False}
    given = answered.value.get("logprobs")
    return {"logprobs": isinstance(given, Mapping) and bool(given.get("content"))}


async def _ask(
    endpoint: Endpoint, options: Options, seen: Seen, parts: tuple[Part, ...], n: int = 1
) -> Reading:
    wording, body = await asyncio.to_thread(_written, options, seen, parts, n)
    answered = await endpoint.post(wording.path, body, wording.read, patience=_patience(endpoint.patience))
    return answered.value


def _written(options: Options, seen: Seen, parts: tuple[Part, ...], n: int = 1) -> tuple[Wording, bytes]:
    settings = Settings(
        {"until": ["\n\n"], "max_gen_toks": 16 if options.is_openai else 2, "do_sample": n > 1}
    )
    prompt = Prompt((Message("user", parts),), chat=True)
    request = Generate(task="probe", document=0, prompt=prompt, settings=settings)
    wording = Wording(options, seen, Look())
    return wording, wording.body(request, wording.manner(settings, 0, n))
