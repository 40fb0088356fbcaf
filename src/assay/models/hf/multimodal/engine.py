"""A loaded multimodal model: generates text and scores continuations, on tensors.

The continuations of a prompt share it: the prompt is computed once, including images, and its KV cache is reused. The
first continuations are scored both ways; if the results differ, every continuation is computed with its whole prompt.
"""

from __future__ import annotations

import copy
import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Finish, LogProbability
from assay.models.hf.multimodal.batches import Batch, Batcher, extend_inputs
from assay.models.hf.sampling import sample_tokens, sampling_from_request
from assay.models.reasoning import ReasoningFormat, ReasoningSplitter, SplitText
from assay.models.tokens import StopStringDetector, cut_at_stops

__all__ = ["GeneratedText", "MultimodalEngine"]

_TRANSFORMERS_SETTINGS = (
    "num_beams",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "length_penalty",
    "min_new_tokens",
    "early_stopping",
)
"""Generation settings that are passed to transformers."""

_SHARING_TOLERANCE = 1e-3
"""Largest difference per token between shared and unshared log probabilities in float32."""


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """A generated text, its finish reason, token counts, and the reasoning before it."""

    text: str
    finish: Finish
    prompt_tokens: int
    generated_tokens: int
    reasoning: str | None = None
    reasoning_tokens: int = 0


