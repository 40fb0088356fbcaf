"""A run with hostile answers, and its exports as text."""

from __future__ import annotations

import io
from typing import Any

import pytest
from tests.making import make_model, write_choices, write_task

import assay
from assay.core.records.responses import Failure
from assay.viewer.exports.formats import export

HOSTILE = [
    "=cmd|'/c calc'!A1",
    "</td><script>alert(1)</script>",
    ']]>&"<x/>',
    "\x1b[2J\x00\x07",
    "half \ud800",
    'line\r\nbreak, "quoted"',
    "-5",
]


ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(len(HOSTILE) + 2)]


def hostile(request: Any) -> Any:
    """Return a hostile text for each document, a failure, and at last a right answer."""
    if hasattr(request, "continuation"):
        from assay.core.records.responses import LogProbability

        return LogProbability(-1.0 if request.index == 1 else -2.0, True)
    if request.document < len(HOSTILE):
        return HOSTILE[request.document]
    if request.document == len(HOSTILE):
        return Failure(request_id="", kind="server error", message="503 <b>down</b>")
    return str(request.document + 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("exports")
    tasks = [str(write_task(folder, "sums", ROWS)), str(write_choices(folder, rows=2))]
    return assay.run(model=make_model(hostile), tasks=tasks, no_cache=True, output_path=str(folder / "out"))


def export_text(run: Any, name: str, tasks: list[str] | None = None) -> str:
    stream = io.StringIO(newline="")
    export(run, name, tasks or [], None, stream)
    return stream.getvalue()


@pytest.fixture(scope="session")
def rich_run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run with one task of each kind."""
    from tests.viewer.exports.rich_run import make_rich_run

    run = make_rich_run(tmp_path_factory.mktemp("rich"))
    yield run
    run.close()
