"""Seed the global random generators for user code, so that results do not depend on timing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from assay.core.fingerprints import digest_text

__all__ = [
    "LOOKUPS_BEFORE_PROMPTS",
    "GeneratorStates",
    "LoadingRandomState",
    "TaskRandomState",
    "draw_names",
    "seed_global_generators",
]

GeneratorStates = tuple[Any, Any]
"""The states of the global generators of Python and NumPy."""


LOOKUPS_BEFORE_PROMPTS = 3
"""How often lm-eval looks up the name of a task that is alone in its run, between its loading and its first prompt."""

_RICH_STYLE_BITS = 24
"""What the module `rich.style` draws when it is imported."""

_NAME_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def draw_names(count: int) -> None:
    """Draw from the global generator as lm-eval does when it looks up the names of tasks: eight characters each time."""
    for _ in range(count):
        random.choices(_NAME_LETTERS, k=8)


def seed_global_generators(seed: tuple[int | None, ...]) -> None:
    """Seed the global generators of Python and NumPy, as lm-eval does before it loads tasks."""
    random.seed(seed[0])
    if seed[1] is not None:
        _seed_numpy(seed[1])


def _seed_numpy(seed: int | None) -> None:
    import numpy

    numpy.random.seed(seed)


def get_generator_states() -> GeneratorStates:
    """Return the states of the global generators."""
    import numpy

    return random.getstate(), numpy.random.get_state()


def set_generator_states(states: GeneratorStates) -> None:
    """Restore the states of the global generators."""
    import numpy

    random.setstate(states[0])
    numpy.random.set_state(states[1])


class LoadingRandomState:
    """The global generators while the tasks of a run load, one after the other, as in lm-eval.

    lm-eval seeds the generators once. The code of a task draws where that of the task before it stopped. lm-eval itself
    draws each time it looks up the name of a task.
    """

    def __init__(self, seed: tuple[int | None, ...]) -> None:
        self._seed = seed
        self._states: GeneratorStates | None = None
        self._imported: set[str] = set()

    def start(self, names: int = 0) -> GeneratorStates:
        """Set the generators for the next task, after lm-eval has looked up this number of names."""
        if self._states is None:
            seed_global_generators(self._seed)
        else:
            set_generator_states(self._states)
        draw_names(names)
        return self.keep()

    def import_file(self, name: str, draws: Sequence[tuple[str, int | None]]) -> None:
        """Do to the generators what the import of a helper file does, if it is the first one of the file in this run.

        `draws` are the names of generators with their new seeds; `("rich", None)` is the first import of that package. The
        state does not depend on what this process has imported before.
        """
        if name in self._imported or not draws:
            return
        self._imported.add(name)
        if self._states is not None:
            set_generator_states(self._states)
        for kind, seed in draws:
            if kind == "random":
                random.seed(seed)
            elif kind == "numpy":
                _seed_numpy(seed)
            elif kind not in self._imported:
                self._imported.add(kind)
                random.getrandbits(_RICH_STYLE_BITS)
        self.keep()

    def keep(self) -> GeneratorStates:
        """Keep the states for the task after this one."""
        self._states = get_generator_states()
        return self._states


class TaskRandomState:
    """The global generators as the code of one task sees them.

    Rendering draws in document order from one stream, which starts with `start` or else with the seed; judging starts from
    the document, a turn of a dialogue from that turn. So a resumed run draws what an uninterrupted run draws.
    """

    def __init__(self, seed: tuple[int | None, ...], task: str, start: GeneratorStates | None = None) -> None:
        self._seed = seed
        self._task = task
        self._state = start

    @contextmanager
    def continue_rendering(self) -> Iterator[None]:
        """Continue the stream where the last rendering of this task stopped."""
        if self._state is None:
            seed_global_generators(self._seed)
        else:
            set_generator_states(self._state)
        try:
            yield
        finally:
            self._state = get_generator_states()

    def seed_for_document(self, document: int) -> None:
        """Seed the generators for judging this document."""
        self._seed_for(str(document))

    def seed_for_turn(self, document: int, repeat: int, turn: int) -> None:
        """Seed the generators for this turn of a document's dialogue."""
        self._seed_for(str(document), str(repeat), str(turn))

    def _seed_for(self, *parts: str) -> None:
        number = int(digest_text(str(self._seed[0]), self._task, *parts)[:8], 16)
        seed_global_generators((number, number))
