"""A test model: random words and log probabilities, seeded by a hash of the request.

Its scores are those of random guessing and are the same in every run. It loads the media of a prompt as a real model
does, so it finds images that cannot be read.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from assay.core.errors import AssayError, InvalidOption
from assay.core.fingerprints import digest_text
from assay.core.ports import Ability, Traits
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, LogProbability, Outcome, Response, Usage
from assay.models.tokens import cut_at_stops

__all__ = ["ALL_ABILITIES", "DummyModel", "check_media"]

ALL_ABILITIES: frozenset[Ability] = frozenset(
    {"generate", "likelihood", "rolling", "chat", "image", "audio", "video"}
)
_WORDS = (
    "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore magna "
    "aliqua ut enim ad minim veniam quis nostrud exercitation ullamco laboris nisi ut aliquip ex ea commodo consequat"
).split()
_MAX_WORDS = 24


class DummyModel:
    """Answers every request with random content, for testing tasks and runs.

    >>> DummyModel(text="42").name
    'dummy'
    """

    def __init__(
        self,
        *,
        text: Any = "",
        seed: int | str = 0,
        latency_s: float | str = 0.0,
        window: int | str = 64,
        in_flight: int | str = 1,
    ) -> None:
        """`text`: a fixed answer; by default a few words that depend on the request. `seed`: changes all answers.
        `latency_s`: seconds per request. `window`, `in_flight`: the traits of the model."""
        try:
            self._seed, self._latency_s = int(seed), float(latency_s)
            self._window, self._in_flight = int(window), int(in_flight)
        except (TypeError, ValueError) as error:
            raise InvalidOption(
                f"an argument of `dummy` is not a number: {error}", where="--model_args"
            ) from None
        if self._latency_s < 0 or self._window < 1 or self._in_flight < 1:
            raise InvalidOption(
                "`latency_s` must be at least 0, `window` and `in_flight` at least 1", where="--model_args"
            )
        self._text = str(text)

    @property
    def name(self) -> str:
        return "dummy"

    @property
    def traits(self) -> Traits:
        return Traits(abilities=ALL_ABILITIES, window=self._window, in_flight=self._in_flight)

    async def identify(self) -> Mapping[str, str]:
        """Return the seed and the text. The latency does not change answers."""
        return {"name": self.name, "version": "1", "seed": str(self._seed), "text": self._text}

    async def open(self) -> None:
        """Do nothing: there is nothing to load."""

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Answer one request after another, each after the configured latency."""
        for request in window:
            started = time.monotonic()
            if self._latency_s:
                await asyncio.sleep(self._latency_s)
            if failure := check_media(request):
                yield failure
                continue
            seconds = time.monotonic() - started
            if isinstance(request, Generate):
                yield self._generate(request, seconds)
            else:
                yield Response(
                    request_id=request.id, value=self._sample_log_probability(request), seconds=seconds
                )

    def _generate(self, request: Generate, seconds: float) -> Response:
        settings = request.settings
        limit = _MAX_WORDS if settings.max_tokens is None else settings.max_tokens
        words = self._text.split(" ") if self._text else self._sample_words(request, min(limit, _MAX_WORDS))
        kept = words[:limit]
        usage = Usage(len(request.prompt.text.split()), len(kept))
        return Response(
            request_id=request.id,
            value=cut_at_stops(" ".join(kept), settings.stop),
            finish="length" if len(words) > limit else "stop",
            usage=usage,
            seconds=seconds,
        )

    def _sample_words(self, request: Generate, max_words: int) -> list[str]:
        """Return a few random words; greedy repeats get the same words."""
        repeat = request.repeat if request.settings.temperature > 0 else 0
        seed = digest_text(str(self._seed), request.prompt.digest, request.settings.digest, str(repeat))
        generator = random.Random(seed)
        return [generator.choice(_WORDS) for _ in range(generator.randint(1, max(max_words, 1)))]

    def _sample_log_probability(self, request: Request) -> LogProbability:
        number = int(digest_text(str(self._seed), request.id)[:12], 16) / 16**12
        return LogProbability(-0.01 - 10 * number, greedy=number < 0.1)


def check_media(request: Request) -> Failure | None:
    """Load the media of a request. Return a failure if a medium cannot be read, else None."""
    try:
        for part in request.prompt.media:
            part.load()
    except (AssayError, OSError, ValueError, SyntaxError) as error:  # what Pillow and our loaders raise
        return Failure(request_id=request.id, kind="bad media", message=str(error))
    return None
