"""Generation and scoring on tokens.

A context is read first and cached; a continuation is read after it. So the choices of one question and the repeats of one
prompt share the computation of their context, with the same result to the last bit.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.models.embedded.decoder import Decoder, KVCache
from assay.models.embedded.sampling import TokenSampler, log_softmax
from assay.models.embedded.tokenizer import CharacterTokenizer
from assay.models.embedded.vision import VisionTower
from assay.models.embedded.weights import Array, ModelFolder

__all__ = ["EmbeddedEngine", "GeneratedText", "InvalidPrompt", "PromptImage", "TokenPrompt"]

_MAX_CACHED_CONTEXTS = 4
_MAX_CACHED_IMAGES = 64
MAX_RESERVED_TOKENS = 256
"""Tokens of a long answer that a prompt is truncated for."""


class InvalidPrompt(ValueError):
    """A prompt that this model cannot read."""


@dataclass(frozen=True, slots=True)
class PromptImage:
    """The digest of an image and a function that loads it, called only if its vectors are not cached."""

    digest: str
    load: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids, with one `<image>` token per image."""

    ids: list[int]
    images: tuple[PromptImage, ...] = ()


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """A generated text, its finish reason (`stop` or `length`), and token counts."""

    text: str
    finish: str
    prompt_tokens: int
    generated_tokens: int
    tokens: tuple[tuple[int, float], ...] = ()
    """Each token with its log probability, if requested."""

    truncated_tokens: int = 0
    """Tokens removed from the prompt so that it fits the context."""


@dataclass(slots=True)
class _CachedContext:
    """A context that was read: its KV cache and the logits after it."""

    cache: KVCache
    length: int
    logits: Array = field(repr=False)


