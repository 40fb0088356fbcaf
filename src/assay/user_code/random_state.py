"""Seed the global random generators for user code, so that results do not depend on timing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from assay.core.fingerprints import digest_text

__all__ = ["TaskRandomState", "seed_global_generators"]


def seed_global_generators(seed: tuple[int | None, ...]) -> None:
    """Seed the global generators of Python and NumPy, as lm-eval does before it loads tasks."""
    import numpy

    random.seed(seed[0])
    if seed[1] is not None:
        numpy.random.seed(seed[1])


class TaskRandomState:
    """The global generators as the code of one task sees them.

    Rendering draws in document order from one stream; judging starts from the document, a turn of a dialogue from that
    turn. So a resumed run draws what an uninterrupted run draws.
    """

    def __init__(self, seed: tuple[int | None, ...], task: str) -> None:
        self._seed = seed
        self._task = task
        self._state: tuple[Any, Any] | None = None

    @contextmanager
    def continue_rendering(self) -> Iterator[None]:
        """Continue the stream where the last rendering of this task stopped."""
        import numpy

        if self._state is None:
            seed_global_generators(self._seed)
        else:
            random.setstate(self._state[0])
            numpy.random.set_state(self._state[1])
        try:
            yield
        finally:
            self._state = (random.getstate(), numpy.random.get_state())

    def seed_for_document(self, document: int) -> None:
        """Seed the generators for judging this document."""
        self._seed_for(str(document))

    def seed_for_turn(self, document: int, repeat: int, turn: int) -> None:
        """Seed the generators for this turn of a document's dialogue."""
        self._seed_for(str(document), str(repeat), str(turn))

    def _seed_for(self, *parts: str) -> None:
        number = int(digest_text(str(self._seed[0]), self._task, *parts)[:8], 16)
        seed_global_generators((number, number))
