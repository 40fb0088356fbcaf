"""Generation jobs: a prompt in tokens, sampling settings and stop conditions; and the answer under construction."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.core.requests import Generate
from assay.core.responses import Finish, Response, Usage
from assay.models.hf.loading.tokenizer import CheckpointTokenizer
from assay.models.hf.sampling import SamplingSettings
from assay.models.tokens import StopStringDetector, cut_at_stops, split_thinking

__all__ = ["AnswerBuilder", "GenerationJob", "find_transformers_settings"]

_HANDLED_SETTINGS = frozenset(
    "until stop max_gen_toks max_new_tokens max_tokens max_completion_tokens do_sample temperature top_p top_k min_p "
    "seed num_return_sequences use_cache".split()
)
"""Settings that this package implements; all others need the `generate` method of transformers."""

_NEUTRAL_VALUES: Mapping[str, tuple[Any, ...]] = {
    "num_beams": (None, 1),
    "num_beam_groups": (None, 1),
    "repetition_penalty": (None, 1.0),
    "encoder_repetition_penalty": (None, 1.0),
    "no_repeat_ngram_size": (None, 0),
    "encoder_no_repeat_ngram_size": (None, 0),
    "min_length": (None, 0),
    "min_new_tokens": (None, 0),
    "typical_p": (None, 1.0),
    "epsilon_cutoff": (None, 0.0),
    "eta_cutoff": (None, 0.0),
    "guidance_scale": (None, 1.0),
    "bad_words_ids": (None,),
    "force_words_ids": (None,),
    "forced_bos_token_id": (None,),
    "forced_eos_token_id": (None,),
    "suppress_tokens": (None, []),
    "begin_suppress_tokens": (None, []),
    "sequence_bias": (None,),
    "exponential_decay_length_penalty": (None,),
    "penalty_alpha": (None, 0.0),
    "prompt_lookup_num_tokens": (None,),
    "dola_layers": (None,),
}
"""Values of a generation config without effect. With any other value, the `generate` method of transformers is used."""


def find_transformers_settings(request: Generate, defaults: Any) -> dict[str, Any] | None:
    """Return the settings that only the `generate` method of transformers implements; None if there are none."""
    values = request.settings.values
    transformers_settings = {key: value for key, value in values.items() if key not in _HANDLED_SETTINGS}
    effective = {
        key: value
        for key, value in transformers_settings.items()
        if key not in _NEUTRAL_VALUES or value not in _NEUTRAL_VALUES[key]
    }
    has_defaults = any(
        getattr(defaults, key, None) not in neutral
        for key, neutral in _NEUTRAL_VALUES.items()
        if key not in transformers_settings
    )
    return transformers_settings if effective or has_defaults else None


@dataclass(slots=True)
class GenerationJob:
    """A prompt and the requests for it: greedy repeats are generated once."""

    tokens: list[int]
    requests: list[Generate]
    sampling: SamplingSettings
    limit: int
    stops: tuple[str, ...]
    transformers_settings: dict[str, Any] | None = None


@dataclass(slots=True)
class AnswerBuilder:
    """One answer during generation."""

    job: GenerationJob
    requests: Sequence[Generate]
    stop_detector: StopStringDetector
    end_tokens: frozenset[int]
    generator: random.Random | None
    length: int
    """Number of tokens so far, including the prompt."""

    tokens: list[int] = field(default_factory=list)
    finish: Finish = ""

    def add_token(self, token: int) -> bool:
        """Add a token; return whether the answer is complete."""
        if token in self.end_tokens:
            self.finish = "stop"
            return True
        self.tokens.append(token)
        self.length += 1
        if self.stop_detector.add_token(token):
            self.finish = "stop"
        elif len(self.tokens) >= self.job.limit:
            self.finish = "length"
        return bool(self.finish)

    def build_responses(
        self, tokenizer: CheckpointTokenizer, think_end_token: str | int | None, seconds: float | None
    ) -> list[Response]:
        """Return the answer as one response per request."""
        text, reasoning = decode_answer(self.tokens, self.job.stops, tokenizer, think_end_token)
        usage = Usage(len(self.job.tokens), len(self.tokens))
        return [
            Response(
                request_id=request.id,
                value=text,
                finish=self.finish,
                usage=usage,
                seconds=seconds,
                reasoning=reasoning,
            )
            for request in self.requests
        ]


def decode_answer(
    tokens: list[int], stops: Sequence[str], tokenizer: CheckpointTokenizer, think_end_token: str | int | None
) -> tuple[str, str | None]:
    """Return the answer and the reasoning before it. Stop strings apply to the answer only."""
    reasoning: str | None = None
    if isinstance(think_end_token, int):
        if think_end_token in tokens:
            start = len(tokens) - tokens[::-1].index(think_end_token)
            reasoning, tokens = tokenizer.decode(tokens[: start - 1]), tokens[start:]
        text = tokenizer.decode(tokens).lstrip()
    else:
        reasoning, text = split_thinking(tokenizer.decode(tokens), think_end_token or "")
    return cut_at_stops(text, stops), reasoning
