"""Collect the tests fast: each test process of a parallel run collects all of them.

A module without examples in docstrings is not searched for them, and the garbage collector does not search the hundreds of
thousands of objects that the collection creates and that live as long as the process.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule

ALLOCATIONS_PER_COLLECTION = 50_000
"""New containers between two garbage collections, as during a run (`assay.engine.running.gc`)."""

gc.disable()  # until the tests are collected; this module is loaded before all others


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Leave out modules that have no examples."""
    collectors = yield
    if file_path.suffix != ".py" or b">>>" in file_path.read_bytes():
        return collectors
    return [collector for collector in collectors if not isinstance(collector, DoctestModule)]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude what exists after the collection from garbage collection."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(ALLOCATIONS_PER_COLLECTION, 10, 10)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put modules with slow tests first, so that the last one does not run alone in its process. Random order stays random."""
    if not config.pluginmanager.hasplugin("randomly"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)
