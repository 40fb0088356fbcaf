"""What a server of text completions can do, found by trying."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.models.remote.endpoint import Endpoint
from assay.models.remote.faults import BadReply, NotAnswered
from assay.models.remote.options import Options
from assay.models.remote.probe import NoServer, ask_identity, list_models, refuse
from assay.models.remote.scores import PATH
from assay.models.remote.seen import Seen, recall, remember

__all__ = ["look_at_completions"]

_TEXT = "One two three four"
_OTHER = "Red green blue"
_NUMBERS = [5, 6, 7, 8]


async def look_at_completions(endpoint: Endpoint, options: Options) -> Seen:
    """Try a server that completes texts, or remember what was seen of it.

    Raises:
        NoServer: Nobody answers.
        UserMistake: It answers, and will not answer this.
    """
    listed = await ask_identity(endpoint, options)
    server = f"completions {options.address().url} {options.model} {sorted(options.extra_body)}"
    known = recall(server, listed)
    if known is not None:
        return known
    probe = _Probe(endpoint, options)
    seen = await probe.first()
    seen = await probe.scores(seen)
    many, numbers = await asyncio.gather(probe.many(seen), probe.numbers(seen))
    seen = replace(seen, many_prompts=many, token_prompts=numbers)
    if listed and isinstance(listed.get("max_model_len"), int):
        seen = replace(seen, max_length=listed["max_model_len"])
    return remember(server, listed, seen)


class _Probe:
    """The tries."""

    def __init__(self, endpoint: Endpoint, options: Options) -> None:
        self._endpoint = endpoint
        self._options = options
        patience = endpoint.patience
        self._patience = replace(
            patience, retries=min(patience.retries, 2), first_wait_s=min(patience.first_wait_s, 0.3)
        )

    async def _ask(self, **fields: Any) -> Mapping[str, Any]:
        payload = {"model": self._options.model, "temperature": 0, **fields, **self._options.extra_body}
        answered = await self._endpoint.post(PATH, payload, _whole, patience=self._patience)
        return answered.value

    async def first(self) -> Seen:
        """A plain text to go on with."""
        try:
            value = await self._ask(prompt=_TEXT, max_tokens=2)
        except NotAnswered as error:
            fault = error.fault
            if fault.kind in ("connection", "timeout"):
                raise NoServer(fault.message) from None
            listed = await list_models(self._endpoint) if fault.kind == "not found" else None
            raise refuse(fault, self._options, listed) from None
        model, fingerprint = value.get("model"), value.get("system_fingerprint")
        return Seen(generates=True, model=str(model or ""), system_fingerprint=str(fingerprint or ""))

    async def scores(self, seen: Seen) -> Seen:
        """Scores of the prompt: by echo without a further token, with one, or by `prompt_logprobs`."""
        for count in (0, 1):
            choice = await self._one(prompt=_TEXT, max_tokens=count, echo=True, logprobs=1)
            text = str(choice.get("text", ""))
            if _scored(choice) >= 2 and text.startswith(_TEXT) and (count or text == _TEXT):
                return replace(seen, prompt_scores="echo", echo_tokens=count)
        choice = await self._one(prompt=_TEXT, max_tokens=1, prompt_logprobs=1)
        listed = choice.get("prompt_logprobs")
        if isinstance(listed, Sequence) and sum(isinstance(one, Mapping) for one in listed) >= 1:
            return replace(seen, prompt_scores="prompt_logprobs")
        return seen

    async def many(self, seen: Seen) -> bool:
        """Several prompts: as many choices, numbered, each with its own text where it is echoed."""
        fields: dict[str, Any] = {"prompt": [_TEXT, _OTHER], "max_tokens": 1}
        if seen.prompt_scores == "echo":
            fields |= {"echo": True, "logprobs": 1}
        try:
            choices = (await self._ask(**fields))["choices"]
        except NotAnswered:
            return False
        by_number = {choice.get("index"): str(choice.get("text", "")) for choice in choices}
        if by_number.keys() != {0, 1}:
            return False
        echoed = by_number[0].startswith(_TEXT) and by_number[1].startswith(_OTHER)
        return echoed or seen.prompt_scores != "echo"

    async def numbers(self, seen: Seen) -> bool:
        """A prompt of token numbers: as many scores as numbers."""
        if seen.prompt_scores == "prompt_logprobs":
            choice = await self._one(prompt=_NUMBERS, max_tokens=1, prompt_logprobs=1)
            return len(choice.get("prompt_logprobs") or ()) == len(_NUMBERS)
        if seen.prompt_scores != "echo":
            return bool((await self._one(prompt=_NUMBERS, max_tokens=1)).keys())
        count = seen.echo_tokens
        choice = await self._one(prompt=_NUMBERS, max_tokens=count, echo=True, logprobs=1)
        return _scored(choice) + 1 == len(_NUMBERS) + count

    async def _one(self, **fields: Any) -> Mapping[str, Any]:
        try:
            return (await self._ask(**fields))["choices"][0]  # type: ignore[no-any-return]
        except NotAnswered:
            return {}


def _whole(value: Any) -> Mapping[str, Any]:
    if not value["choices"]:
        raise BadReply("the reply has no choices")
    return value  # type: ignore[no-any-return]


def _scored(choice: Mapping[str, Any]) -> int:
    """How many tokens have a log-probability and a best alternative."""
    given = choice.get("logprobs")
    if not isinstance(given, Mapping):
        return 0
    values, tops = given.get("token_logprobs") or (), given.get("top_logprobs") or ()
    return sum(
        isinstance(value, (int, float)) and isinstance(top, Mapping) and bool(top)
        for value, top in zip(values, tops, strict=False)
    )
