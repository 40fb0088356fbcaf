"""Generation jobs: a prompt in tokens, sampling settings and stop conditions; and the answer under construction."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.core.records.requests import Generate
from assay.core.records.responses import Finish, Response, Usage
from assay.core.records.tools import ToolCall
from assay.models.hf.loading.tokenizer import CheckpointTokenizer
from assay.models.hf.sampling import SamplingSettings
from assay.models.reasoning import ReasoningSplitter, SplitText
from assay.models.tokens import StopStringDetector, cut_at_stops
from assay.models.tool_calls.separation import separate_calls

__all__ = ["AnswerBuilder", "GenerationJob", "find_transformers_settings"]

_HANDLED_SETTINGS = frozenset(
    "until stop max_gen_toks max_new_tokens max_tokens max_completion_tokens do_sample temperature top_p top_k min_p "
    "seed num_return_sequences use_cache reasoning_effort thinking_budget include_reasoning".split()
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
    splitter: ReasoningSplitter = field(default_factory=ReasoningSplitter)
    answer_limit: int | None = None
    """With a thinking budget, which is then the limit of this job: the tokens of the answer after the reasoning."""

    written: list[int] = field(default_factory=list)
    """The last tokens of the prompt that belong to the response: reasoning that a thinking budget ended."""
    transformers_settings: dict[str, Any] | None = None
    truncated: int = 0
    """Tokens removed from the prompt so that it fits the model."""


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

    def continue_after_reasoning(self, tokenizer: CheckpointTokenizer) -> GenerationJob | None:
        """Return the job that generates the rest of the response, if its thinking budget is used up."""
        job = self.job
        if job.answer_limit is None or self.finish != "length":
            return None
        text = tokenizer.decode(self.tokens, special=True)
        (closing,) = tokenizer.encode([job.splitter.end_reasoning(text)], False)
        written = [*self.tokens, *closing]
        return replace(
            job,
            tokens=[*job.tokens, *written],
            requests=list(self.requests),
            limit=job.answer_limit,
            answer_limit=None,
            written=written,
        )

    def build_responses(
        self, tokenizer: CheckpointTokenizer, think_end_token: str | int | None, seconds: float | None
    ) -> list[Response]:
        """Return the answer as one response per request."""
        written = [*self.job.written, *self.tokens]
        found, calls = decode_response(written, self.job, tokenizer, think_end_token)
        reasoning_tokens = len(tokenizer.encode([found.reasoning], False)[0]) if found.reasoning else 0
        prompt_tokens = len(self.job.tokens) - len(self.job.written)
        usage = Usage(
            prompt_tokens,
            len(written),
            reasoning_tokens=reasoning_tokens,
            truncated_tokens=self.job.truncated,
        )
        return [
            Response(
                request_id=request.id,
                value=found.answer,
                finish=self.finish,
                usage=usage,
                seconds=seconds,
                reasoning=found.reasoning,
                tool_calls=calls,
            )
            for request in self.requests
        ]


def decode_response(
    tokens: list[int], job: GenerationJob, tokenizer: CheckpointTokenizer, think_end_token: str | int | None
) -> tuple[SplitText, tuple[ToolCall, ...]]:
    """Return the answer with the reasoning before it, and the tool calls, whose marks can be special tokens."""
    call_format = tokenizer.find_call_format(job.requests[0])
    if call_format is None:
        return decode_answer(tokens, job, tokenizer, think_end_token), ()
    found, calls = separate_calls(tokenizer.decode(tokens, special=True), job.splitter, call_format)
    answer = cut_at_stops(tokenizer.remove_special_tokens(found.answer), job.stops)
    return SplitText(answer.strip() if calls else answer, found.reasoning, found.is_finished), calls


def decode_answer(
    tokens: list[int], job: GenerationJob, tokenizer: CheckpointTokenizer, think_end_token: str | int | None
) -> SplitText:
    """Return the answer and the reasoning before it. Stop strings apply to the answer only."""
    if isinstance(think_end_token, int):
        reasoning = None
        if think_end_token in tokens:
            start = len(tokens) - tokens[::-1].index(think_end_token)
            reasoning, tokens = tokenizer.decode(tokens[: start - 1]), tokens[start:]
        return SplitText(cut_at_stops(tokenizer.decode(tokens).lstrip(), job.stops), reasoning)
    if job.splitter.format is None:
        return job.splitter.split_and_cut(tokenizer.decode(tokens), job.stops)
    found = job.splitter.split_and_cut(
        tokenizer.decode(tokens, special=True), job.stops
    )  # marks can be special tokens
    return SplitText(tokenizer.remove_special_tokens(found.answer), found.reasoning, found.is_finished)
