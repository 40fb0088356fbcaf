"""The tokenizer and chat template of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.records.messages import Message, Prompt
from assay.core.records.requests import Generate, Request
from assay.models.hf.arguments import HfArguments
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.weights import explain_loading_errors
from assay.models.reasoning import ReasoningFormat, ReasoningSplitter, detect_format
from assay.models.tokens import TextEncoder, Unanswerable
from assay.models.tool_calls import CallFormat, detect_call_format, to_openai_tools, to_template_messages

__all__ = ["CheckpointTokenizer", "find_chat_template", "load_tokenizer", "read_template", "render_chat"]


class CheckpointTokenizer:
    """Tokenizes texts in batches and renders chat prompts. Loaded on first use, without the weights."""

    def __init__(self, arguments: HfArguments, checkpoint: Checkpoint, *, has_encoder: bool = False) -> None:
        """`has_encoder`: for an encoder-decoder model, whose prompts always get the tokenizer's special tokens."""
        self._arguments = arguments
        self._checkpoint = checkpoint
        self._has_encoder = has_encoder

    @cached_property
    def tokenizer(self) -> Any:
        loaded = self._checkpoint.tokenizer
        return load_tokenizer(self._arguments) if loaded is None else loaded

    @cached_property
    def prefix_token(self) -> int:
        """The token that replaces an empty context: `prefix_token_id`, else the start token, else the end token."""
        given, tokenizer = self._arguments.prefix_token_id, self.tokenizer
        found = next(
            (one for one in (given, tokenizer.bos_token_id, tokenizer.eos_token_id) if one is not None), None
        )
        if found is None:
            raise InvalidOption(
                "the tokenizer has neither a start token nor an end token to replace an empty context",
                where="--model_args",
                hint="set the token: prefix_token_id=0",
            )
        return int(found)

    @cached_property
    def scoring_encoder(self) -> TextEncoder:
        """Encodes texts for likelihood requests."""
        return TextEncoder(
            encode=self.encode,
            prefix_token=self.prefix_token,
            prefix_text=self.tokenizer.decode([self.prefix_token]),
            add_bos=self._arguments.add_bos_token,
        )

    @cached_property
    def prompt_encoder(self) -> TextEncoder:
        """Encodes prompts for generation."""
        return TextEncoder(
            encode=self.encode,
            prefix_token=self.prefix_token,
            prefix_text="" if self._has_encoder else self.tokenizer.bos_token or "",
            add_bos=None if self._has_encoder else self._arguments.add_bos_token,
        )

    @cached_property
    def end_text(self) -> str:
        """The text of the end token. It also ends an answer when the model generates it as ordinary text."""
        token = self.tokenizer.eos_token_id
        return "" if token is None else str(self.tokenizer.decode([token]))

    def encode(self, texts: Sequence[str], special: bool) -> list[list[int]]:
        """Tokenize all texts in one call, because a fast tokenizer processes them in parallel."""
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
        """Decode tokens. Special tokens are left out unless `special` is set."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=not special))

    def remove_special_tokens(self, text: str) -> str:
        """Return a text without the names of special tokens."""
        for token in self.tokenizer.all_special_tokens:
            text = text.replace(token, "")
        return text

    @cached_property
    def reasoning_format(self) -> ReasoningFormat | None:
        """The marks around the reasoning of the model, if its chat template or its special tokens tell."""
        own = getattr(self.tokenizer, "chat_template", None)
        template = find_chat_template(self._arguments.chat_template, self.tokenizer) if own else None
        text = template or (own.get("default", "") if isinstance(own, dict) else own) or ""
        return detect_format(text, map(str, getattr(self.tokenizer, "get_added_vocab", dict)()))

    def make_splitter(self, prompt: Prompt, rendered: str) -> ReasoningSplitter:
        """Return how to separate the reasoning from the answer to a prompt. Only chats have a reasoning format."""
        end_mark = self._arguments.think_end_token
        known = self.reasoning_format if prompt.chat and end_mark is None else None
        return ReasoningSplitter.for_prompt(
            known, rendered, end_mark=end_mark if isinstance(end_mark, str) else ""
        )

    def render_request(self, request: Request) -> str:
        """Return the prompt of a request as the text that the model reads; its chat template knows the reasoning effort.

        Raises:
            Unanswerable: The prompt contains media.
        """
        arguments: dict[str, Any] = {}
        if isinstance(request, Generate):
            if effort := request.settings.reasoning_effort:
                arguments["reasoning_effort"] = effort
            tools = request.native_tools
            if tools is not None and tools.choice != "none":
                arguments["tools"] = to_openai_tools(tools)
        return self.render_prompt(request.prompt, **arguments)

    def find_call_format(self, request: Generate) -> CallFormat | None:
        """Return how the model writes the tool calls of a response; None if the request has no tools of its own format."""
        return self._call_format if request.native_tools is not None else None

    @cached_property
    def _call_format(self) -> CallFormat | None:
        own = getattr(self.tokenizer, "chat_template", None)
        template = find_chat_template(self._arguments.chat_template, self.tokenizer) if own else None
        text = (
            template or (own.get("tool_use", own.get("default", "")) if isinstance(own, dict) else own) or ""
        )
        return detect_call_format(text, map(str, getattr(self.tokenizer, "get_added_vocab", dict)()))

    def render_prompt(self, prompt: Prompt, **template_arguments: Any) -> str:
        """Return the prompt as the text that the model reads, with the chat template applied to chat prompts.

        Raises:
            Unanswerable: The prompt contains media.
        """
        if prompt.has_media:
            kinds = sorted({type(part).__name__.lower() for part in prompt.media})
            raise Unanswerable(f"the model does not support {' or '.join(kinds)}")
        if not prompt.chat:
            return prompt.text
        arguments = self._arguments
        messages = to_template_messages(_drop_empty_reply(prompt))
        return render_chat(
            self.tokenizer,
            messages,
            continues=len(messages) > 0 and messages[-1]["role"] == "assistant",
            template=find_chat_template(arguments.chat_template, self.tokenizer),
            **{**arguments.template_arguments, **template_arguments},
        )


def _drop_empty_reply(prompt: Prompt) -> tuple[Message, ...]:
    """Return the messages without an empty assistant message at the end, which the model is to write."""
    empty = prompt.continues and not prompt.messages[-1].text.strip()
    return prompt.messages[:-1] if empty else prompt.messages


def load_tokenizer(arguments: HfArguments) -> Any:
    """Load the tokenizer given by the arguments, else that of the checkpoint."""
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
    with explain_loading_errors(source):
        return AutoTokenizer.from_pretrained(source, **options)


def render_chat(
    tokenizer: Any,
    messages: list[dict[str, Any]],
    *,
    continues: bool,
    template: str | None = None,
    **more: Any,
) -> str:
    """Render a conversation. If it ends with an assistant message, that message is left open.

    If the template raises an error, the conversation is rendered without system messages, as in lm-eval.
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


