"""Runs of a task of sums to compare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_task

import assay

ROWS = [
    {
        "question": f"What is {n} + 1?",
        "answer": str(n + 1),
        "kind": "odd" if n % 2 else "even",
        "text": n // 4,
    }
    for n in range(40)
]


Runs = Callable[..., Any]


def right_for(*documents: int) -> Callable[[Any], str]:
    """Return answers that are right for these documents only."""
    return lambda request: str(request.document + 1) if request.document in documents else "no idea"


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Return a function that runs the sums in a new folder: `runs(answers, **options)`."""

    def run(answers: Any, rows: Any = ROWS, keys: Any = None, **options: Any) -> Any:
        number = len(list(tmp_path.iterdir()))
        task = write_task(tmp_path / f"task-{number}", "sums", rows, **(keys or {}))
        place = str(tmp_path / f"out-{number}")
        return assay.run(
            model=make_model(answers), tasks=[str(task)], no_cache=True, output_path=place, **options
        )

    return run


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    """The task of sums."""
    return write_task(tmp_path / "sums", "sums", ROWS)
