"""Speech to text with encoder-decoder models (Whisper). The text of the prompt is ignored."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.errors import MediaError
from assay.core.records.messages import Audio
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Outcome, Response, Usage
from assay.media import waveform
from assay.models.hf.batch_budget import BatchBudget, is_out_of_memory, release_memory
from assay.models.tokens import cut_at_stops

__all__ = ["SpeechTranscriber"]


@dataclass(frozen=True, slots=True)
class _AudioChunk:
    """Part of an audio clip that the model transcribes at once."""

    request: Generate
    samples: Any


class SpeechTranscriber:
    """Answers windows of requests with one loaded speech model.

    Audio longer than the input of the model (30 s for Whisper) is transcribed in chunks.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        *,
        batch_size: int,
        max_new_tokens: int,
        language_arguments: dict[str, Any],
        normalize: bool,
    ) -> None:
        self._model = model
        self._processor = processor
        self._budget = BatchBudget(batch_size)
        self._max_new_tokens = max_new_tokens
        self._language_arguments = language_arguments
        self._normalize = normalize
        self._rate_hz = int(processor.feature_extractor.sampling_rate)
        self._max_samples = int(processor.feature_extractor.n_samples)
        self.model_seconds = 0.0

    def process(self, window: Sequence[Request]) -> Iterator[Outcome]:
        """Yield one outcome per request. Requests with the same settings are batched."""
        by_settings: dict[str, list[Generate]] = {}
        for request in window:
            if isinstance(request, Generate):
                by_settings.setdefault(request.settings.digest, []).append(request)
            else:
                yield _failure(
                    request,
                    "bad request",
                    "a speech model does not compute log probabilities",
                )
        for requests in by_settings.values():
            for start in range(0, len(requests), self._budget.size):
                yield from self._process_batch(requests[start : start + self._budget.size])

    def _process_batch(self, requests: Sequence[Generate]) -> Iterator[Outcome]:
        chunks: list[_AudioChunk] = []
        accepted: list[Generate] = []
        for request in requests:
            try:
                chunks += self._split_audio(request)
                accepted.append(request)
            except MediaError as error:
                yield _failure(request, "bad media", str(error))
            except ValueError as error:
                yield _failure(request, "bad request", str(error))
        if accepted:
            started = time.perf_counter()
            texts = self._transcribe_with_retries(chunks)
            seconds = time.perf_counter() - started
            self.model_seconds += seconds
            for request in accepted:
                own = [text for chunk, text in zip(chunks, texts, strict=True) if chunk.request is request]
                yield self._build_outcome(request, own, seconds / len(accepted))

    def _split_audio(self, request: Generate) -> list[_AudioChunk]:
        media = request.prompt.media
        if not media or any(not isinstance(part, Audio) for part in media):
            raise ValueError("the prompt must contain audio and no other media")
        found = []
        for part in media:
            assert isinstance(part, Audio)
            samples = waveform(part, rate_hz=self._rate_hz)
            starts = range(0, max(len(samples), 1), self._max_samples)
            found += [_AudioChunk(request, samples[start : start + self._max_samples]) for start in starts]
        return found

    def _transcribe_with_retries(self, chunks: Sequence[_AudioChunk]) -> list[tuple[str, int] | Exception]:
        """Return the texts of the chunks. If a batch fails, it is split in halves."""
        found: list[tuple[str, int] | Exception] = []
        for start in range(0, len(chunks), self._budget.size):
            some = chunks[start : start + self._budget.size]
            try:
                found += self._transcribe(some)
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                if len(some) == 1:
                    found.append(error)
                    continue
                if is_out_of_memory(error):
                    release_memory(self._model.device)
                    self._budget.halve()
                half = len(some) // 2
                found += self._transcribe_with_retries(some[:half]) + self._transcribe_with_retries(
                    some[half:]
                )
        return found

    def _transcribe(self, chunks: Sequence[_AudioChunk]) -> list[tuple[str, int]]:
        import torch

        features = self._processor(
            audio=[chunk.samples for chunk in chunks],
            sampling_rate=self._rate_hz,
            return_tensors="pt",
            return_attention_mask=True,
        )
        settings = chunks[0].request.settings
        limit = settings.max_tokens or self._max_new_tokens
        max_length = (
            int(self._model.config.max_target_positions) - 8
        )  # the language and task tokens come before the text
        with torch.inference_mode():
            generated = self._model.generate(
                features["input_features"].to(self._model.device, self._model.dtype),
                attention_mask=features["attention_mask"].to(self._model.device),
                max_new_tokens=max(1, min(limit, max_length)),
                do_sample=False,
                num_beams=int(settings.values.get("num_beams") or 1),
                **self._language_arguments,
            )
        tokenizer = self._processor.tokenizer
        pad = tokenizer.pad_token_id
        return [
            (str(tokenizer.decode(row, skip_special_tokens=True)), sum(token != pad for token in row))
            for row in generated.tolist()
        ]

    def _build_outcome(
        self, request: Generate, texts: Sequence[tuple[str, int] | Exception], seconds: float
    ) -> Outcome:
        parts: list[str] = []
        tokens = 0
        for text in texts:
            if isinstance(text, Exception):
                kind = "out of memory" if is_out_of_memory(text) else "bad request"
                return _failure(request, kind, str(text))
            parts.append(text[0].strip())
            tokens += text[1]
        whole = " ".join(parts)
        if self._normalize:
            whole = self._normalize_text(whole)
        return Response(
            request_id=request.id,
            value=cut_at_stops(whole, request.settings.stop),
            finish="stop",
            usage=Usage(0, tokens),
            seconds=seconds,
        )

    def _normalize_text(self, text: str) -> str:
        """Normalize text as word error rates require, with the checkpoint's rules for English or for any language."""
        tokenizer = self._processor.tokenizer
        english = getattr(tokenizer, "english_spelling_normalizer", None) is not None
        return str((tokenizer.normalize if english else tokenizer.basic_normalize)(text))


def _failure(request: Request, kind: str, message: str) -> Failure:
    return Failure(request_id=request.id, kind=kind, message=message)
