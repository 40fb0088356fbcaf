"""A request's settings as vLLM's sampling parameters, with lm-evaluation-harness's meaning of each. Imports no vLLM."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.core.requests import Generate, Settings

__all__ = ["SCORING", "Sampling", "sampling_of"]

_READ_HERE = frozenset({
    "until", "stop", "max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens", "do_sample",
    "temperature", "seed", "top_p", "top_k",
})  # fmt: skip
_OF_TRANSFORMERS = frozenset(
    {"num_beams", "use_cache", "pad_token_id", "early_stopping", "return_dict_in_generate"}
)
"""Settings of task files that only transformers knows; one beam is what vLLM does."""

SCORING: Mapping[str, Any] = {"temperature": 0.0, "prompt_logprobs": 1, "max_tokens": 1, "detokenize": False}
"""Likelihoods: of every token of the prompt, and of the likeliest in its place. One token more is vLLM's least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one answer is written."""

    parameters: Mapping[str, Any]
    """Keyword arguments of `SamplingParams`."""

    stops: tuple[str, ...]
    """Where the answer is cut; with thinking the engine does not know them, for they occur in thoughts too."""


def sampling_of(
    request: Generate, *, end_text: str, default_tokens: int, seed: int, least_tokens: int | None = None,
    heeds_stops: bool = True, top_p: float = 1.0, thinks: bool = False,
) -> Sampling:  # fmt: skip
    """The parameters of one request.

    `least_tokens`: so many at least, whatever the task says. `top_p`: where it says nothing. `thinks`: stop strings wait
    for the end of thinking.
    Neither `do_sample` nor `temperature` is greedy; lm-eval means that too and draws at temperature 1.
    """
    settings = request.settings
    limit = default_tokens if settings.max_tokens is None else settings.max_tokens
    if least_tokens is not None:
        limit = least_tokens if settings.max_tokens is None else max(settings.max_tokens, least_tokens)
    task_stops = tuple(stop for stop in settings.stop if stop) if heeds_stops else ()
    ends = (end_text,) if end_text else ()
    stops = tuple(dict.fromkeys((*task_stops, *ends)))
    parameters: dict[str, Any] = {
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        **_others(settings),
        "max_tokens": limit,
        "stop": list(ends if thinks else stops),
        "temperature": settings.temperature,
    }
    if settings.temperature > 0:
        said = top_p if settings.values.get("top_p") is None else settings.top_p
        parameters |= {"top_p": said or 1.0, "top_k": settings.top_k}
        parameters["seed"] = _seed(request, seed if settings.seed is None else settings.seed)
    return Sampling(parameters=parameters, stops=stops)


def _others(settings: Settings) -> dict[str, Any]:
    """`min_p`, `repetition_penalty`, `presence_penalty`, …: as the task says."""
    left = {key: value for key, value in settings.values.items() if key not in _READ_HERE | _OF_TRANSFORMERS}
    return {key: value for key, value in left.items() if value is not None}


def _seed(request: Generate, seed: int) -> int:
    """A seed that depends on what is asked and never on when, so that repeats differ and a resumed run draws the same."""
    words = f"{seed}\n{request.prompt.digest}\n{request.repeat}\n{request.round}".encode()
    return int.from_bytes(hashlib.sha256(words).digest()[:4], "little")
