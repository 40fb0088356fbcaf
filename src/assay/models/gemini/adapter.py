"""Gemini: what its arguments are called, and which protocol is spoken."""

from __future__ import annotations

from typing import Any

from assay.core.errors import BadOption
from assay.models.gemini.contents import ContentsWire
from assay.models.hosted import HostedModel, hosted_options

__all__ = ["GeminiModel"]

_NAMES = {"max_tokens": "max_gen_toks"}
_WITHOUT_EFFECT = frozenset(
    {"interleave", "modality", "temperature", "tokenizer_backend", "tokenizer", "location"}
)
_LARGEST_CALL_MB = 18.0
"""A call with everything in it may have 20 MB."""

_THRESHOLDS = ("OFF", "BLOCK_NONE", "BLOCK_ONLY_HIGH", "BLOCK_MEDIUM_AND_ABOVE", "BLOCK_LOW_AND_ABOVE")
_LEVELS = ("MINIMAL", "LOW", "MEDIUM", "HIGH")


class GeminiModel(HostedModel):
    """A model behind the Gemini API: text, pictures, sounds, videos whole or as frames.

    >>> GeminiModel(model="gemini-2.5-flash").billed_as
    'gemini/gemini-2.5-flash'
    """

    def __init__(
        self,
        *,
        batch_size: Any = None,
        rpm: Any = None,
        tpm: Any = None,
        thinking_budget: Any = None,
        thinking_level: str = "",
        safety_threshold: str = "BLOCK_NONE",
        vertexai: Any = False,
        project: Any = None,
        **arguments: Any,
    ) -> None:
        if str(vertexai).lower() == "true" or project:
            raise BadOption(
                "Vertex AI has keys of another kind, which `gemini` does not know",
                where="--model_args",
                hint="--model litellm --model_args model=vertex_ai/NAME asks it",
            )
        wire = ContentsWire(
            thinking_budget=_budget(thinking_budget),
            safety_threshold=_one_of("safety_threshold", safety_threshold, _THRESHOLDS),
            thinking_level=_one_of("thinking_level", thinking_level, _LEVELS),
        )
        given = {
            _NAMES.get(name, name): value for name, value in arguments.items() if name not in _WITHOUT_EFFECT
        }
        options = hosted_options(
            wire,
            "gemini",
            {"rpm": rpm, "tpm": tpm, **given},
            max_size_in_mb=_LARGEST_CALL_MB,
            video="file",
            seed=1234,
        )
        shaping = {"safety_threshold": wire.safety_threshold}
        if wire.thinking_budget is not None:
            shaping["thinking_budget"] = str(wire.thinking_budget)
        if wire.thinking_level:
            shaping["thinking_level"] = wire.thinking_level
        super().__init__(wire, options, shaping)


def _budget(value: Any) -> int | None:
    if value is None:
        return None
    try:
        budget = int(value)
    except (TypeError, ValueError):
        budget = -2
    if budget < -1:
        raise BadOption(
            f"`thinking_budget` must be a number of tokens, not {value!r}",
            where="--model_args",
            hint="0 for none, -1 for as many as the model likes",
        )
    return budget


def _one_of(name: str, value: Any, words: tuple[str, ...]) -> str:
    word = str(value or "").upper()
    if word and word not in words:
        raise BadOption(
            f"`{name}` cannot be {value!r}", where="--model_args", hint=f"one of {', '.join(words)}"
        )
    return word
