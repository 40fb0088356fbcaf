from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from assay.engine.running.gc import reduce_collections


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.enable()


def test_collections_are_rare_inside_and_restored_afterwards() -> None:
    gc.set_threshold(700, 10, 10)
    seen = []

    def fail() -> None:
        with reduce_collections():
            seen.append((gc.get_threshold(), gc.get_freeze_count() > 0))
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        fail()
    assert seen == [((50_000, 10, 10), True)]
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("threshold", [0, 100_000])
def test_less_frequent_collections_of_the_user_are_unchanged(threshold: int) -> None:
    gc.set_threshold(threshold, 5, 5)
    with reduce_collections():
        assert gc.get_threshold() == (threshold, 5, 5)


def test_a_disabled_collector_stays_disabled() -> None:
    gc.disable()
    with reduce_collections():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_cycles_are_still_collected_inside() -> None:
    class Node:
        alive = 0

        def __init__(self) -> None:
            Node.alive += 1
            self.me = self

        def __del__(self) -> None:
            Node.alive -= 1

    gc.set_threshold(700, 10, 10)
    with reduce_collections():
        for _ in range(120_000):
            Node()
        assert Node.alive < 110_000
