"""The tokenizer of a checkpoint: texts to tokens in batches, conversations through its chat template, tokens to text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.messages import Message, Prompt
from assay.models.hf.arguments import HfArguments
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.weights import loading_errors
from assay.models.tokens import TextEncoder, Unanswerable

__all__ = ["Vocabulary", "load_tokenizer", "render_chat", "template_text"]


class Vocabulary:
    """Loaded when first used; the weights are not needed for it."""

    def __init__(self, arguments: HfArguments, checkpoint: Checkpoint, *, apart: bool = False) -> None:
        """`apart`: the model has an encoder, so prompts get the tokenizer's special tokens whatever is said of BOS."""
        self._arguments = arguments
        self._checkpoint = checkpoint
        self._apart = apart

    @cached_property
    def tokenizer(self) -> Any:
        return load_tokenizer(self._arguments)

    @cached_property
    def prefix_token(self) -> int:
        """What stands for an empty context: as given, else the start token, else the end token."""
        given, tokenizer = self._arguments.prefix_token_id, self.tokenizer
        found = next(
            (one for one in (given, tokenizer.bos_token_id, tokenizer.eos_token_id) if one is not None), None
        )
        if found is None:
            raise InvalidOption(
                "the tokenizer has neither a start nor an end token to stand for an empty context",
                where="--model_args",
                hint="say which token does: prefix_token_id=0",
            )
        return int(found)

    @cached_property
    def scoring(self) -> TextEncoder:
        """Texts whose likelihood is asked for."""
        return TextEncoder(
            encode=self.encode,
            prefix_token=self.prefix_token,
            prefix_text=self.tokenizer.decode([self.prefix_token]),
            add_bos=self._arguments.add_bos_token,
        )

    @cached_property
    def prompting(self) -> TextEncoder:
        """Texts that are to be continued."""
        return TextEncoder(
            encode=self.encode,
            prefix_token=self.prefix_token,
            prefix_text="" if self._apart else self.tokenizer.bos_token or "",
            add_bos=None if self._apart else self._arguments.add_bos_token,
        )

    @cached_property
    def end_text(self) -> str:
        """The end token as text: it ends an answer when the model spells it, too."""
        token = self.tokenizer.eos_token_id
        return "" if token is None else str(self.tokenizer.decode([token]))

    def encode(self, texts: Sequence[str], special: bool) -> list[list[int]]:
        """All texts in one call: a fast tokenizer works on them in parallel, outside Python."""
        if not texts:
            return []
        found = self.tokenizer(
            list(texts),
            add_special_tokens=special,
            truncation=self._arguments.truncation or None,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        return [list(one) for one in found["input_ids"]]

    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """Tokens as text, special ones left out unless asked for."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=not special))

    def read(self, prompt: Prompt) -> str:
        """The one text the model reads: as it is, or through the chat template.

        Raises:
            Unanswerable: There is something in it that is not text.
        """
        if prompt.has_media:
            kinds = sorted({type(part).__name__.lower() for part in prompt.media})
            raise Unanswerable(f"the model reads text only, not {' or '.join(kinds)}")
        if not prompt.chat:
            return prompt.text
        arguments = self._arguments
        messages = [{"role": one.role, "content": one.text} for one in _spoken(prompt)]
        return render_chat(
            self.tokenizer,
            messages,
            continues=len(messages) > 0 and messages[-1]["role"] == "assistant",
            template=template_text(arguments.chat_template, self.tokenizer),
            **arguments.template_arguments,
        )


def _spoken(prompt: Prompt) -> tuple[Message, ...]:
    """The messages; an assistant's turn that is still empty is what the model is to write."""
    empty = prompt.continues and not prompt.messages[-1].text.strip()
    return prompt.messages[:-1] if empty else prompt.messages


def load_tokenizer(arguments: HfArguments) -> Any:
    """The tokenizer that was asked for, else the checkpoint's own."""
    from transformers import AutoTokenizer

    options: dict[str, Any] = {
        "revision": arguments.revision,
        "trust_remote_code": arguments.trust_remote_code,
    }
    if arguments.gguf_file and not arguments.tokenizer:
        options["gguf_file"] = arguments.gguf_file
    else:
        options["use_fast"] = arguments.use_fast_tokenizer
    if arguments.add_bos_token is not None:
        options["add_bos_token"] = arguments.add_bos_token
    if arguments.subfolder and not arguments.tokenizer:
        options["subfolder"] = arguments.subfolder
    source = arguments.tokenizer or arguments.pretrained
    with loading_errors(source):
        return AutoTokenizer.from_pretrained(source, **options)


def render_chat(
    tokenizer: Any,
    messages: list[dict[str, Any]],
    *,
    continues: bool,
    template: str | None = None,
    **more: Any,
) -> str:
    """A conversation as the template writes it; a last turn of the assistant's own is left open.

    A template that refuses a system message is given the conversation without it, as lm-eval does.
    """
    from jinja2 import TemplateError

    def apply(some: list[dict[str, Any]]) -> str:
        found = tokenizer.apply_chat_template(
            some,
            tokenize=False,
            add_generation_prompt=not continues,
            continue_final_message=continues,
            chat_template=template,
            **more,
        )
        return str(found)

    try:
        return apply(messages)
    except TemplateError:
        return apply([message for message in messages if message["role"] != "system"])


def template_text(asked: str | None, tokenizer: Any) -> str | None:
    """The template that was asked for: of a file, one of the tokenizer's by name, or written out. None: its own.

    Raises:
        InvalidOption: There is none.
    """
    own = getattr(tokenizer, "chat_template", None)
    named = own if isinstance(own, dict) else {}
    if not asked:
        if not own or (named and "default" not in named):
            names = f"choose one: {', '.join(sorted(named))}" if named else "give one: chat_template=FILE"
            raise InvalidOption(
                "the tokenizer has no chat template", where="--apply_chat_template", hint=names
            )
        return None
    if asked in named:
        return str(named[asked])
    if "{{" in asked or "{%" in asked:
        return asked
    if Path(asked).is_file():
        return Path(asked).read_text(encoding="utf-8")
    raise InvalidOption(
        f"no chat template is called `{asked}`, and there is no such file",
        where="--apply_chat_template",
        hint=f"the tokenizer has {', '.join(sorted(named))}"
        if named
        else "the tokenizer has one without a name",
    )
