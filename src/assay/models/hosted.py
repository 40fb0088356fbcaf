"""A model of a service with a protocol of its own: one call for each request. What is particular is in its `Wire`.

The HTTP layer, retries, concurrency and the encoding of media are those of `assay.models.remote`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from assay.core.errors import BadMedia, BadOption, UserMistake
from assay.core.messages import Media, Message, Prompt, Text
from assay.core.ports import Ability, Traits
from assay.core.requests import Generate, Request, Settings
from assay.core.responses import Failure, Outcome
from assay.models.credentials import key_or_error, refuse_keys
from assay.models.prices import billed_name
from assay.models.remote.address import Address, parse_address
from assay.models.remote.bulk import write_json
from assay.models.remote.chat import Reading, response_of
from assay.models.remote.endpoint import Answered, Endpoint
from assay.models.remote.faults import NotAnswered, Patience
from assay.models.remote.media import Look, prepare, write_aside
from assay.models.remote.openai import identity_of, look_of, preview_of
from assay.models.remote.options import Options, read_options

__all__ = ["HostedModel", "Wire", "hosted_options"]

_LOG = logging.getLogger(__name__)
_WINDOW = 8
_CHARACTERS_PER_TOKEN = 4


class Wire(Protocol):
    """What is particular about a service."""

    @property
    def service(self) -> str:
        """What it is called: in identities and errors."""
        ...

    @property
    def default_url(self) -> str:
        """Where it is, unless `base_url` says otherwise."""
        ...

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables that may hold the key."""
        ...

    @property
    def abilities(self) -> frozenset[Ability]: ...

    @property
    def optional(self) -> tuple[str, ...]:
        """Settings some of its models refuse, as a call names them; left out once one was refused."""
        ...

    def headers(self, key: str) -> dict[str, str]:
        """What goes with every call."""
        ...

    def path(self, options: Options) -> str:
        """Where calls go."""
        ...

    def payload(
        self, request: Generate, options: Options, look: Look, refused: frozenset[str]
    ) -> dict[str, Any]:
        """A request as the service reads it."""
        ...

    def read(self, value: Any) -> Reading:
        """What a reply says; raises `BadReply` for one without an answer."""
        ...


def hosted_options(wire: Wire, who: str, arguments: Mapping[str, Any], **defaults: Any) -> Options:
    """Read what a model was given.

    Raises:
        BadOption: A key among the arguments, an argument nobody knows, or one that makes no sense.
    """
    refuse_keys(arguments, variables=wire.variables)
    given = {"base_url": wire.default_url, **{k: v for k, v in arguments.items() if v is not None}}
    options = read_options(who, given, (), **{"seed": None, **defaults})
    if options.api != "chat" or options.azure_openai:
        raise BadOption(f"the model `{who}` has one protocol only", where="--model_args")
    return options


