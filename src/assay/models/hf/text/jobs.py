"""What is to be written: a prompt in tokens, how to choose the next one, when to stop; and the answer it becomes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.core.requests import Generate
from assay.core.responses import Finish, Response, Usage
from assay.models.hf.loading.tokenizer import Vocabulary
from assay.models.hf.sampling import Choice
from assay.models.tokens import StopWatch, cut_at_stops, split_thinking

__all__ = ["Job", "Writer", "handed_on"]

_OWN = frozenset(
    "until stop max_gen_toks max_new_tokens max_tokens max_completion_tokens do_sample temperature top_p top_k min_p "
    "seed num_return_sequences use_cache".split()
)
"""Settings this package reads itself; all others are left to transformers' own `generate`."""

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
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
"""Values of a generation config that change nothing; with any other, transformers' own `generate` writes."""


def handed_on(request: Generate, defaults: Any) -> dict[str, Any] | None:
    """Settings that only transformers' own `generate` knows; None when there are none."""
    values = request.settings.values
    others = {key: value for key, value in values.items() if key not in _OWN}
    acting = {
        key: value for key, value in others.items() if key not in _NEUTRAL or value not in _NEUTRAL[key]
    }
    built_in = any(
        getattr(defaults, key, None) not in neutral for key, neutral in _NEUTRAL.items() if key not in others
    )
    return others if acting or built_in else None


@dataclass(slots=True)
class Job:
    """A prompt, and the requests that ask for it: greedy repeats are written once."""

    tokens: list[int]
    requests: list[Generate]
    choice: Choice
    limit: int
    stops: tuple[str, ...]
    others: dict[str, Any] | None = None


@dataclass(slots=True)
class Writer:
    """One answer while it is written."""

    job: Job
    requests: Sequence[Generate]
    watch: StopWatch
    ends: frozenset[int]
    draw: random.Random | None
    length: int
    """Tokens before the next one, the prompt's included."""

    tokens: list[int] = field(default_factory=list)
    finish: Finish = ""

    def hear(self, token: int) -> bool:
        """Take a token; whether the answer is complete."""
        if token in self.ends:
            self.finish = "stop"
            return True
        self.tokens.append(token)
        self.length += 1
        if self.watch.hear(token):
            self.finish = "stop"
        elif len(self.tokens) >= self.job.limit:
            self.finish = "length"
        return bool(self.finish)

    def responses(
        self, vocabulary: Vocabulary, think_end: str | int | None, seconds: float | None
    ) -> list[Response]:
        """The answer, once for each request that asked for it."""
        text, thought = answer_of(self.tokens, self.job.stops, vocabulary, think_end)
        usage = Usage(len(self.job.tokens), len(self.tokens))
        return [
            Response(
                request_id=request.id,
                value=text,
                finish=self.finish,
                usage=usage,
                seconds=seconds,
                reasoning=thought,
            )
            for request in self.requests
        ]


def answer_of(
    tokens: list[int], stops: Sequence[str], vocabulary: Vocabulary, think_end: str | int | None
) -> tuple[str, str | None]:
    """The answer and the thinking before it. Stop strings are looked for in the answer, not in the thinking."""
    thought: str | None = None
    if isinstance(think_end, int):
        if think_end in tokens:
            at = len(tokens) - tokens[::-1].index(think_end)
            thought, tokens = vocabulary.decode(tokens[: at - 1]), tokens[at:]
        text = vocabulary.decode(tokens).lstrip()
    else:
        thought, text = split_thinking(vocabulary.decode(tokens), think_end or "")
    return cut_at_stops(text, stops), thought
