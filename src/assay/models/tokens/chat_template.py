"""Render the chat template of a model file: a Jinja template for the environment of `transformers`.

The template is untrusted code, so it runs in Jinja's sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from assay.core.errors import DatasetError
from assay.core.records.messages import Prompt
from assay.core.records.tools import Tools
from assay.models.tokens.pairs import Unanswerable
from assay.models.tool_calls.messages import to_openai_tools, to_template_messages

__all__ = ["ChatTemplate", "require_text", "supports_system_message"]

_PROBE_TEXT = "assay system message probe"


class ChatTemplate:
    """A chat template and the special tokens it can refer to.

    >>> chat = ChatTemplate("{% for m in messages %}[{{ m.role }}] {{ m.content }}\\n{% endfor %}[assistant]")
    >>> chat.render(Prompt.of_text("Hi"))
    '[user] Hi\\n[assistant]'
    """

    def __init__(
        self, source: str, *, bos: str = "", eos: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        self._names = {"bos_token": bos, "eos_token": eos, **(arguments or {})}
        try:
            self._template = _compile(source)
        except TemplateError as error:
            raise DatasetError(
                f"invalid chat template: {error}", where="chat_template of the model"
            ) from None

    def render(self, prompt: Prompt, tools: Tools | None = None, **variables: Any) -> str:
        """Render a chat prompt, with tools if given. If it ends with an assistant message, that message is left open.

        `variables` are further variables of the template, such as `reasoning_effort`.

        Raises:
            Unanswerable: The template raises an error for these messages.
        """
        require_text(prompt)
        messages = to_template_messages(prompt)
        if tools is not None:
            variables["tools"] = to_openai_tools(tools)
        reply_start = messages[-1]["content"].strip() if prompt.continues else ""
        if not reply_start:
            shown = messages[:-1] if prompt.continues else messages
            return self._render(shown, open_turn=True, **variables)
        text = self._render(messages, open_turn=False, **variables)
        position = text.rfind(reply_start)
        if position < 0:
            raise Unanswerable("the chat template drops the start of the reply")
        return text[: position + len(reply_start)]

    @property
    def supports_system_message(self) -> bool:
        """Whether the template renders system messages: some templates raise an error, some drop them."""
        messages = [{"role": "system", "content": _PROBE_TEXT}, {"role": "user", "content": "?"}]
        try:
            return _PROBE_TEXT in self._render(messages, open_turn=True)
        except Unanswerable:
            return False

    def _render(self, messages: list[dict[str, Any]], *, open_turn: bool, **variables: Any) -> str:
        """`open_turn`: end the text where the reply of the assistant starts."""
        try:
            return self._template.render(
                messages=messages, add_generation_prompt=open_turn, **{**self._names, **variables}
            )
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise Unanswerable(f"chat template error: {error}") from None


@lru_cache(maxsize=16)
def supports_system_message(source: str) -> bool:
    """Return whether a template renders system messages; True if that cannot be determined without the tokenizer.

    >>> supports_system_message("{% for m in messages %}{{ m.content }}{% endfor %}"), supports_system_message("{{ messages[-1].content }}")
    (True, False)
    """
    try:
        template = ChatTemplate(source)
        template._render([{"role": "user", "content": "?"}], open_turn=True)
    except (DatasetError, Unanswerable):  # the template needs the tokenizer
        return True
    return template.supports_system_message


@lru_cache(maxsize=16)
def _compile(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_template_error
    environment.globals["strftime_now"] = _format_now
    return environment.from_string(source)


def _to_json(value: Any, **settings: Any) -> str:
    """Serialize to JSON without the HTML escapes of Jinja's own filter."""
    return json.dumps(value, ensure_ascii=False, **settings)


def _raise_template_error(message: str) -> NoReturn:
    raise TemplateError(message)


def _format_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def require_text(prompt: Prompt) -> str:
    """Return the text of a prompt without a template.

    Raises:
        Unanswerable: The prompt contains media.
    """
    if prompt.has_media:
        kinds = sorted({type(part).__name__.lower() for part in prompt.media})
        raise Unanswerable(f"the model does not support {' and '.join(kinds)}")
    return prompt.text
