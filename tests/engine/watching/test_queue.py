from __future__ import annotations

from pathlib import Path

import pytest

from assay.engine.watching.checkpoints import Checkpoint, parse_step
from assay.engine.watching.queue import Order, choose_next


def make(*names: str) -> list[Checkpoint]:
    return [Checkpoint(name=name, path=Path(name), step=parse_step(name), stamp="") for name in names]


def list_order(names: list[str], order: Order, priorities: dict[str, float] | None = None) -> list[str]:
    """Return the names in the order in which they are evaluated."""
    waiting, done = make(*names), []
    covered: list[float] = []
    while chosen := choose_next(waiting, covered, order, priorities):
        waiting.remove(chosen)
        covered += [] if chosen.step is None else [chosen.step]
        done.append(chosen.name)
    return done


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("newest", "5 4 3 2 1"),
        ("oldest", "1 2 3 4 5"),
        ("even", "5 1 3 4 2"),
    ],
)
def test_order(order: Order, expected: str) -> None:
    names = [f"step_{number}" for number in range(1, 6)]
    assert list_order(names, order) == [f"step_{number}" for number in expected.split()]


def test_higher_priority_comes_first() -> None:
    names = ["step_1", "step_2", "step_3"]
    assert list_order(names, "newest", {"step_1": 5, "step_3": -1}) == ["step_1", "step_2", "step_3"]


def test_names_without_a_step_come_last() -> None:
    assert list_order(["final", "step_1"], "newest") == ["step_1", "final"]
    assert list_order(["final", "step_1"], "even", {"final": 1}) == ["final", "step_1"]


def test_nothing_waits() -> None:
    assert choose_next([], [1.0], "even") is None
