"""Probe what a text completions server supports with a few small calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.models.finish_reasons import OPENAI, raise_reported_error
from assay.models.remote.capabilities.cache import ServerCapabilities, load_capabilities, save_capabilities
from assay.models.remote.capabilities.chat_probe import (
    ServerUnreachable,
    build_refusal_error,
    fetch_model_identity,
    list_models,
    shorten_retries,
)
from assay.models.remote.endpoint import Endpoint
from assay.models.remote.errors import BadReply, CallFailed
from assay.models.remote.options import Options
from assay.models.remote.protocol.prompt_logprobs import PATH
from assay.models.remote.token_bounds import PROBE_BOUND

__all__ = ["probe_completions"]

_PROMPT = "One two three four"
_OTHER_PROMPT = "Red green blue"
_TOKEN_PROMPT = [5, 6, 7, 8]


async def probe_completions(endpoint: Endpoint, options: Options) -> ServerCapabilities:
    """Return the capabilities of a text completions server, from the cache or by probing.

    Raises:
        ServerUnreachable: The server does not answer.
        UserError: The server rejects the call.
    """
    listed = await fetch_model_identity(endpoint, options)
    server = f"completions {options.address().url} {options.model} {sorted(options.extra_body)}"
    known = load_capabilities(server, listed)
    if known is not None:
        return known
    probe = _Probe(endpoint, options)
    capabilities = await probe.try_text()
    capabilities = await probe.try_prompt_scores(capabilities)
    many, numbers = await asyncio.gather(
        probe.try_several_prompts(capabilities), probe.try_token_prompt(capabilities)
    )
    capabilities = replace(capabilities, many_prompts=many, token_prompts=numbers)
    if listed and isinstance(listed.get("max_model_len"), int):
        capabilities = replace(capabilities, max_length=listed["max_model_len"])
    return save_capabilities(server, listed, capabilities)


class _Probe:
    """The single probes."""

    def __init__(self, endpoint: Endpoint, options: Options) -> None:
        self._endpoint = endpoint
        self._options = options
        self._retry_policy = shorten_retries(endpoint.retry_policy)

    async def _ask(self, **fields: Any) -> Mapping[str, Any]:
        payload = {"model": self._options.model, "temperature": 0, **fields, **self._options.extra_body}
        outcome = await self._endpoint.post(
            PATH, payload, _check_choices, tokens=PROBE_BOUND, retry_policy=self._retry_policy
        )
        return outcome.value

    async def try_text(self) -> ServerCapabilities:
        """Complete a plain text."""
        try:
            value = await self._ask(prompt=_PROMPT, max_tokens=2)
        except CallFailed as error:
            cause = error.cause
            if cause.kind in ("connection", "timeout"):
                raise ServerUnreachable(cause.message) from None
            listed = await list_models(self._endpoint) if cause.kind == "not found" else None
            raise build_refusal_error(cause, self._options, listed) from None
        model, fingerprint = value.get("model"), value.get("system_fingerprint")
        return ServerCapabilities(
            generates=True, model=str(model or ""), system_fingerprint=str(fingerprint or "")
        )

    async def try_prompt_scores(self, capabilities: ServerCapabilities) -> ServerCapabilities:
        """Find out how to get scores of a prompt: `echo` with 0 or 1 generated tokens, or `prompt_logprobs`."""
        for count in (0, 1):
            choice = await self._ask_first_choice(prompt=_PROMPT, max_tokens=count, echo=True, logprobs=1)
            text = str(choice.get("text", ""))
            if _count_scored_tokens(choice) >= 2 and text.startswith(_PROMPT) and (count or text == _PROMPT):
                return replace(capabilities, prompt_scores="echo", echo_tokens=count)
        choice = await self._ask_first_choice(prompt=_PROMPT, max_tokens=1, prompt_logprobs=1)
        listed = choice.get("prompt_logprobs")
        if isinstance(listed, Sequence) and sum(isinstance(one, Mapping) for one in listed) >= 1:
            return replace(capabilities, prompt_scores="prompt_logprobs")
        return capabilities

    async def try_several_prompts(self, capabilities: ServerCapabilities) -> bool:
        """Return whether several prompts give as many numbered choices, each with its own echoed text."""
        fields: dict[str, Any] = {"prompt": [_PROMPT, _OTHER_PROMPT], "max_tokens": 1}
        if capabilities.prompt_scores == "echo":
            fields |= {"echo": True, "logprobs": 1}
        try:
            choices = (await self._ask(**fields))["choices"]
        except CallFailed:
            return False
        by_number = {choice.get("index"): str(choice.get("text", "")) for choice in choices}
        if by_number.keys() != {0, 1}:
            return False
        echoed = by_number[0].startswith(_PROMPT) and by_number[1].startswith(_OTHER_PROMPT)
        return echoed or capabilities.prompt_scores != "echo"

    async def try_token_prompt(self, capabilities: ServerCapabilities) -> bool:
        """Return whether a prompt of token ids gives as many scores as ids."""
        if capabilities.prompt_scores == "prompt_logprobs":
            choice = await self._ask_first_choice(prompt=_TOKEN_PROMPT, max_tokens=1, prompt_logprobs=1)
            return len(choice.get("prompt_logprobs") or ()) == len(_TOKEN_PROMPT)
        if capabilities.prompt_scores != "echo":
            return bool((await self._ask_first_choice(prompt=_TOKEN_PROMPT, max_tokens=1)).keys())
        count = capabilities.echo_tokens
        choice = await self._ask_first_choice(prompt=_TOKEN_PROMPT, max_tokens=count, echo=True, logprobs=1)
        return _count_scored_tokens(choice) + 1 == len(_TOKEN_PROMPT) + count

    async def _ask_first_choice(self, **fields: Any) -> Mapping[str, Any]:
        try:
            return (await self._ask(**fields))["choices"][0]  # type: ignore[no-any-return]
        except CallFailed:
            return {}


def _check_choices(value: Any) -> Mapping[str, Any]:
    raise_reported_error(value)
    if not value["choices"]:
        raise BadReply('unexpected response format: no "choices"')
    for choice in value["choices"]:
        raise_reported_error(choice, " for this choice")
        OPENAI.classify(choice.get("finish_reason"))
    return value  # type: ignore[no-any-return]


def _count_scored_tokens(choice: Mapping[str, Any]) -> int:
    """Count the tokens with a log-probability and a best alternative."""
    given = choice.get("logprobs")
    if not isinstance(given, Mapping):
        return 0
    values, tops = given.get("token_logprobs") or (), given.get("top_logprobs") or ()
    return sum(
        isinstance(value, (int, float)) and isinstance(top, Mapping) and bool(top)
        for value, top in zip(values, tops, strict=False)
    )