class HostedModel:
    """Asks a service. Knows tokens and cost only as the service tells them."""

    def __init__(self, wire: Wire, options: Options, shaping: Mapping[str, str] | None = None) -> None:
        self.wire = wire
        self.options = options
        self._shaping = dict(shaping or {})
        """Further facts that shape its answers, for its identity."""

        self.look = look_of(options)
        self.refused: frozenset[str] = frozenset()
        """Settings the model was seen to refuse."""

        self._endpoint: Endpoint | None = None

    @property
    def name(self) -> str:
        """The model as the service calls it."""
        return self.options.model

    @property
    def traits(self) -> Traits:
        """What the service does."""
        return Traits(abilities=self.wire.abilities, window=_WINDOW, in_flight=self.options.most_at_once)

    @property
    def billed_as(self) -> str:
        """What the price table calls it; a server of one's own that speaks the protocol costs nothing."""
        return billed_name(self.address.url, self.options.model)

    @property
    def address(self) -> Address:
        """Where the service is: `base_url` with or without the path of a call."""
        address = parse_address(self.options.base_url or self.wire.default_url, where="base_url")
        default = parse_address(self.wire.default_url)
        path = address.path.removesuffix("/messages").removesuffix("/models")
        return Address(address.scheme, address.host, address.port, path or default.path, address.query)

    async def identify(self) -> Mapping[str, str]:
        """Service, model and every argument that shapes an answer. Asks nobody."""
        return self.identity()

    def identity(self) -> dict[str, str]:
        """The same, for whoever cannot wait."""
        facts = identity_of(self.options, self.wire.service)
        return {**facts, "base_url": self.address.url, **self._shaping}

    def preview(self, request: Request) -> str:
        """The messages."""
        return preview_of(request)

    def prepare(self, part: Media) -> None:
        """Encode a medium ahead of its call; the engine does it in a thread."""
        prepare(part, self.look)

    async def probe(self) -> Sequence[str]:
        """See that there is a key, before anything is asked; the service itself is not called, it charges.

        Raises:
            BadOption: There is none.
        """
        await self.endpoint().close()
        return ()

    @property
    def seen(self) -> Mapping[str, Any]:
        """Nothing: what the service can do is known."""
        return {}

    async def open(self) -> None:
        """Read the key. The service itself is asked with the first request."""
        self._endpoint = self.endpoint()

    def endpoint(self) -> Endpoint:
        """The service, ready to be called.

        Raises:
            BadOption: There is no key.
        """
        options = self.options
        variables = (options.api_key_env,) if options.api_key_env else self.wire.variables
        return Endpoint(
            self.address,
            headers={**options.header, **self.wire.headers(key_or_error(variables, who=self.wire.service))},
            key_variable=variables[0],
            patience=Patience(
                retries=options.max_retries,
                timeout_s=options.timeout,
                total_s=options.total_timeout,
                first_wait_s=options.retry_backoff_s,
            ),
            num_concurrent=options.most_at_once,
            start=options.first_at_once,
            rpm=options.rpm,
            tpm=options.tpm,
            verify_certificate=options.verify_certificate,
            ca_cert_path=options.ca_cert_path,
        )

    async def learn(self, endpoint: Endpoint) -> None:
        """Find out with one tiny call which settings the model refuses, before thousands are sent at once."""
        prompt = Prompt((Message("user", (Text("Say yes."),)),), chat=True)
        settings = Settings({"max_gen_toks": 16, "do_sample": False})
        with suppress(NotAnswered, UserMistake):  # whoever asks next hears of it
            await self._call(endpoint, Generate(task="", document=0, prompt=prompt, settings=settings))

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Each request on its own, as soon as it is answered."""
        if len(window) == 1:
            yield await self._answer(window[0])
            return
        tasks = [asyncio.ensure_future(self._answer(request)) for request in window]
        try:
            for task in asyncio.as_completed(tasks):
                yield await task
        finally:
            for pending in tasks:
                pending.cancel()

    async def close(self) -> None:
        """Close the connections."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.close()

    # --- one call ----------------------------------------------------------------------------------

    async def _answer(self, request: Request) -> Outcome:
        if self._endpoint is None:
            raise RuntimeError("answer() was called before open()")
        if not isinstance(request, Generate):
            return self.unable(request)
        try:
            answered = await self._call(self._endpoint, request)
        except BadMedia as error:
            return Failure(request_id=request.id, kind="bad media", message=str(error))
        except NotAnswered as error:
            return error.failure(request.id)
        return self.response(request, answered.value, answered.seconds)

    async def _call(self, endpoint: Endpoint, request: Generate) -> Answered[Reading]:
        """One call; a setting the model refuses is left out, once and for all."""
        while True:
            refused = self.refused
            body = await self.body(request)
            tokens = 0
            if endpoint.lane.tokens is not None:
                limit = request.settings.max_tokens or self.options.max_gen_toks
                tokens = limit + (0 if request.prompt.has_media else len(body) // _CHARACTERS_PER_TOKEN)
            try:
                answered = await endpoint.post(
                    self.wire.path(self.options), body, self.wire.read, tokens=tokens
                )
            except NotAnswered as error:
                named = self._named(error, refused)
                if not named:
                    raise
                if fresh := named - self.refused:
                    words = ", ".join(f"`{name}`" for name in sorted(fresh))
                    _LOG.warning("%s takes no %s: it answers its own way there", self.name, words)
                self.refused |= named
                continue
            usage = answered.value.usage
            if tokens and usage is not None:
                endpoint.lane.settle(tokens, usage.input_tokens + usage.output_tokens)
            return answered

    def _named(self, error: NotAnswered, sent_without: frozenset[str]) -> frozenset[str]:
        """The optional settings a refusal names, which the refused call had."""
        if error.fault.status != 400:
            return frozenset()
        said = error.fault.message.lower()
        return frozenset(name for name in self.wire.optional if name.lower() in said) - sent_without

    async def body(self, request: Generate) -> bytes:
        """The call as bytes; media are encoded in a thread."""
        if request.prompt.has_media:
            return await write_aside(self.written, request)
        return self.written(request)

    def written(self, request: Generate) -> bytes:
        """The same, in the calling thread."""
        return write_json(self.wire.payload(request, self.options, self.look, self.refused))

    def response(self, request: Generate, reading: Reading, seconds: float) -> Outcome:
        """The answer to a request."""
        said, served = reading.said[0], reading.served
        return response_of(request, said, reading.usage, self.options, seconds, served=served)

    def unable(self, request: Request) -> Failure:
        """What becomes of a request for probabilities."""
        message = f"{self.wire.service} gives no probabilities"
        return Failure(request_id=request.id, kind="bad request", message=message)
