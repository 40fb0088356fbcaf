"""Convert the settings of a request to vLLM's sampling parameters, as lm-eval does. Does not import vLLM."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.core.records.requests import REASONING_KEYS, Generate, Settings

__all__ = ["SCORING_PARAMETERS", "SamplingPlan", "build_sampling"]

_HANDLED_SETTINGS = frozenset({
    "until", "stop", "max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens", "do_sample",
    "temperature", "seed", "top_p", "top_k", *REASONING_KEYS,
})  # fmt: skip
_TRANSFORMERS_SETTINGS = frozenset(
    {"num_beams", "use_cache", "pad_token_id", "early_stopping", "return_dict_in_generate"}
)
"""Settings that only transformers supports; vLLM always uses one beam."""

SCORING_PARAMETERS: Mapping[str, Any] = {
    "temperature": 0.0,
    "prompt_logprobs": 1,
    "max_tokens": 1,
    "detokenize": False,
}
"""Return the log probability of every prompt token and of the most likely token. vLLM generates at least one token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """The sampling parameters and stop strings of one answer."""

    parameters: Mapping[str, Any]
    """Keyword arguments of `SamplingParams`."""

    stops: tuple[str, ...]
    """Where to cut the answer. With thinking, they are not passed to the engine, because they can occur in reasoning."""


def build_sampling(
    request: Generate, *, end_text: str, default_tokens: int, seed: int, min_token_limit: int | None = None,
    uses_stops: bool = True, top_p: float = 1.0, thinks: bool = False,
) -> SamplingPlan:  # fmt: skip
    """Return the sampling parameters of one request.

    `min_token_limit`: a lower bound on the token limit of the task. `top_p`: the default if the task sets none. `thinks`:
    stop strings apply only after the reasoning. Without `do_sample` and `temperature`, generation is greedy (lm-eval
    intends that too, but samples at temperature 1).
    """
    settings = request.settings
    limit = default_tokens if settings.max_tokens is None else settings.max_tokens
    if min_token_limit is not None:
        limit = min_token_limit if settings.max_tokens is None else max(settings.max_tokens, min_token_limit)
    task_stops = tuple(stop for stop in settings.stop if stop) if uses_stops else ()
    ends = (end_text,) if end_text else ()
    stops = tuple(dict.fromkeys((*task_stops, *ends)))
    parameters: dict[str, Any] = {
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        **_select_other_settings(settings),
        "max_tokens": limit,
        "stop": list(ends if thinks else stops),
        "temperature": settings.temperature,
    }
    if settings.temperature > 0:
        task_top_p = top_p if settings.values.get("top_p") is None else settings.top_p
        parameters |= {"top_p": task_top_p or 1.0, "top_k": settings.top_k}
        parameters["seed"] = _make_seed(request, seed if settings.seed is None else settings.seed)
    return SamplingPlan(parameters=parameters, stops=stops)


def _select_other_settings(settings: Settings) -> dict[str, Any]:
    """Return further settings of the task: `min_p`, `repetition_penalty`, `presence_penalty`, …"""
    left = {
        key: value
        for key, value in settings.values.items()
        if key not in _HANDLED_SETTINGS | _TRANSFORMERS_SETTINGS
    }
    return {key: value for key, value in left.items() if value is not None}


def _make_seed(request: Generate, seed: int) -> int:
    """Return a seed that depends only on the request, so that repeats differ and a resumed run samples the same."""
    words = f"{seed}\n{request.prompt.digest}\n{request.repeat}\n{request.round}".encode()
    return int.from_bytes(hashlib.sha256(words).digest()[:4], "little")
