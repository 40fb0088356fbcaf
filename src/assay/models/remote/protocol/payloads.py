"""Request bodies as bytes. The fields that requests of one task share are serialised once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Any

from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Settings
from assay.models.remote.capabilities.cache import ServerCapabilities
from assay.models.remote.options import Options
from assay.models.remote.protocol import chat, responses_api
from assay.models.remote.protocol.chat import (
    ParsedReply,
    build_chat_fields,
    build_chat_messages,
    build_tool_fields,
    collect_stop_strings,
    parse_chat_reply,
)
from assay.models.remote.protocol.json_writer import write_json
from assay.models.remote.protocol.media import MediaEncoding
from assay.models.remote.protocol.responses_api import (
    build_responses_fields,
    build_responses_input,
    build_responses_tool_fields,
    parse_responses_reply,
)

__all__ = ["GenerationFields", "PayloadWriter"]

_MAX_CACHED_FIELDS = 4096


@dataclass(frozen=True, slots=True)
class GenerationFields:
    """The serialised fields of a call that depend on the generation settings."""

    head: str
    """JSON of all fields except the messages, without the closing brace."""

    stops: tuple[str, ...]
    max_tokens: int


class PayloadWriter:
    """Writes request bodies for chat completions or the responses API, and parses the replies."""

    def __init__(
        self,
        options: Options,
        capabilities: ServerCapabilities,
        media: MediaEncoding,
        *,
        tokens: bool = False,
    ) -> None:
        """`tokens`: request log-probabilities of the generated tokens."""
        self._options = options
        self._tokens = tokens
        self._capabilities = capabilities
        self._media = media
        self._fields: dict[tuple[str, int, int], GenerationFields] = {}
        self._responses = options.api == "responses"
        self.path = responses_api.PATH if self._responses else chat.PATH

    def get_fields(self, settings: Settings, repeat: int, n: int) -> GenerationFields:
        """Return the fields for these settings, from the cache if possible."""
        key = (settings.digest, repeat, n)
        known = self._fields.get(key)
        if known is None:
            if len(self._fields) >= _MAX_CACHED_FIELDS:
                self._fields.clear()
            known = self._fields[key] = self._build_fields(settings, repeat, n)
        return known

    def _build_fields(self, settings: Settings, repeat: int, n: int) -> GenerationFields:
        options, capabilities = self._options, self._capabilities
        if self._responses:
            fields = build_responses_fields(settings, options, capabilities)
        else:
            fields = build_chat_fields(settings, options, capabilities, repeat, n, tokens=self._tokens)
        limit = options.max_gen_toks if settings.max_tokens is None else settings.max_tokens
        return GenerationFields(json.dumps(fields)[:-1], collect_stop_strings(settings, options), limit)

    def write_body(self, request: Generate, fields: GenerationFields) -> bytes:
        """Return the request body. Slow for prompts with media; call it in a thread then."""
        name = "input" if self._responses else "messages"
        head = fields.head
        if request.tools is not None or request.response_format is not None:
            head += self._write_tool_fields(request)
        plain = request.prompt.plain
        if plain is not None and not self._responses and not self._options.system_prompt:
            role = request.prompt.messages[0].role
            content = encode_basestring_ascii(plain)
            return f'{head}, "messages": [{{"role": "{role}", "content": {content}}}]}}'.encode("ascii")
        if request.prompt.has_media:
            before = f'{head}, "{name}": '.encode()
            return write_json(self._build_messages(request.prompt), before=before, after=b"}")
        return f'{head}, "{name}": {json.dumps(self._build_messages(request.prompt))}}}'.encode()

    def _write_tool_fields(self, request: Generate) -> str:
        """Return the fields for tools and the response format as JSON; `extra_body` overrides them."""
        own = build_responses_tool_fields(request) if self._responses else build_tool_fields(request)
        sent = {key: value for key, value in own.items() if key not in self._options.extra_body}
        return f", {json.dumps(sent)[1:-1]}" if sent else ""

    def _build_messages(self, prompt: Prompt) -> list[dict[str, Any]]:
        if self._responses:
            return build_responses_input(prompt, self._media)
        return build_chat_messages(prompt, self._options, self._media)

    def parse_reply(self, value: Any) -> ParsedReply:
        """Parse a reply."""
        return parse_responses_reply(value) if self._responses else parse_chat_reply(value)
