"""The record that every skill produces, and the fixed set of sums held out from training."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from PIL.Image import Image


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A question and the answer to learn.

    `raw`: the question already ends where the answer starts ("12 + 30 ="), so it gets no "Question: ... Answer:" frame.
    """

    question: str
    answer: str
    pictures: tuple[Image, ...] = field(default=())
    raw: bool = False


Skill = Callable[[Random], Example]


def is_held_out(first: int, second: int) -> bool:
    """Return whether this sum is held out from training, in either order: about one pair in ten.

    >>> is_held_out(23, 45) == is_held_out(45, 23)
    True
    """
    low, high = sorted((first, second))
    return zlib.crc32(f"{low}+{high}".encode()) % 10 == 0


def choose_weighted(random: Random, things: list[tuple[str, str]]) -> tuple[str, str]:
    """Choose an entry of a table, early ones more often, so that rare facts stay partly unknown, as in real text."""
    weights = [1.0 / (3 + rank) for rank in range(len(things))]
    return random.choices(things, weights)[0]
