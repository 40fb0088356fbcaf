"""Claude: what its arguments are called, and which protocol is spoken."""

from __future__ import annotations

from typing import Any

from assay.core.errors import BadOption
from assay.models.anthropic.messages import MessagesWire
from assay.models.hosted import HostedModel, hosted_options

__all__ = ["AnthropicModel"]

_NAMES = {"max_tokens": "max_gen_toks", "max_tokens_to_sample": "max_gen_toks"}
_WITHOUT_EFFECT = frozenset({"image_token", "modality", "temperature", "tokenizer_backend", "tokenizer"})
"""Arguments of other harnesses that decide nothing here; the temperature is the task's, or `--gen_kwargs`."""

_LARGEST_PICTURE_MB = 5.0


class AnthropicModel(HostedModel):
    """A model behind Anthropic's Messages API: text, pictures, videos as frames.

    >>> AnthropicModel(model="claude-haiku-4-5").billed_as
    'anthropic/claude-haiku-4-5'
    """

    def __init__(
        self,
        *,
        batch_size: Any = None,
        rpm: Any = None,
        tpm: Any = None,
        thinking_budget: Any = None,
        anthropic_version: str = "2023-06-01",
        **arguments: Any,
    ) -> None:
        wire = MessagesWire(_budget(thinking_budget), str(anthropic_version))
        given = {
            _NAMES.get(name, name): value for name, value in arguments.items() if name not in _WITHOUT_EFFECT
        }
        options = hosted_options(
            wire, "anthropic", {"rpm": rpm, "tpm": tpm, **given}, max_size_in_mb=_LARGEST_PICTURE_MB
        )
        thinking = {"thinking_budget": str(wire.thinking_budget)} if wire.thinking_budget else {}
        super().__init__(wire, options, thinking)


def _budget(value: Any) -> int | None:
    if value is None or value is False:
        return None
    try:
        budget = int(value)
    except (TypeError, ValueError):
        budget = -1
    if budget < 0:
        raise BadOption(f"`thinking_budget` must be a number of tokens, not {value!r}", where="--model_args")
    return budget or None
