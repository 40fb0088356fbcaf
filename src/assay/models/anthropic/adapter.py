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
_THINKING = ("adaptive", "disabled")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")


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
        thinking: str = "",
        effort: str = "",
        anthropic_version: str = "2023-06-01",
        **arguments: Any,
    ) -> None:
        wire = MessagesWire(
            thinking_budget=_budget(thinking_budget),
            thinking=_one_of("thinking", thinking, _THINKING),
            effort=_one_of("effort", effort, _EFFORTS),
            version=str(anthropic_version),
        )
        given = {
            _NAMES.get(name, name): value for name, value in arguments.items() if name not in _WITHOUT_EFFECT
        }
        options = hosted_options(
            wire, "anthropic", {"rpm": rpm, "tpm": tpm, **given}, max_size_in_mb=_LARGEST_PICTURE_MB
        )
        told = {"thinking_budget": wire.thinking_budget, "thinking": wire.thinking, "effort": wire.effort}
        super().__init__(wire, options, {name: str(value) for name, value in told.items() if value})


def _one_of(name: str, value: Any, words: tuple[str, ...]) -> str:
    if value not in ("", None, *words):
        raise BadOption(
            f"`{name}` cannot be {value!r}", where="--model_args", hint=f"one of {', '.join(words)}"
        )
    return str(value or "")


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
