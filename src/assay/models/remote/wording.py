"""A request as the bytes of a call. What requests of one task have in common is written once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from assay.core.messages import Prompt
from assay.core.requests import Generate, Settings
from assay.models.remote import chat, responses_api
from assay.models.remote.bulk import write_json
from assay.models.remote.chat import Reading, chat_fields, chat_messages, read_chat, stops_of
from assay.models.remote.media import Look
from assay.models.remote.options import Options
from assay.models.remote.responses_api import read_responses, responses_fields, responses_input
from assay.models.remote.seen import Seen

__all__ = ["Manner", "Wording"]

_MOST_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Manner:
    """How to generate, written down."""

    head: str
    """The JSON of every field but the messages, open at its end."""

    stops: tuple[str, ...]
    max_tokens: int


class Wording:
    """Writes calls in one of the two forms, and reads their replies."""

    def __init__(self, options: Options, seen: Seen, look: Look, *, tokens: bool = False) -> None:
        """`tokens`: answers are to bring the log-probabilities of their tokens."""
        self._options = options
        self._tokens = tokens
        self._seen = seen
        self._look = look
        self._manners: dict[tuple[str, int, int], Manner] = {}
        self._responses = options.api == "responses"
        self.path = responses_api.PATH if self._responses else chat.PATH

    def manner(self, settings: Settings, repeat: int, n: int) -> Manner:
        """The part of a call that its settings decide."""
        key = (settings.digest, repeat, n)
        known = self._manners.get(key)
        if known is None:
            if len(self._manners) >= _MOST_KEPT:
                self._manners.clear()
            known = self._manners[key] = self._made(settings, repeat, n)
        return known

    def _made(self, settings: Settings, repeat: int, n: int) -> Manner:
        options, seen = self._options, self._seen
        if self._responses:
            fields = responses_fields(settings, options, seen)
        else:
            fields = chat_fields(settings, options, seen, repeat, n, tokens=self._tokens)
        limit = options.max_gen_toks if settings.max_tokens is None else settings.max_tokens
        return Manner(json.dumps(fields)[:-1], stops_of(settings, options), limit)

    def body(self, request: Generate, manner: Manner) -> bytes:
        """The whole call. Slow where there are media: for a thread then."""
        name = "input" if self._responses else "messages"
        if request.prompt.has_media:
            before = f'{manner.head}, "{name}": '.encode()
            return write_json(self._messages(request.prompt), before=before, after=b"}")
        return f'{manner.head}, "{name}": {json.dumps(self._messages(request.prompt))}}}'.encode()

    def _messages(self, prompt: Prompt) -> list[dict[str, Any]]:
        if self._responses:
            return responses_input(prompt, self._look)
        return chat_messages(prompt, self._options, self._look)

    def read(self, value: Any) -> Reading:
        """The answers in a reply."""
        return read_responses(value) if self._responses else read_chat(value)
