"""Speech to text with an encoder and a decoder (Whisper): a sound in, what is said in it out. The prompt's text is not read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.errors import MediaError
from assay.core.messages import Audio
from assay.core.requests import Generate, Request
from assay.core.responses import Failure, Outcome, Response, Usage
from assay.media import waveform
from assay.models.hf.batch_budget import Budget, free_memory, is_out_of_memory
from assay.models.tokens import cut_at_stops

__all__ = ["Speech"]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stretch of a sound the model hears at once."""

    request: Generate
    samples: Any


class Speech:
    """Answers windows of requests with one loaded speech model.

    A sound longer than the model hears at once (30 s for Whisper) is heard in stretches, one after the other.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        *,
        batch_size: int,
        max_new_tokens: int,
        spoken: dict[str, Any],
        normalize: bool,
    ) -> None:
        self._model = model
        self._processor = processor
        self._budget = Budget(batch_size)
        self._max_new_tokens = max_new_tokens
        self._spoken = spoken
        self._normalize = normalize
        self._rate_hz = int(processor.feature_extractor.sampling_rate)
        self._longest = int(processor.feature_extractor.n_samples)
        self.model_seconds = 0.0

    def outcomes(self, window: Sequence[Request]) -> Iterator[Outcome]:
        """One outcome per request; requests with the same settings together."""
        by_settings: dict[str, list[Generate]] = {}
        for request in window:
            if isinstance(request, Generate):
                by_settings.setdefault(request.settings.digest, []).append(request)
            else:
                yield _failure(
                    request,
                    "bad request",
                    "a speech model writes down what is said; it gives no probabilities",
                )
        for requests in by_settings.values():
            for at in range(0, len(requests), self._budget.size):
                yield from self._some(requests[at : at + self._budget.size])

    def _some(self, requests: Sequence[Generate]) -> Iterator[Outcome]:
        pieces: list[_Piece] = []
        heard: list[Generate] = []
        for request in requests:
            try:
                pieces += self._pieces(request)
                heard.append(request)
            except MediaError as error:
                yield _failure(request, "bad media", str(error))
            except ValueError as error:
                yield _failure(request, "bad request", str(error))
        if heard:
            started = time.perf_counter()
            texts = self._with_care(pieces)
            seconds = time.perf_counter() - started
            self.model_seconds += seconds
            for request in heard:
                own = [text for piece, text in zip(pieces, texts, strict=True) if piece.request is request]
                yield self._told(request, own, seconds / len(heard))

    def _pieces(self, request: Generate) -> list[_Piece]:
        media = request.prompt.media
        if not media or any(not isinstance(part, Audio) for part in media):
            raise ValueError("a speech model needs sounds in the prompt, and no other media")
        found = []
        for part in media:
            assert isinstance(part, Audio)
            samples = waveform(part, rate_hz=self._rate_hz)
            starts = range(0, max(len(samples), 1), self._longest)
            found += [_Piece(request, samples[start : start + self._longest]) for start in starts]
        return found

    def _with_care(self, pieces: Sequence[_Piece]) -> list[tuple[str, int] | Exception]:
        """The texts of the pieces; halves when memory runs out."""
        found: list[tuple[str, int] | Exception] = []
        for at in range(0, len(pieces), self._budget.size):
            some = pieces[at : at + self._budget.size]
            try:
                found += self._hear(some)
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                if len(some) == 1:
                    found.append(error)
                    continue
                if is_out_of_memory(error):
                    free_memory(self._model.device)
                    self._budget.halve()
                half = len(some) // 2
                found += self._with_care(some[:half]) + self._with_care(some[half:])
        return found

    def _hear(self, pieces: Sequence[_Piece]) -> list[tuple[str, int]]:
        import torch

        made = self._processor(
            audio=[piece.samples for piece in pieces],
            sampling_rate=self._rate_hz,
            return_tensors="pt",
            return_attention_mask=True,
        )
        settings = pieces[0].request.settings
        limit = settings.max_tokens or self._max_new_tokens
        room = (
            int(self._model.config.max_target_positions) - 8
        )  # what says language and task stands before the text
        with torch.inference_mode():
            written = self._model.generate(
                made["input_features"].to(self._model.device, self._model.dtype),
                attention_mask=made["attention_mask"].to(self._model.device),
                max_new_tokens=max(1, min(limit, room)),
                do_sample=False,
                num_beams=int(settings.values.get("num_beams") or 1),
                **self._spoken,
            )
        tokenizer = self._processor.tokenizer
        pad = tokenizer.pad_token_id
        return [
            (str(tokenizer.decode(row, skip_special_tokens=True)), sum(token != pad for token in row))
            for row in written.tolist()
        ]

    def _told(
        self, request: Generate, texts: Sequence[tuple[str, int] | Exception], seconds: float
    ) -> Outcome:
        said: list[str] = []
        tokens = 0
        for text in texts:
            if isinstance(text, Exception):
                kind = "out of memory" if is_out_of_memory(text) else "bad request"
                return _failure(request, kind, str(text))
            said.append(text[0].strip())
            tokens += text[1]
        whole = " ".join(said)
        if self._normalize:
            whole = self._normal(whole)
        return Response(
            request_id=request.id,
            value=cut_at_stops(whole, request.settings.stop),
            finish="stop",
            usage=Usage(0, tokens),
            seconds=seconds,
        )

    def _normal(self, text: str) -> str:
        """As error rates are counted: the checkpoint's own rules for English, or those for any language."""
        tokenizer = self._processor.tokenizer
        english = getattr(tokenizer, "english_spelling_normalizer", None) is not None
        return str((tokenizer.normalize if english else tokenizer.basic_normalize)(text))


def _failure(request: Request, kind: str, message: str) -> Failure:
    return Failure(request_id=request.id, kind=kind, message=message)
