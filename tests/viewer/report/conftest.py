"""Runs for reports: hostile answers, images, failures, categories."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_choices, write_task

import assay
from assay.core.records.responses import Failure, LogProbability, Response, Usage

HOSTILE = [
    "</script><script>document.title='owned'</script>",
    "<img src=https://example.invalid/x.png onerror=\"document.title='owned'\">",
    "{{ 7 * 7 }} {% raw %} ${8 * 8}",
    "--></style><style>body{display:none}</style>",
    "half \ud800 \u202e\x1b[2J",
    "<a href='javascript:document.title=1'>click</a>",
]
NAME = "<script>document.title='owned'</script> & \"model\""
ROWS = [
    {
        "question": f"What is {n} + 1? </pre><script>alert({n})</script>",
        "answer": str(n + 1),
        "category": f"<b>{n % 3}</b>",
    }
    for n in range(18)
]


def answers(better: int) -> Any:
    """Return a hostile model that is right on the later documents."""

    def answer(request: Any) -> Any:
        if hasattr(request, "continuation"):
            return LogProbability(-1.0 if request.index == 1 else -2.0, True)
        if request.document == 16:
            return Failure(request_id="", kind="server error", message="503 <b>down</b>")
        if request.document < len(HOSTILE):
            return HOSTILE[request.document]
        usage = Usage(20, 4, cost_usd=0.001)
        right = request.document < better
        return Response(
            request_id="", value=str(request.document + (1 if right else 2)), finish="stop", usage=usage
        )

    return answer


def picture(colour: str = "red", side: int = 600) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", (side, side // 2), colour).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Two runs of a hostile model, one a little better."""
    folder = tmp_path_factory.mktemp("report")
    tasks = [
        str(write_task(folder, "sums", ROWS, task_alias="<i>sums</i>")),
        str(write_choices(folder, rows=4)),
    ]
    finished = []
    for name, better in ((NAME, 10), ("better", 16)):
        run = assay.run(
            model=make_model(answers(better), name=name),
            tasks=tasks,
            no_cache=True,
            max_failures=1.0,
            output_path=str(folder / name[:6].strip("<>")),
        )
        run.close()
        finished.append(run)
    return finished


@pytest.fixture(scope="session")
def page(runs: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of both runs, as a file."""
    pytest.importorskip("plotly")
    from assay.viewer.report import ReportOptions, build_report, render_page

    report = build_report(runs, ReportOptions(documents=16), version="1")
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page(report), "utf-8", errors="backslashreplace")
    return path


def compute_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
