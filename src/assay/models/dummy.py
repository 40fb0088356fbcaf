"""A model that knows nothing: words and likelihoods drawn from a hash of the request. For trying out everything around a model.

Its scores are those of guessing, the same every time. It loads the media of a prompt as a model would, so a picture that
cannot be read is found.
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
from assay.core.requests import Generate, Request
from assay.core.responses import Failure, LogProbability, Outcome, Response, Usage
from assay.models.tokens import cut_at_stops

__all__ = ["EVERYTHING", "DummyModel", "unreadable"]

EVERYTHING: frozenset[Ability] = frozenset(
    {"generate", "likelihood", "rolling", "chat", "image", "audio", "video"}
)
_WORDS = (
    "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore magna "
    "aliqua ut enim ad minim veniam quis nostrud exercitation ullamco laboris nisi ut aliquip ex ea commodo consequat"
).split()
_MOST_WORDS = 24


class DummyModel:
    """Answers everything, with nothing in it.

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
        """`text`: what it always writes; without it, a few words that depend on the request. `seed`: another dummy.
        `latency_s`: seconds it takes for each request. `window`, `in_flight`: how it likes to be asked."""
        try:
            self._seed, self._latency_s = int(seed), float(latency_s)
            self._window, self._in_flight = int(window), int(in_flight)
        except (TypeError, ValueError) as error:
            raise InvalidOption(
                f"an argument of `dummy` is not a number: {error}", where="--model_args"
            ) from None
        if self._latency_s < 0 or self._window < 1 or self._in_flight < 1:
            raise InvalidOption(
                "`latency_s` is 0 or more, `window` and `in_flight` are 1 or more", where="--model_args"
            )
        self._text = str(text)

    @property
    def name(self) -> str:
        return "dummy"

    @property
    def traits(self) -> Traits:
        return Traits(abilities=EVERYTHING, window=self._window, in_flight=self._in_flight)

    async def identify(self) -> Mapping[str, str]:
        """Seed and text; how long it takes changes no answer."""
        return {"name": self.name, "version": "1", "seed": str(self._seed), "text": self._text}

    async def open(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to let go of."""

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """One after the other, each after its time."""
        for request in window:
            started = time.monotonic()
            if self._latency_s:
                await asyncio.sleep(self._latency_s)
            if failure := unreadable(request):
                yield failure
                continue
            seconds = time.monotonic() - started
            if isinstance(request, Generate):
                yield self._write(request, seconds)
            else:
                yield Response(request_id=request.id, value=self._guess(request), seconds=seconds)

    def _write(self, request: Generate, seconds: float) -> Response:
        settings = request.settings
        limit = _MOST_WORDS if settings.max_tokens is None else settings.max_tokens
        words = self._text.split(" ") if self._text else self._draw(request, min(limit, _MOST_WORDS))
        written = words[:limit]
        usage = Usage(len(request.prompt.text.split()), len(written))
        return Response(
            request_id=request.id,
            value=cut_at_stops(" ".join(written), settings.stop),
            finish="length" if len(words) > limit else "stop",
            usage=usage,
            seconds=seconds,
        )

    def _draw(self, request: Generate, most: int) -> list[str]:
        """A few words; greedy repeats get the same ones."""
        repeat = request.repeat if request.settings.temperature > 0 else 0
        seed = digest_text(str(self._seed), request.prompt.digest, request.settings.digest, str(repeat))
        draws = random.Random(seed)
        return [draws.choice(_WORDS) for _ in range(draws.randint(1, max(most, 1)))]

    def _guess(self, request: Request) -> LogProbability:
        number = int(digest_text(str(self._seed), request.id)[:12], 16) / 16**12
        return LogProbability(-0.01 - 10 * number, greedy=number < 0.1)


def unreadable(request: Request) -> Failure | None:
    """The failure of a request with a medium that cannot be read, or None."""
    try:
        for part in request.prompt.media:
            part.load()
    except (AssayError, OSError, ValueError, SyntaxError) as error:  # what Pillow and our loaders raise
        return Failure(request_id=request.id, kind="bad media", message=str(error))
    return None
