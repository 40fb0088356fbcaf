"""Client-side tokenizers for servers that accept token ids."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption, MissingPackage
from assay.core.records.messages import Prompt
from assay.models.remote.options import Options
from assay.models.tokens import TextEncoder

__all__ = ["Tokenizer", "choose_tokenizer_backend", "load_tokenizer"]


class Tokenizer:
    """Encodes texts by lm-eval's rules for API models, and renders chats as text."""

    def __init__(self, encoder: TextEncoder, source: Any = None) -> None:
        self.encoder = encoder
        self._source = source

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        text: str = self._source.decode(list(tokens))
        return text

    def apply_chat_template(self, prompt: Prompt) -> str:
        """Render a chat with the tokenizer's chat template."""
        messages = [{"role": message.role, "content": message.text} for message in prompt.messages]
        text: str = self._source.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=not prompt.continues,
            continue_final_message=prompt.continues,
        )
        return text


def choose_tokenizer_backend(options: Options) -> str:
    """Return `huggingface`, `tiktoken`, or `none` if only the server tokenizes.

    The default is `huggingface` if a tokenizer is named or the model is a folder with one, else `none`.
    """
    backend = options.tokenizer_backend
    if options.tokenized_requests is False and not options.tokenizer:
        return "none"
    if backend == "auto":
        folder = Path(options.tokenizer or options.model)
        named = bool(options.tokenizer) or (folder / "tokenizer.json").is_file()
        return "huggingface" if named else "none"
    return "none" if backend == "remote" else backend


def load_tokenizer(options: Options) -> Tokenizer | None:
    """Load the tokenizer of the options; None if only the server tokenizes. Slow; call it in a thread.

    Raises:
        MissingPackage: The package of the tokenizer is not installed.
        InvalidOption: The tokenizer does not exist.
    """
    match choose_tokenizer_backend(options):
        case "huggingface":
            return _load_huggingface(options)
        case "tiktoken":
            return _load_tiktoken(options)
    return None


def _load_huggingface(options: Options) -> Tokenizer:
    name = options.tokenizer or options.model
    try:
        transformers = import_module("transformers")
    except ImportError:
        raise MissingPackage.of("transformers", f"the tokenizer `{name}`", where="--model_args") from None
    try:
        source = transformers.AutoTokenizer.from_pretrained(name, revision=options.revision or "main")
    except (OSError, ValueError) as error:
        shown = str(error).partition("\n")[0]
        raise InvalidOption(
            f"cannot load the tokenizer `{name}`: {shown}", where="--model_args tokenizer"
        ) from None

    def encode(texts: Sequence[str], special: bool) -> list[list[int]]:
        if not texts:
            return []
        found = source(list(texts), add_special_tokens=special, return_attention_mask=False)
        return [list(ids) for ids in found["input_ids"]]

    prefix = source.bos_token_id if source.bos_token_id is not None else source.eos_token_id
    return Tokenizer(_build_encoder(options, encode, prefix), source)


def _load_tiktoken(options: Options) -> Tokenizer:
    try:
        tiktoken = import_module("tiktoken")
    except ImportError:
        raise MissingPackage.of("tiktoken", "tokenizer_backend=tiktoken", where="--model_args") from None
    try:
        source = tiktoken.encoding_for_model(options.tokenizer or options.model)
    except KeyError as error:
        raise InvalidOption(str(error.args[0]), where="--model_args tokenizer") from None

    def encode(texts: Sequence[str], special: bool) -> list[list[int]]:
        return [source.encode(text, disallowed_special=()) for text in texts]

    return Tokenizer(_build_encoder(options, encode, source.eot_token), source)


def _build_encoder(options: Options, encode: Any, prefix: int | None) -> TextEncoder:
    """Add special tokens only with `add_bos_token`, as lm-eval does."""
    given = options.custom_prefix_token_id
    return TextEncoder(
        encode=encode,
        prefix_token=given if given is not None else (prefix or 0),
        add_bos=options.add_bos_token,
    )