class MultimodalEngine:
    """Runs one loaded model on batches of tensors."""

    def __init__(
        self,
        model: Any,
        batcher: Batcher,
        *,
        use_cache: bool = True,
        seed: int = 0,
        think_end: str | int = "",
        reasoning_format: ReasoningFormat | None = None,
    ) -> None:
        """`reasoning_format`: the marks around the reasoning in chats; `think_end` replaces it."""
        self._model = model
        self._batcher = batcher
        self._use_cache = use_cache
        self._seed = seed
        self._think_end = (
            batcher.tokenizer.convert_ids_to_tokens(think_end) if isinstance(think_end, int) else think_end
        )
        self._reasoning_format = reasoning_format
        self._sharing_works_for: dict[bool, bool] = {}
        ends = model.generation_config.eos_token_id
        own = batcher.tokenizer.eos_token_id
        named = ends if isinstance(ends, (list, tuple)) else [] if ends is None else [ends]
        self._end_tokens = sorted({*named, *([] if own is None else [own])})

    # --- generation --------------------------------------------------------------------------------

    def generate(
        self,
        batch: Batch,
        requests: Sequence[Generate],
        prompts: Sequence[str],
        *,
        stops: Sequence[str],
        max_new_tokens: int,
    ) -> list[GeneratedText]:
        """Generate a text for every prompt of a batch. All requests have the same settings.

        `prompts`: the rendered prompts, which tell whether the reasoning has begun.
        """
        import torch
        from transformers import StoppingCriteria, StoppingCriteriaList

        splitters = [
            self._make_splitter(request, text) for request, text in zip(requests, prompts, strict=True)
        ]
        settings = requests[0].settings
        width = batch.inputs["input_ids"].shape[1]
        budget = self._make_thinking_budget(settings.thinking_budget, splitters, width)
        detectors = [self._make_stop_detector(stops, splitter) for splitter in splitters]
        stopped = [0] * len(requests)  # the length at which a stop string was complete

        class _StopStringCriteria(StoppingCriteria):  # type: ignore[misc]
            def __call__(self, input_ids: Any, scores: Any, **others: Any) -> Any:
                for row, token in enumerate(input_ids[:, -1].tolist()):
                    if not stopped[row]:
                        done = detectors[row].add_token(token)
                        if budget is not None:
                            tokens = input_ids[row, width:].tolist()
                            done = done or len(tokens) >= budget.find_limit(row, tokens, max_new_tokens)
                        stopped[row] = input_ids.shape[1] if done else 0
                return torch.tensor([length > 0 for length in stopped], device=input_ids.device)

        beams = int(settings.values.get("num_beams") or 1)
        arguments = {
            key: settings.values[key]
            for key in _TRANSFORMERS_SETTINGS
            if settings.values.get(key) is not None
        }
        if (stops or budget is not None) and beams == 1:
            arguments["stopping_criteria"] = StoppingCriteriaList([_StopStringCriteria()])
        processors = []
        if settings.temperature > 0:
            processors.append(make_sampling_processor(requests, self._model.generation_config, self._seed))
        if budget is not None:
            processors.append(make_budget_processor(budget, beams))
        if processors:
            arguments["logits_processor"] = processors
        max_tokens = self._batcher.max_length - max(batch.lengths)
        reasoning_tokens = 0 if budget is None else budget.reserved_tokens
        self._reset_rope_shift()
        with torch.inference_mode():
            output = self._model.generate(
                **batch.inputs,
                max_new_tokens=max(1, min(max_new_tokens + reasoning_tokens, max_tokens)),
                do_sample=False,
                temperature=None,
                top_p=None,
                top_k=None,
                eos_token_id=self._end_tokens or None,
                pad_token_id=self._batcher.pad_id,
                use_cache=self._use_cache,
                **arguments,
            )
        rows = [row[: end or None][width:] for row, end in zip(output.tolist(), stopped, strict=True)]
        return [
            self._build_text(row, stops, length, splitter)
            for row, length, splitter in zip(rows, batch.lengths, splitters, strict=True)
        ]

    def count_reasoning_tokens(self, settings: Settings) -> int:
        """Return the tokens that a thinking budget adds to the token limit of the answer: the budget and the end mark."""
        if settings.thinking_budget is None or self._think_end or self._reasoning_format is None:
            return 0
        return max(1, settings.thinking_budget) + len(self._encode(self._reasoning_format.closing_text))

    def _make_thinking_budget(
        self, tokens: int | None, splitters: Sequence[ReasoningSplitter], prompt_width: int
    ) -> ThinkingBudget | None:
        if tokens is None or not any(splitter.format for splitter in splitters):
            return None
        return ThinkingBudget(
            max(1, tokens), splitters, prompt_width, encode=self._encode, decode=self._decode_with_special
        )

    def _encode(self, text: str) -> list[int]:
        return list(self._batcher.tokenizer.encode(text, add_special_tokens=False)) if text else []

    def _make_splitter(self, request: Generate, prompt: str) -> ReasoningSplitter:
        """Return how to separate the reasoning from the answer. Only chats have a reasoning format."""
        known = self._reasoning_format if request.prompt.chat else None
        return ReasoningSplitter.for_prompt(known, prompt, end_mark=self._think_end)

    def _make_stop_detector(self, stops: Sequence[str], splitter: ReasoningSplitter) -> StopStringDetector:
        """Return a detector that looks for stop strings in the answer, not in the reasoning before it."""
        return StopStringDetector(
            stops,
            self._decode if splitter.format is None else self._decode_with_special,
            after=splitter.end_marks,
            can_begin=None if splitter.format is None or splitter.is_open else splitter.can_begin,
        )

    def _build_text(
        self, row: list[int], stops: Sequence[str], prompt_tokens: int, splitter: ReasoningSplitter
    ) -> GeneratedText:
        end = next((index for index, token in enumerate(row) if token in self._end_tokens), None)
        tokens = row if end is None else row[:end]
        found = self._split(tokens, splitter)
        text = cut_at_stops(found.answer, stops)
        finish: Finish = "stop" if end is not None or len(text) < len(found.answer) else "length"
        reasoning_tokens = 0
        if found.reasoning:
            tokenizer = self._batcher.tokenizer
            reasoning_tokens = len(tokenizer.encode(found.reasoning, add_special_tokens=False))
        generated_tokens = len(tokens) + (end is not None)
        return GeneratedText(text, finish, prompt_tokens, generated_tokens, found.reasoning, reasoning_tokens)

    def _split(self, tokens: list[int], splitter: ReasoningSplitter) -> SplitText:
        if splitter.format is None:
            return splitter.split(self._decode(tokens))
        found = splitter.split(self._decode_with_special(tokens))  # marks can be special tokens
        answer = found.answer
        for name in self._batcher.tokenizer.all_special_tokens:
            answer = answer.replace(name, "")
        return SplitText(answer, found.reasoning, found.is_finished)

    def _decode_with_special(self, tokens: list[int]) -> str:
        return str(self._batcher.tokenizer.decode(tokens, clean_up_tokenization_spaces=False))

    def _decode(self, tokens: list[int]) -> str:
        """Decode tokens without special tokens, except where the end mark of the reasoning is one."""
        skip_special = self._think_end not in self._batcher.tokenizer.all_special_tokens
        text = self._batcher.tokenizer.decode(
            tokens, skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
        )
        return str(text)

    # --- likelihoods -------------------------------------------------------------------------------

    def score(
        self, batch: Batch, continuations: Sequence[Sequence[list[int]]], *, max_rows: int
    ) -> list[list[LogProbability]]:
        """Return the log probability of each continuation of each prompt of a batch."""
        media = batch.has_media
        if media not in self._sharing_works_for and any(len(one) > 1 for one in continuations[0]):
            self._sharing_works_for[media] = self.check_prefix_sharing(batch, continuations)
        if self._sharing_works_for.get(media, True):
            return self.score_shared(batch, continuations, max_rows)
        return [
            [self.score_unshared(batch, row, one) for one in some] for row, some in enumerate(continuations)
        ]

    def must_run_alone(self, *, media: bool) -> bool:
        """Return whether prompts of this kind need a batch of their own: prefix sharing is unchecked or does not work."""
        return not self._sharing_works_for.get(media, False)

    def check_prefix_sharing(self, batch: Batch, continuations: Sequence[Sequence[list[int]]]) -> bool:
        """Return whether a shared prompt gives the same log probabilities; some checkpoints do not cache images."""
        longest = max(continuations[0], key=len)
        whole = self.score_unshared(batch, 0, longest)
        try:
            requests = [[longest], *([] for _ in continuations[1:])]
            shared = self.score_shared(batch, requests, 1)[0][0]
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError, NotImplementedError):
            return False
        exact = str(self._model.dtype) == "torch.float32"
        return abs(whole.total - shared.total) < (_SHARING_TOLERANCE if exact else 0.05) * len(longest)

    def score_shared(
        self, batch: Batch, continuations: Sequence[Sequence[list[int]]], max_rows: int
    ) -> list[list[LogProbability]]:
        import torch

        requests = [
            (row, index, one) for row, some in enumerate(continuations) for index, one in enumerate(some)
        ]
        with torch.inference_mode():
            first, cache, shift = self.prefill(batch, keep=any(len(one) > 1 for *_, one in requests))
            found: list[list[Any]] = [[None] * len(some) for some in continuations]
            for row, index, one in requests:
                if len(one) == 1:
                    found[row][index] = _read_log_probability(first[row][None], one)
            longer = [(row, index, one) for row, index, one in requests if len(one) > 1]
            for start in range(0, len(longer), max_rows):
                some = longer[start : start + max_rows]
                last = start + max_rows >= len(longer)
                logits = self.compute_continuations(
                    batch, some, cache if last else copy.deepcopy(cache), shift
                )
                for (row, index, one), rest in zip(some, logits, strict=True):
                    found[row][index] = _read_log_probability(
                        torch.cat([first[row][None], rest[: len(one) - 1]]), one
                    )
        return found

    def prefill(self, batch: Batch, *, keep: bool) -> tuple[Any, Any, Any]:
        """Return the logits after each prompt, the KV cache, and the shift of its positions."""
        self._reset_rope_shift()
        arguments: dict[str, Any] = {"use_cache": keep}
        if self._batcher.has_parameter("logits_to_keep"):
            arguments["logits_to_keep"] = 1
        if not (batch.has_media and self._rope_module is not None):
            arguments.update(self._build_positions(batch))
        output = self._model(**batch.inputs, **arguments)
        shift = getattr(self._rope_module, "rope_deltas", None) if batch.has_media else None
        return output.logits[:, -1], output.past_key_values if keep else None, shift

    def _build_positions(self, batch: Batch) -> dict[str, Any]:
        if not self._batcher.has_parameter("position_ids"):
            return {}
        return {"position_ids": (batch.inputs["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)}

    def compute_continuations(
        self, batch: Batch, rows: Sequence[tuple[int, int, list[int]]], cache: Any, shift: Any
    ) -> Any:
        """Return the logits after all but the last token of each continuation, using the cache of its prompt."""
        import torch

        device = self._model.device
        numbers = torch.tensor([row for row, *_ in rows], device=device)
        width = max(len(one) for *_, one in rows) - 1
        ids = torch.full((len(rows), width), self._batcher.pad_id, device=device)
        for row, (_, _, one) in enumerate(rows):
            ids[row, : len(one) - 1] = torch.tensor(one[:-1], device=device)
        cache.batch_select_indices(numbers)
        before = batch.inputs["attention_mask"][numbers]
        arguments: dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": torch.cat([before, torch.ones_like(ids)], dim=1),
            "past_key_values": cache,
            "use_cache": True,
        }
        if self._batcher.has_parameter("position_ids"):
            positions = before.sum(dim=1)[:, None] + torch.arange(width, device=device)
            if shift is not None:
                positions = (positions + shift.to(device)[numbers]).expand(3, -1, -1)
            arguments["position_ids"] = positions
        return self._model(**arguments).logits

    def score_unshared(self, batch: Batch, row: int, continuation: list[int]) -> LogProbability:
        """Score one continuation together with its prompt. A batch with media must contain only this prompt."""
        import torch

        if len(batch.lengths) > 1 and batch.has_media:
            raise ValueError("prompts with media are scored unshared one at a time")
        self._reset_rope_shift()
        device = self._model.device
        before = batch.inputs["input_ids"][row : row + 1]
        more = torch.tensor([continuation], device=device)
        ids = torch.cat([before, more], dim=1)
        mask = torch.cat([batch.inputs["attention_mask"][row : row + 1], torch.ones_like(more)], dim=1)
        inputs = extend_inputs(batch.inputs, ids, mask)
        with torch.inference_mode():
            logits = self._model(**inputs, use_cache=False).logits
        return _read_log_probability(logits[0, -len(continuation) - 1 : -1], continuation)

    # --- positions ---------------------------------------------------------------------------------

    @property
    def _rope_module(self) -> Any:
        """The module that stores the position shift after an image (`rope_deltas`), if there is one."""
        for module in (self._model, getattr(self._model, "model", None)):
            if module is not None and hasattr(module, "rope_deltas"):
                return module
        return None

    def _reset_rope_shift(self) -> None:
        """Clear the position shift of an earlier prompt."""
        if self._rope_module is not None:
            self._rope_module.rope_deltas = None


def _read_log_probability(logits: Any, tokens: list[int]) -> LogProbability:
    import torch

    log_probabilities = logits.float().log_softmax(dim=-1)
    targets = torch.tensor(tokens, device=log_probabilities.device)
    total = log_probabilities.gather(1, targets[:, None]).double().sum()
    return LogProbability(float(total), bool((logits.argmax(dim=-1) == targets).all()))


class ThinkingBudget:
    """Ends the reasoning of a response after a number of tokens, by writing the tokens of the end mark.

    Knows the splitter of each row. A response without reasoning, or whose reasoning has ended by then, gets no end mark.
    """

    def __init__(
        self,
        tokens: int,
        splitters: Sequence[ReasoningSplitter],
        prompt_width: int,
        *,
        encode: Callable[[str], list[int]],
        decode: Callable[[list[int]], str],
    ) -> None:
        self._tokens = tokens
        self._splitters = splitters
        self._encode = encode
        self._decode = decode
        self._end_marks: dict[tuple[int, ...], list[int]] = {}
        self.prompt_width = prompt_width
        formats = [splitter.format for splitter in splitters if splitter.format is not None]
        self.reserved_tokens = tokens + max(len(encode(one.closing_text)) for one in formats)
        """The largest number of tokens of the reasoning with its end mark."""

    def find_limit(self, row: int, tokens: list[int], answer_limit: int) -> int:
        """Return the largest number of tokens of a response that has these tokens so far."""
        if self._splitters[row].format is None:
            return answer_limit
        return self._tokens + len(self._find_end_mark(row, tokens)) + answer_limit

    def find_next_token(self, row: int, tokens: list[int]) -> int | None:
        """Return the token that must follow; None if the model decides."""
        end_mark = self._find_end_mark(row, tokens)
        position = len(tokens) - self._tokens
        return end_mark[position] if 0 <= position < len(end_mark) else None

    def _find_end_mark(self, row: int, tokens: list[int]) -> list[int]:
        """Return the tokens that end the reasoning; empty if the budget is not used up, or there is nothing to end."""
        if len(tokens) < self._tokens or self._splitters[row].format is None:
            return []
        key = (row, *tokens[: self._tokens])
        if key not in self._end_marks:
            text = self._decode(tokens[: self._tokens])
            self._end_marks[key] = self._encode(self._splitters[row].end_reasoning(text))
        return self._end_marks[key]


def make_budget_processor(budget: ThinkingBudget, beams: int) -> Any:
    """Return a logits processor that writes the end mark of the reasoning when the budget is used up."""
    import torch
    from transformers import LogitsProcessor

    class _BudgetProcessor(LogitsProcessor):  # type: ignore[misc]
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            for row, tokens in enumerate(input_ids[:, budget.prompt_width :].tolist()):
                token = budget.find_next_token(row // beams, tokens)
                if token is not None:
                    scores = scores.clone()
                    scores[row] = -torch.inf
                    scores[row, token] = 0.0
            return scores

    return _BudgetProcessor()


def make_sampling_processor(requests: Sequence[Generate], defaults: Any, seed: int) -> Any:
    """Return a logits processor that keeps only the sampled token of each row, so that greedy search selects it.

    The sample of a row depends only on the prompt, the seed and the repeat.
    """
    import torch
    from transformers import LogitsProcessor

    settings = [sampling_from_request(request, defaults) for request in requests]
    generators = [random.Random(_make_seed(request, seed)) for request in requests]

    class _SamplingProcessor(LogitsProcessor):  # type: ignore[misc]
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            sampled = torch.tensor(sample_tokens(scores, settings, generators), device=scores.device)
            logits = torch.full_like(scores, -torch.inf)
            logits.scatter_(1, sampled[:, None], 0.0)
            return logits

    return _SamplingProcessor()


def _make_seed(request: Generate, seed: int) -> int:
    own = request.settings.seed
    arguments = f"{seed if own is None else own}\n{request.prompt.digest}\n{request.repeat}\n{request.round}"
    return int.from_bytes(hashlib.sha256(arguments.encode()).digest()[:8], "little")
