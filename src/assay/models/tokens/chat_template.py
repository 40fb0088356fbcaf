"""A chat template as model files carry it: Jinja, written for the environment of `transformers`.

Messages become the one text the tokenizer reads. The template is code from a file nobody vouches for, so it runs in
Jinja's sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from assay.core.errors import DatasetError
from assay.core.messages import Prompt, Text
from assay.models.tokens.pairs import Unanswerable

__all__ = ["ChatTemplate", "takes_system", "text_of"]

_MARK = "a system message nobody else would write"


class ChatTemplate:
    """One template with the texts of the tokens it may name.

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
                f"the chat template cannot be read: {error}", where="chat_template of the model"
            ) from None

    def render(self, prompt: Prompt) -> str:
        """The chat as one text; a last message of the assistant's own is left open, to be continued.

        Raises:
            Unanswerable: The template refuses these messages.
        """
        text_of(prompt)
        messages = [{"role": message.role, "content": message.text} for message in prompt.messages]
        begun = messages[-1]["content"].strip() if prompt.continues else ""
        if not begun:
            return self._render(messages[:-1] if prompt.continues else messages, open_turn=True)
        text = self._render(messages, open_turn=False)
        place = text.rfind(begun)
        if place < 0:
            raise Unanswerable("the chat template leaves out the answer that was begun")
        return text[: place + len(begun)]

    @property
    def takes_system(self) -> bool:
        """Whether a system message reaches the model: some templates refuse it, some leave it out."""
        messages = [{"role": "system", "content": _MARK}, {"role": "user", "content": "?"}]
        try:
            return _MARK in self._render(messages, open_turn=True)
        except Unanswerable:
            return False

    def _render(self, messages: list[dict[str, str]], *, open_turn: bool) -> str:
        """`open_turn`: the text ends where the assistant begins to speak."""
        try:
            return self._template.render(messages=messages, add_generation_prompt=open_turn, **self._names)
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise Unanswerable(f"the chat template refuses these messages: {error}") from None


def takes_system(source: str) -> bool:
    """Whether a system message comes through a template, as far as that can be told without its tokenizer.

    >>> takes_system("{% for m in messages %}{{ m.content }}{% endfor %}"), takes_system("{{ messages[-1].content }}")
    (True, False)
    """
    try:
        template = ChatTemplate(source)
        template._render([{"role": "user", "content": "?"}], open_turn=True)
    except (DatasetError, Unanswerable):  # it wants something that only the tokenizer has
        return True
    return template.takes_system


def _compile(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    return environment.from_string(source)


def _to_json(value: Any, **settings: Any) -> str:
    """JSON without HTML's escapes, which Jinja's own filter makes."""
    return json.dumps(value, ensure_ascii=False, **settings)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def text_of(prompt: Prompt) -> str:
    """The text of a prompt without template.

    Raises:
        Unanswerable: There is more than text in it.
    """
    if any(not isinstance(part, Text) for message in prompt.messages for part in message.parts):
        kinds = sorted({type(part).__name__.lower() for part in prompt.media})
        raise Unanswerable(f"it reads text, not {' and '.join(kinds)}")
    return prompt.text
