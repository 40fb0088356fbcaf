"""The page of a document of an agent task: the end, the tool calls, and how the state changed."""

from __future__ import annotations

from pathlib import Path

from tests.engine.running.test_agents import model, write_counter
from tests.viewer.web.viewer_server import serve_runs

import assay
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Response
from assay.core.records.tools import ToolCall


def misbehave(request: Request) -> Response | str:
    assert isinstance(request, Generate)
    if request.round:
        return "<script>alert(1)</script>"
    return Response(request_id="", value="", tool_calls=(ToolCall("add", '{"amount": 7}'),))


def test_the_page_shows_what_the_agent_did(workspace: Path) -> None:
    path = write_counter(workspace, rows=[{"wanted": 1}])
    run = assay.run(model=model(misbehave), tasks=[str(path)], output_path=str(workspace / "runs"))
    with serve_runs([run.folder.parent]) as viewer:
        page = viewer.get_when_ready(f"/runs/{run.id}/documents/counter/0").text
    assert "What the agent did" in page and "<script>alert(1)" not in page
    assert "Differences from the expected state" in page
    section = page.partition("What the agent did")[2].partition("</section>")[0]
    for text in ("answered", "value", "<code>7</code>", "<code>1</code>", "repeatable"):
        assert text in section
