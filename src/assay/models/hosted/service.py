"""Base of models of hosted services: one call per request. A `HostedApi` describes what differs between services.

HTTP, retries, concurrency and media encoding come from `assay.models.remote`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from assay.core.errors import InvalidOption, MediaError, UserError
from assay.core.ports import Ability, Traits
from assay.core.records.messages import Media, Message, Prompt, Text
from assay.core.records.requests import Generate, Request, Settings
from assay.core.records.responses import Failure, Outcome
from assay.models.credentials import reject_key_arguments, require_key
from assay.models.prices import build_billed_name
from assay.models.remote.endpoint import CallOutcome, Endpoint
from assay.models.remote.errors import CallFailed
from assay.models.remote.openai import build_identity, build_media_encoding, format_preview
from assay.models.remote.options import Options, read_options
from assay.models.remote.output_limits import compute_output_limit
from assay.models.remote.protocol.chat import ParsedReply, build_response
from assay.models.remote.protocol.json_writer import write_json
from assay.models.remote.protocol.media import MediaEncoding, prepare_media, write_in_thread
from assay.models.remote.token_bounds import TokenBound, TokenBounds
from assay.models.remote.transport.address import Address, parse_address

__all__ = ["HostedApi", "HostedModel", "read_hosted_options"]

_LOG = logging.getLogger(__name__)
_WINDOW = 8


class HostedApi(Protocol):
    """The API of a service: address, headers, payloads and replies."""

    @property
    def service(self) -> str:
        """Name of the service in identities and errors."""
        ...

    @property
    def default_url(self) -> str:
        """Address of the service, unless `base_url` is given."""
        ...

    @property
    def key_variables(self) -> tuple[str, ...]:
        """Environment variables that may contain the key."""
        ...

    @property
    def abilities(self) -> frozenset[Ability]: ...

    @property
    def optional_settings(self) -> tuple[str, ...]:
        """Fields that some models of the service reject; they are omitted after the first rejection."""
        ...

    def build_headers(self, key: str) -> dict[str, str]:
        """Return the headers of every call."""
        ...

    def build_path(self, options: Options) -> str:
        """Return the path of a call."""
        ...

    def build_payload(
        self, request: Generate, options: Options, media: MediaEncoding, refused: frozenset[str]
    ) -> dict[str, Any]:
        """Return the payload of a request."""
        ...

    def parse_reply(self, value: Any) -> ParsedReply:
        """Parse a reply; raise `BadReply` if it contains no answer."""
        ...


def read_hosted_options(
    api: HostedApi, model_name: str, arguments: Mapping[str, Any], **defaults: Any
) -> Options:
    """Parse the arguments of a hosted model.

    Raises:
        InvalidOption: An argument is a key, unknown or invalid.
    """
    reject_key_arguments(arguments, variables=api.key_variables)
    given = {"base_url": api.default_url, **{k: v for k, v in arguments.items() if v is not None}}
    options = read_options(model_name, given, (), **{"seed": None, **defaults})
    if options.api != "chat" or options.azure_openai:
        raise InvalidOption(
            f"the model `{model_name}` supports neither `api` nor `azure_openai`", where="--model_args"
        )
    return options


class HostedModel:
    """A model of a hosted service."""

    def __init__(
        self, api: HostedApi, options: Options, identity_facts: Mapping[str, str] | None = None
    ) -> None:
        self.api = api
        self.options = options
        self._identity_facts = dict(identity_facts or {})
        """Additional settings that affect answers, for the identity."""

        self.media = build_media_encoding(options)
        self.refused_settings: frozenset[str] = frozenset()
        """Settings the model rejected."""

        self._bounds = TokenBounds(options.model, media=self.media, system_prompt=options.system_prompt)
        self._endpoint: Endpoint | None = None

    @property
    def name(self) -> str:
        """The service's name of the model."""
        return self.options.model

    @property
    def traits(self) -> Traits:
        """The capabilities of the service."""
        return Traits(abilities=self.api.abilities, window=_WINDOW, in_flight=self.options.max_concurrency)

    @property
    def billed_as(self) -> str:
        """The name of the model in price tables; a self-hosted server with the same API costs nothing."""
        return build_billed_name(self.address.url, self.options.model)

    def find_output_limit(self, request: Generate) -> int | None:
        """Return the largest number of tokens of the answer, with its thinking and the limits in `extra_body`."""
        thinking = max(0, getattr(self.api, "thinking_budget", None) or 0)
        return compute_output_limit(request.settings, self.options, thinking_tokens=thinking)

    @property
    def address(self) -> Address:
        """Address of the service; `base_url` may include the path of a call."""
        address = parse_address(self.options.base_url or self.api.default_url, where="base_url")
        default = parse_address(self.api.default_url)
        path = address.path.removesuffix("/messages").removesuffix("/models")
        return Address(address.scheme, address.host, address.port, path or default.path, address.query)

    async def identify(self) -> Mapping[str, str]:
        """Service, model and all arguments that affect answers. Makes no call."""
        return self.build_identity()

    def build_identity(self) -> dict[str, str]:
        """Return the identity synchronously."""
        facts = build_identity(self.options, self.api.service)
        return {**facts, "base_url": self.address.url, **self._identity_facts}

    def preview(self, request: Request) -> str:
        """Return the messages."""
        return format_preview(request)

    def prepare(self, part: Media) -> None:
        """Encode a media part ahead of its call; the engine calls this in a thread."""
        prepare_media(part, self.media)

    async def probe(self) -> Sequence[str]:
        """Check that there is a key. Does not call the service, which charges for calls.

        Raises:
            InvalidOption: There is no key.
        """
        await self.open_endpoint().close()
        return ()

    @property
    def seen(self) -> Mapping[str, Any]:
        """Empty: the capabilities of the service are known."""
        return {}

    async def open(self) -> None:
        """Read the key. The first request contacts the service."""
        self._endpoint = self.open_endpoint()

    def open_endpoint(self) -> Endpoint:
        """Return an endpoint for the service.

        Raises:
            InvalidOption: There is no key.
        """
        options = self.options
        variables = (options.api_key_env,) if options.api_key_env else self.api.key_variables
        return Endpoint(
            self.address,
            headers={
                **options.header,
                **self.api.build_headers(require_key(variables, service=self.api.service)),
            },
            key_variable=variables[0],
            retry_policy=options.retry_policy,
            num_concurrent=options.max_concurrency,
            initial_concurrency=options.initial_concurrency,
            rpm=options.rpm,
            tpm=options.tpm,
            token_counting="requested" if options.tpm_counts == "requested" else "used",
            counts_tokens_at_start=options.base_url in ("", self.api.default_url),
            verify_certificate=options.verify_certificate,
            ca_cert_path=options.ca_cert_path,
            client_cert_path=options.client_cert_path,
            max_body_bytes=int(options.max_reply_mb * 2**20),
        )

    async def probe_settings(self, endpoint: Endpoint) -> None:
        """Find out with one small call which settings the model rejects, before thousands of calls are sent."""
        prompt = Prompt((Message("user", (Text("Say yes."),)),), chat=True)
        settings = Settings({"max_gen_toks": 16, "do_sample": False})
        with suppress(CallFailed, UserError):  # the next call reports it
            await self._call(endpoint, Generate(task="", document=0, prompt=prompt, settings=settings))

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Answer each request in its own call."""
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

    async def _answer(self, request: Request) -> Outcome:
        if self._endpoint is None:
            raise RuntimeError("answer() was called before open()")
        if not isinstance(request, Generate):
            return self._build_unsupported_failure(request)
        try:
            answered = await self._call(self._endpoint, request)
        except MediaError as error:
            return Failure(request_id=request.id, kind="bad media", message=str(error))
        except CallFailed as error:
            return error.to_failure(request.id)
        return self._build_response(request, answered.value, answered.seconds)

    async def _call(self, endpoint: Endpoint, request: Generate) -> CallOutcome[ParsedReply]:
        """Make one call; omit a setting that the model rejects in this and all later calls."""
        parse = self.api.parse_reply
        if request.native_tools is not None:
            parse = getattr(self.api, "parse_tool_reply", parse)
        while True:
            refused = self.refused_settings
            body = await self._build_body(request)
            bound = await self._bound_tokens(request) if endpoint.rate_limit.tokens is not None else None
            try:
                answered = await endpoint.post(self.api.build_path(self.options), body, parse, tokens=bound)
            except CallFailed as error:
                named = self._find_refused_settings(error, refused)
                if not named:
                    raise
                if fresh := named - self.refused_settings:
                    words = ", ".join(f"`{name}`" for name in sorted(fresh))
                    _LOG.warning("%s rejects %s; requests omit it", self.name, words)
                self.refused_settings |= named
                continue
            if bound is not None:
                self._bounds.learn(bound, answered.value.usage)
            return answered

    async def _bound_tokens(self, request: Generate) -> TokenBound:
        """Return the largest number of tokens of a call."""
        limit = self.find_output_limit(request)
        if request.prompt.has_media:
            found: TokenBound = await write_in_thread(self._bounds.compute, request.prompt, limit, request)
            return found
        return self._bounds.compute(request.prompt, limit, request)

    def _find_refused_settings(self, error: CallFailed, sent_without: frozenset[str]) -> frozenset[str]:
        """Return the optional settings that an error names and that the call contained."""
        if error.cause.status != 400:
            return frozenset()
        text = error.cause.message.lower()
        named = [name for name in self.api.optional_settings if name.lower() in text]
        if len(named) > 1 and "both" in text:  # any of them alone is accepted: keep the first
            named = named[1:]
        return frozenset(named) - sent_without

    async def _build_body(self, request: Generate) -> bytes:
        """Return the request body; encode media in a thread."""
        if request.prompt.has_media:
            return await write_in_thread(self.write_body, request)
        return self.write_body(request)

    def write_body(self, request: Generate) -> bytes:
        """Return the request body; blocks while media are encoded."""
        return write_json(self.api.build_payload(request, self.options, self.media, self.refused_settings))

    def _build_response(self, request: Generate, reply: ParsedReply, seconds: float) -> Outcome:
        """Return the response to a request."""
        choice, served = reply.choices[0], reply.served
        return build_response(request, choice, reply.usage, self.options, seconds, served=served)

    def _build_unsupported_failure(self, request: Request) -> Failure:
        """Return the failure of a likelihood request."""
        message = f"{self.api.service} returns no log-probabilities of prompts"
        return Failure(request_id=request.id, kind="bad request", message=message)
