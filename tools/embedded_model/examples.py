"""The one record every skill produces, and the fixed set of sums that training never sees."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from PIL.Image import Image


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One thing to ask and the answer to learn.

    `raw` marks prompts that already end where the answer starts ("12 + 30 ="), so that no
    "Question: ... Answer:" frame is put around them.
    """

    question: str
    answer: str
    pictures: tuple[Image, ...] = field(default=())
    raw: bool = False


Skill = Callable[[Random], Example]


def is_held_out(first: int, second: int) -> bool:
    """Whether this sum is kept from training, in either order: about one pair in ten.

    >>> is_held_out(23, 45) == is_held_out(45, 23)
    True
    """
    low, high = sorted((first, second))
    return zlib.crc32(f"{low}+{high}".encode()) % 10 == 0


def pick_weighted(random: Random, things: list[tuple[str, str]]) -> tuple[str, str]:
    """An entry of a table, the early ones more often: rare facts stay half known, as in real text."""
    weights = [1.0 / (3 + rank) for rank in range(len(things))]
    return random.choices(things, weights)[0]