class EmbeddedEngine:
    """A loaded model. One thread at a time uses it."""

    def __init__(self, folder: Path) -> None:
        decoder, vision = ModelFolder(folder).read()
        self.tokenizer = CharacterTokenizer.read(folder / "tokenizer.json")
        self._decoder = Decoder(decoder)
        self._tower = VisionTower(vision)
        self._start, self._end, self._image = map(self.tokenizer.find_id, ("<s>", "</s>", "<image>"))
        self._contexts: OrderedDict[tuple[object, ...], _CachedContext] = OrderedDict()
        self._image_vectors: OrderedDict[str, Array] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def context(self) -> int:
        """The context length in tokens."""
        return self._decoder.context

    def encode(self, text: str) -> list[int]:
        """Return token ids with the start token first, unless the text already starts with it."""
        ids = self.tokenizer.encode(text)
        return ids if ids[:1] == [self._start] else [self._start, *ids]

    def generate(
        self,
        prompt: TokenPrompt,
        *,
        stop: Sequence[str] = (),
        max_tokens: int = 256,
        sampler: TokenSampler | None = None,
        generator: np.random.Generator | None = None,
        log_probabilities: bool = False,
    ) -> GeneratedText:
        """Generate until a stop string, the end token, the token limit or the end of the context.

        A prompt that leaves too little room is truncated on the left, as in lm-evaluation-harness. With
        `log_probabilities`, the result has the log probability of each token, before temperature and limits.
        """
        sampler = sampler or TokenSampler()
        generator = generator or np.random.default_rng(0)
        stop = [text for text in stop if text]
        with self._lock:
            whole = self._expand_images(prompt)
            ids = self._truncate_left(whole, self.context - min(max_tokens, MAX_RESERVED_TOKENS))
            removed = len(whole) - len(ids)
            context = self._read_context(ids, prompt.images)
            logits, text, tokens = context.logits, "", list[tuple[int, float]]()
            limit = min(max_tokens, self.context - len(ids))
            for count in range(1, limit + 1):
                token = sampler.sample(logits, generator)
                if log_probabilities:
                    tokens.append((token, float(log_softmax(logits)[token])))
                if token == self._end:
                    return GeneratedText(text, "stop", len(ids), count, tuple(tokens), removed)
                text += self.tokenizer.decode([token])
                if (cut := _first_stop(text, stop)) is not None:
                    return GeneratedText(text[:cut], "stop", len(ids), count, tuple(tokens), removed)
                if count < limit:
                    hidden = self._decoder.read(self._decoder.embed([token]), context.cache)
                    logits = self._decoder.logits(hidden)[0]
            return GeneratedText(text, "length", len(ids), max(limit, 0), tuple(tokens), removed)

    def count_excess_tokens(self, prompt: TokenPrompt, continuation: list[int]) -> int:
        """Return how many tokens of the prompt are removed to score the continuation."""
        return max(0, len(self._expand_images(prompt)) + len(continuation) - self.context - 1)

    def compute_log_likelihood(self, prompt: TokenPrompt, continuation: list[int]) -> tuple[float, bool]:
        """Return the log probability of the continuation after the prompt, and whether it is greedy."""
        log_probabilities, greedy = self.score_tokens(prompt, continuation)
        return float(log_probabilities.sum()), greedy

    def score_tokens(self, prompt: TokenPrompt, continuation: list[int]) -> tuple[NDArray[np.float64], bool]:
        """Return the log probability of each token of the continuation, and whether all are greedy."""
        if not continuation:
            return np.zeros(0), True
        if len(continuation) > self.context:
            raise InvalidPrompt(
                f"the continuation has {len(continuation)} tokens, the context length is {self.context}"
            )
        with self._lock:
            ids = self._truncate_left(self._expand_images(prompt), self.context + 1 - len(continuation))
            context = self._read_context(ids, prompt.images)
            logits = context.logits[None]
            if len(continuation) > 1:
                hidden = self._decoder.read(self._decoder.embed(continuation[:-1]), context.cache)
                logits = np.concatenate([logits, self._decoder.logits(hidden)])
        log_probabilities = log_softmax(logits)[np.arange(len(continuation)), continuation]
        return log_probabilities, bool((logits.argmax(axis=-1) == continuation).all())

    def compute_rolling_log_likelihood(self, text: str) -> float:
        """Return the log probability of a whole text."""
        return sum((float(log_probabilities.sum()) for log_probabilities in self.score_rolling(text)), 0.0)

    def score_rolling(self, text: str) -> list[NDArray[np.float64]]:
        """Return the log probability of each token of a text, in portions.

        As in lm-evaluation-harness, the tokenizer's start token is part of the text and another one precedes it. A long
        text is split into windows that each score as many tokens as fit, every token once; the last window has the
        longest possible context.
        """
        ids = self.encode(text)
        portions, size = [], self.context
        for start in range(0, len(ids), size):
            end = min(start + size, len(ids))
            before = ids[max(0, end - size - 1) : start] if start else [self._start]
            portions.append(self.score_tokens(TokenPrompt(before), ids[start:end])[0])
        return portions

    def clear_caches(self) -> None:
        """Clear all caches. This affects speed, never results."""
        with self._lock:
            self._contexts.clear()
            self._image_vectors.clear()

    def _expand_images(self, prompt: TokenPrompt) -> list[int]:
        placeholders = prompt.ids.count(self._image)
        if placeholders != len(prompt.images):
            raise InvalidPrompt(
                f"the prompt has {placeholders} `<image>` placeholders and {len(prompt.images)} images"
            )
        if not placeholders:
            return prompt.ids
        return [
            token
            for original in prompt.ids
            for token in [original] * (self._tower.patches if original == self._image else 1)
        ]

    def _truncate_left(self, ids: list[int], room: int) -> list[int]:
        if len(ids) <= room:
            return ids
        if self._image in ids[: len(ids) - room]:
            raise InvalidPrompt(
                f"the prompt has {len(ids)} tokens; truncating it to {room} would remove an image"
            )
        return ids[len(ids) - room :]

    def _read_context(self, ids: list[int], images: tuple[PromptImage, ...]) -> _CachedContext:
        key = (tuple(ids), tuple(image.digest for image in images))
        if (known := self._contexts.pop(key, None)) is None:
            cache = self._take_cache()
            hidden = self._decoder.read_prompt(self._embed_prompt(ids, images), cache)
            known = _CachedContext(cache, len(ids), self._decoder.logits(hidden)[0])
        known.cache.length = known.length
        self._contexts[key] = known
        return known

    def _take_cache(self) -> KVCache:
        """Return a new KV cache, or that of the least recently used context."""
        if len(self._contexts) < _MAX_CACHED_CONTEXTS:
            return self._decoder.make_cache()
        _, oldest = self._contexts.popitem(last=False)
        oldest.cache.length = 0
        return oldest.cache

    def _embed_prompt(self, ids: list[int], images: tuple[PromptImage, ...]) -> Array:
        vectors = self._decoder.embed(ids)
        if images:
            vectors[np.array(ids) == self._image] = np.concatenate(
                [self._encode_image(image) for image in images]
            )
        return vectors

    def _encode_image(self, image: PromptImage) -> Array:
        if image.digest not in self._image_vectors:
            self._image_vectors[image.digest] = self._tower.encode_image(image.load())
            if len(self._image_vectors) > _MAX_CACHED_IMAGES:
                self._image_vectors.popitem(last=False)
        return self._image_vectors[image.digest]


def _first_stop(text: str, stop: Sequence[str]) -> int | None:
    """Return where the first stop string starts in a text that had none before its last character."""
    positions = [
        position for end in stop if (position := text.find(end, max(0, len(text) - len(end) - 1))) >= 0
    ]
    return min(positions, default=None)
