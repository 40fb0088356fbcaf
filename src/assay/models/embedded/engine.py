"""The three things a model is asked, on token level: write on, how likely, how likely is a whole text.

A context is read first, in one piece, and kept; a continuation is read on top of it. So the choices of one
question (and the repeats of one prompt) share the work on their context, and get the same bits as without it.
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

from assay.models.embedded.decoder import Decoder, Memory
from assay.models.embedded.sampling import TokenChoice, log_softmax
from assay.models.embedded.tokenizer import CharacterTokenizer
from assay.models.embedded.vision import VisionTower
from assay.models.embedded.weights import Array, ModelFolder

__all__ = ["BadPrompt", "Engine", "Picture", "TokenPrompt", "Written"]

_CONTEXTS_KEPT = 4
_PICTURES_KEPT = 64
_LEAST_ROOM = 256


class BadPrompt(ValueError):
    """A prompt this model cannot read."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The hash of a picture's content, and a way to get the PIL image: called only if it was not seen lately."""

    digest: str
    load: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids, one `<image>` for each picture."""

    ids: list[int]
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """A generated text, why it ended (`stop` or `length`), and the tokens read and written."""

    text: str
    finish: str
    read: int
    written: int
    tokens: tuple[tuple[int, float], ...] = ()
    """Each token with its log-probability, where somebody wants to know."""


@dataclass(slots=True)
class _Context:
    """What was read, and what may follow it."""

    memory: Memory
    length: int
    logits: Array = field(repr=False)


class Engine:
    """One loaded model. Threads take turns."""

    def __init__(self, folder: Path) -> None:
        decoder, vision = ModelFolder(folder).read()
        self.tokenizer = CharacterTokenizer.read(folder / "tokenizer.json")
        self._decoder = Decoder(decoder)
        self._tower = VisionTower(vision)
        self._start, self._end, self._image = map(self.tokenizer.id_of, ("<s>", "</s>", "<image>"))
        self._contexts: OrderedDict[tuple[object, ...], _Context] = OrderedDict()
        self._seen: OrderedDict[str, Array] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def context(self) -> int:
        """The longest sequence, in tokens."""
        return self._decoder.context

    def encode(self, text: str) -> list[int]:
        """Token ids with the start token in front, unless the text already begins with it."""
        ids = self.tokenizer.encode(text)
        return ids if ids[:1] == [self._start] else [self._start, *ids]

    def generate(
        self,
        prompt: TokenPrompt,
        *,
        stop: Sequence[str] = (),
        max_tokens: int = 256,
        choice: TokenChoice | None = None,
        generator: np.random.Generator | None = None,
        chances: bool = False,
    ) -> Written:
        """Write until a stop string, the end token, the token limit or the end of the context.

        A prompt that leaves too little room loses its beginning, as in lm-evaluation-harness. With `chances` the
        result holds the log-probability of each token by itself, before temperature and limits.
        """
        choice = choice or TokenChoice()
        generator = generator or np.random.default_rng(0)
        stop = [text for text in stop if text]
        with self._lock:
            ids = self._expand(prompt)
            ids = self._keep_latest(ids, self.context - min(max_tokens, _LEAST_ROOM))
            context = self._read_context(ids, prompt.pictures)
            logits, text, tokens = context.logits, "", list[tuple[int, float]]()
            limit = min(max_tokens, self.context - len(ids))
            for count in range(1, limit + 1):
                token = choice.pick(logits, generator)
                if chances:
                    tokens.append((token, float(log_softmax(logits)[token])))
                if token == self._end:
                    return Written(text, "stop", len(ids), count, tuple(tokens))
                text += self.tokenizer.decode([token])
                if (cut := _first_stop(text, stop)) is not None:
                    return Written(text[:cut], "stop", len(ids), count, tuple(tokens))
                if count < limit:
                    hidden = self._decoder.read(self._decoder.embed([token]), context.memory)
                    logits = self._decoder.logits(hidden)[0]
            return Written(text, "length", len(ids), max(limit, 0), tuple(tokens))

    def log_likelihood(self, prompt: TokenPrompt, continuation: list[int]) -> tuple[float, bool]:
        """Log-probability of the continuation after the prompt, and whether it is the greedy one."""
        chances, greedy = self.token_chances(prompt, continuation)
        return float(chances.sum()), greedy

    def token_chances(self, prompt: TokenPrompt, continuation: list[int]) -> tuple[NDArray[np.float64], bool]:
        """Log-probability of each token of the continuation, and whether all are the greedy ones."""
        if not continuation:
            return np.zeros(0), True
        if len(continuation) > self.context:
            raise BadPrompt(
                f"the continuation has {len(continuation)} tokens, the model reads {self.context}"
            )
        with self._lock:
            ids = self._keep_latest(self._expand(prompt), self.context + 1 - len(continuation))
            context = self._read_context(ids, prompt.pictures)
            logits = context.logits[None]
            if len(continuation) > 1:
                hidden = self._decoder.read(self._decoder.embed(continuation[:-1]), context.memory)
                logits = np.concatenate([logits, self._decoder.logits(hidden)])
        chances = log_softmax(logits)[np.arange(len(continuation)), continuation]
        return chances, bool((logits.argmax(axis=-1) == continuation).all())

    def rolling_log_likelihood(self, text: str) -> float:
        """Log-probability of a whole text, its start token included, after a start token."""
        return sum((float(chances.sum()) for chances in self.rolling_chances(text)), 0.0)

    def rolling_chances(self, text: str) -> list[NDArray[np.float64]]:
        """Log-probability of each token of a text, in portions.

        As in lm-evaluation-harness the tokenizer's own start token counts as part of the text, and another one stands
        before it. Longer texts go through windows that each predict as many tokens as fit, no token twice; the last
        window looks back as far as the context reaches.
        """
        ids = self.encode(text)
        portions, size = [], self.context
        for start in range(0, len(ids), size):
            end = min(start + size, len(ids))
            before = ids[max(0, end - size - 1) : start] if start else [self._start]
            portions.append(self.token_chances(TokenPrompt(before), ids[start:end])[0])
        return portions

    def forget(self) -> None:
        """Drop everything kept from earlier requests. Changes speed, never results."""
        with self._lock:
            self._contexts.clear()
            self._seen.clear()

    def _expand(self, prompt: TokenPrompt) -> list[int]:
        marks = prompt.ids.count(self._image)
        if marks != len(prompt.pictures):
            raise BadPrompt(f"the prompt has {marks} `<image>` marks and {len(prompt.pictures)} pictures")
        if not marks:
            return prompt.ids
        return [
            token
            for original in prompt.ids
            for token in [original] * (self._tower.patches if original == self._image else 1)
        ]

    def _keep_latest(self, ids: list[int], room: int) -> list[int]:
        if len(ids) <= room:
            return ids
        if self._image in ids[: len(ids) - room]:
            raise BadPrompt(f"the prompt has {len(ids)} tokens; shortened to {room} it would lose a picture")
        return ids[len(ids) - room :]

    def _read_context(self, ids: list[int], pictures: tuple[Picture, ...]) -> _Context:
        key = (tuple(ids), tuple(picture.digest for picture in pictures))
        if (known := self._contexts.pop(key, None)) is None:
            memory = self._reusable_memory()
            hidden = self._decoder.read(self._vectors(ids, pictures), memory)
            known = _Context(memory, len(ids), self._decoder.logits(hidden[-1:])[0])
        known.memory.length = known.length
        self._contexts[key] = known
        return known

    def _reusable_memory(self) -> Memory:
        """A memory to write into: that of the context used longest ago, once enough are kept."""
        if len(self._contexts) < _CONTEXTS_KEPT:
            return self._decoder.new_memory()
        _, oldest = self._contexts.popitem(last=False)
        oldest.memory.length = 0
        return oldest.memory

    def _vectors(self, ids: list[int], pictures: tuple[Picture, ...]) -> Array:
        vectors = self._decoder.embed(ids)
        if pictures:
            vectors[np.array(ids) == self._image] = np.concatenate(
                [self._see(picture) for picture in pictures]
            )
        return vectors

    def _see(self, picture: Picture) -> Array:
        if picture.digest not in self._seen:
            self._seen[picture.digest] = self._tower.see(picture.load())
            if len(self._seen) > _PICTURES_KEPT:
                self._seen.popitem(last=False)
        return self._seen[picture.digest]


def _first_stop(text: str, stop: Sequence[str]) -> int | None:
    """Where the first stop string begins in a text that had none before its last character."""
    places = [place for end in stop if (place := text.find(end, max(0, len(text) - len(end) - 1))) >= 0]
    return min(places, default=None)
