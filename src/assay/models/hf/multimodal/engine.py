"""What a loaded checkpoint is asked on the level of tensors: write on, and how likely is what follows.

Choices share their prompt: it is read once, pictures included, and its keys and values serve every choice. Whether a
checkpoint allows that is tried on the first choices it sees; where the numbers differ, each choice is read whole.
"""

from __future__ import annotations

import copy
import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.requests import Generate
from assay.core.responses import Finish, LogProbability
from assay.models.hf.multimodal.batches import Batch, Batcher, rows_like
from assay.models.hf.sampling import choice_of, choose_tokens
from assay.models.tokens import StopWatch, cut_at_stops, split_thinking

__all__ = ["Engine", "Written"]

_PASSED_ON = (
    "num_beams",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "length_penalty",
    "min_new_tokens",
    "early_stopping",
)
"""Generation settings that go to transformers as they are."""

_ALIKE = 1e-3
"""How far a shared prompt may change a log-probability in float32 before it is not shared any more."""


@dataclass(frozen=True, slots=True)
class Written:
    """A generated text, why it ended, the tokens read and written, and what was thought before."""

    text: str
    finish: Finish
    read: int
    written: int
    thought: str | None = None


class Engine:
    """One loaded model."""

    def __init__(
        self,
        model: Any,
        batcher: Batcher,
        *,
        use_cache: bool = True,
        seed: int = 0,
        think_end: str | int = "",
    ) -> None:
        self._model = model
        self._batcher = batcher
        self._use_cache = use_cache
        self._seed = seed
        self._think_end = (
            batcher.tokenizer.convert_ids_to_tokens(think_end) if isinstance(think_end, int) else think_end
        )
        self._shares: dict[bool, bool] = {}
        ends = model.generation_config.eos_token_id
        own = batcher.tokenizer.eos_token_id
        named = ends if isinstance(ends, (list, tuple)) else [] if ends is None else [ends]
        self._ends = sorted({*named, *([] if own is None else [own])})

    # --- writing -----------------------------------------------------------------------------------

    def write(
        self, batch: Batch, requests: Sequence[Generate], *, stops: Sequence[str], max_new_tokens: int
    ) -> list[Written]:
        """Go on with every prompt of a batch; all requests have the same settings."""
        import torch
        from transformers import StoppingCriteria, StoppingCriteriaList

        watches = [StopWatch(stops, self._decode, after=self._think_end) for _ in requests]
        stopped = [0] * len(requests)  # the length at which a stop string was complete

        class Stops(StoppingCriteria):  # type: ignore[misc]
            def __call__(self, input_ids: Any, scores: Any, **others: Any) -> Any:
                for at, token in enumerate(input_ids[:, -1].tolist()):
                    if not stopped[at]:
                        stopped[at] = input_ids.shape[1] if watches[at].hear(token) else 0
                return torch.tensor([length > 0 for length in stopped], device=input_ids.device)

        settings = requests[0].settings
        beams = int(settings.values.get("num_beams") or 1)
        words = {key: settings.values[key] for key in _PASSED_ON if settings.values.get(key) is not None}
        if stops and beams == 1:
            words["stopping_criteria"] = StoppingCriteriaList([Stops()])
        if settings.temperature > 0:
            words["logits_processor"] = [make_draws(requests, self._model.generation_config, self._seed)]
        room = self._batcher.max_length - max(batch.lengths)
        self._forget()
        with torch.inference_mode():
            made = self._model.generate(
                **batch.inputs,
                max_new_tokens=max(1, min(max_new_tokens, room)),
                do_sample=False,
                temperature=None,
                top_p=None,
                top_k=None,
                eos_token_id=self._ends or None,
                pad_token_id=self._batcher.pad_id,
                use_cache=self._use_cache,
                **words,
            )
        width = batch.inputs["input_ids"].shape[1]
        rows = [row[: end or None][width:] for row, end in zip(made.tolist(), stopped, strict=True)]
        return [self._written(row, stops, length) for row, length in zip(rows, batch.lengths, strict=True)]

    def _written(self, row: list[int], stops: Sequence[str], read: int) -> Written:
        end = next((at for at, token in enumerate(row) if token in self._ends), None)
        tokens = row if end is None else row[:end]
        thought, whole = split_thinking(self._decode(tokens), self._think_end)
        text = cut_at_stops(whole, stops)
        finish: Finish = "stop" if end is not None or len(text) < len(whole) else "length"
        return Written(text, finish, read, len(tokens) + (end is not None), thought)

    def _decode(self, tokens: list[int]) -> str:
        """Text without special tokens; a mark of thinking's end stays, for it has to be found."""
        shown = self._think_end not in self._batcher.tokenizer.all_special_tokens
        text = self._batcher.tokenizer.decode(
            tokens, skip_special_tokens=shown, clean_up_tokenization_spaces=False
        )
        return str(text)

    # --- likelihoods -------------------------------------------------------------------------------

    def likelihoods(
        self, batch: Batch, continuations: Sequence[Sequence[list[int]]], *, most_rows: int
    ) -> list[list[LogProbability]]:
        """For each prompt of a batch, how likely each of its continuations is."""
        media = batch.has_media
        if media not in self._shares and any(len(one) > 1 for one in continuations[0]):
            self._shares[media] = self._sharing_works(batch, continuations)
        if self._shares.get(media, True):
            return self._read_shared(batch, continuations, most_rows)
        return [[self.read_whole(batch, row, one) for one in some] for row, some in enumerate(continuations)]

    def is_trying(self, *, media: bool) -> bool:
        """Whether prompts of this kind have to come one at a time: it is not known yet, or known not, that they can be shared."""
        return not self._shares.get(media, False)

    def _sharing_works(self, batch: Batch, continuations: Sequence[Sequence[list[int]]]) -> bool:
        """Whether this checkpoint gives the same numbers for a shared prompt: some do not keep what they saw."""
        longest = max(continuations[0], key=len)
        whole = self.read_whole(batch, 0, longest)
        try:
            asked = [[longest], *([] for _ in continuations[1:])]
            shared = self._read_shared(batch, asked, 1)[0][0]
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError, NotImplementedError):
            return False
        exact = str(self._model.dtype) == "torch.float32"
        return abs(whole.total - shared.total) < (_ALIKE if exact else 0.05) * len(longest)

    def _read_shared(
        self, batch: Batch, continuations: Sequence[Sequence[list[int]]], most_rows: int
    ) -> list[list[LogProbability]]:
        import torch

        asked = [(row, at, one) for row, some in enumerate(continuations) for at, one in enumerate(some)]
        with torch.inference_mode():
            first, memory, shift = self._read_prompts(batch, keep=any(len(one) > 1 for *_, one in asked))
            found: list[list[Any]] = [[None] * len(some) for some in continuations]
            for row, at, one in asked:
                if len(one) == 1:
                    found[row][at] = _score(first[row][None], one)
            longer = [(row, at, one) for row, at, one in asked if len(one) > 1]
            for start in range(0, len(longer), most_rows):
                some = longer[start : start + most_rows]
                last = start + most_rows >= len(longer)
                logits = self._read_on(batch, some, memory if last else copy.deepcopy(memory), shift)
                for (row, at, one), rest in zip(some, logits, strict=True):
                    found[row][at] = _score(torch.cat([first[row][None], rest[: len(one) - 1]]), one)
        return found

    def _read_prompts(self, batch: Batch, *, keep: bool) -> tuple[Any, Any, Any]:
        """The logits behind each prompt, what the model remembers of them, and how far its positions are shifted."""
        self._forget()
        words: dict[str, Any] = {"use_cache": keep}
        if self._batcher.takes("logits_to_keep"):
            words["logits_to_keep"] = 1
        if not (batch.has_media and self._turner is not None):
            words.update(self._positions(batch))
        made = self._model(**batch.inputs, **words)
        shift = getattr(self._turner, "rope_deltas", None) if batch.has_media else None
        return made.logits[:, -1], made.past_key_values if keep else None, shift

    def _positions(self, batch: Batch) -> dict[str, Any]:
        if not self._batcher.takes("position_ids"):
            return {}
        return {"position_ids": (batch.inputs["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)}

    def _read_on(
        self, batch: Batch, rows: Sequence[tuple[int, int, list[int]]], memory: Any, shift: Any
    ) -> Any:
        """The logits behind all but the last token of each continuation, its prompt remembered."""
        import torch

        device = self._model.device
        numbers = torch.tensor([row for row, *_ in rows], device=device)
        width = max(len(one) for *_, one in rows) - 1
        ids = torch.full((len(rows), width), self._batcher.pad_id, device=device)
        for at, (_, _, one) in enumerate(rows):
            ids[at, : len(one) - 1] = torch.tensor(one[:-1], device=device)
        memory.batch_select_indices(numbers)
        before = batch.inputs["attention_mask"][numbers]
        words: dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": torch.cat([before, torch.ones_like(ids)], dim=1),
            "past_key_values": memory,
            "use_cache": True,
        }
        if self._batcher.takes("position_ids"):
            places = before.sum(dim=1)[:, None] + torch.arange(width, device=device)
            if shift is not None:
                places = (places + shift.to(device)[numbers]).expand(3, -1, -1)
            words["position_ids"] = places
        return self._model(**words).logits

    def read_whole(self, batch: Batch, row: int, continuation: list[int]) -> LogProbability:
        """The plain way: prompt and continuation in one piece. Only for a batch of one prompt with media."""
        import torch

        if len(batch.lengths) > 1 and batch.has_media:
            raise ValueError("prompts with media are read whole one at a time")
        self._forget()
        device = self._model.device
        before = batch.inputs["input_ids"][row : row + 1]
        more = torch.tensor([continuation], device=device)
        ids = torch.cat([before, more], dim=1)
        mask = torch.cat([batch.inputs["attention_mask"][row : row + 1], torch.ones_like(more)], dim=1)
        inputs = rows_like(batch.inputs, ids, mask)
        with torch.inference_mode():
            logits = self._model(**inputs, use_cache=False).logits
        return _score(logits[0, -len(continuation) - 1 : -1], continuation)

    # --- positions ---------------------------------------------------------------------------------

    @property
    def _turner(self) -> Any:
        """The module that keeps how far the positions behind a picture are shifted, where a model does."""
        for module in (self._model, getattr(self._model, "model", None)):
            if module is not None and hasattr(module, "rope_deltas"):
                return module
        return None

    def _forget(self) -> None:
        """What is left of an earlier prompt must not shift the next."""
        if self._turner is not None:
            self._turner.rope_deltas = None


def _score(logits: Any, tokens: list[int]) -> LogProbability:
    import torch

    chances = logits.float().log_softmax(dim=-1)
    wanted = torch.tensor(tokens, device=chances.device)
    total = chances.gather(1, wanted[:, None]).double().sum()
    return LogProbability(float(total), bool((logits.argmax(dim=-1) == wanted).all()))


def make_draws(requests: Sequence[Generate], defaults: Any, seed: int) -> Any:
    """A logits processor that leaves each row of a batch only the token drawn for it, so that greedy search takes it.

    The draws of a row depend on the prompt, the seed and the number of the repeat alone.
    """
    import torch
    from transformers import LogitsProcessor

    choices = [choice_of(request, defaults) for request in requests]
    draws = [random.Random(_seed_of(request, seed)) for request in requests]

    class Draws(LogitsProcessor):  # type: ignore[misc]
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            drawn = torch.tensor(choose_tokens(scores, choices, draws), device=scores.device)
            left = torch.full_like(scores, -torch.inf)
            left.scatter_(1, drawn[:, None], 0.0)
            return left

    return Draws()


def _seed_of(request: Generate, seed: int) -> int:
    own = request.settings.seed
    words = f"{seed if own is None else own}\n{request.prompt.digest}\n{request.repeat}\n{request.round}"
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "little")