def find_chat_template(requested: str | None, tokenizer: Any) -> str | None:
    """Return the requested template: a template of the tokenizer by name, template text, or the content of a file.

    Returns None for the tokenizer's default template.

    Raises:
        InvalidOption: There is no such template.
    """
    own = getattr(tokenizer, "chat_template", None)
    named = own if isinstance(own, dict) else {}
    if not requested:
        if not own or (named and "default" not in named):
            names = f"choose one of: {', '.join(sorted(named))}" if named else "set one: chat_template=FILE"
            raise InvalidOption(
                "the tokenizer has no chat template", where="--apply_chat_template", hint=names
            )
        return None
    if requested in named:
        return str(named[requested])
    if "{{" in requested or "{%" in requested:
        return requested
    if Path(requested).is_file():
        return Path(requested).read_text(encoding="utf-8")
    raise InvalidOption(
        f"chat template not found: `{requested}` is neither a template name nor a file",
        where="--apply_chat_template",
        hint=f"templates of the tokenizer: {', '.join(sorted(named))}"
        if named
        else "the tokenizer has only its default template",
    )


def read_template(template: str) -> str:
    """Return the content of a template file, or the argument itself if it is not a file."""
    try:
        path = Path(template)
        return path.read_text(encoding="utf-8") if path.is_file() else template
    except OSError:  # template text that is not a valid file name
        return template
