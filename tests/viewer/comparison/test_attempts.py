"""Comparing agents: different conversations are no different prompts, and attempts are paired by document and seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.making import Function, write_task

import assay
from assay.core.ports import Ability
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Response
from assay.core.records.tools import ToolCall
from assay.testing import ScriptedModel

HELPERS = '''
from assay.agents import tool

class Bell:
    def __init__(self, context):
        self.rung = 0

    def tools(self):
        return [self.ring]

    @tool()
    def ring(self) -> int:
        """Ring the bell."""
        self.rung += 1
        return self.rung

    def state(self):
        return {"rung": self.rung}

    def expected_state(self):
        return {"rung": 1}

    def close(self):
        pass
'''
TOOLS: frozenset[Ability] = frozenset(("generate", "chat", "tools"))


def write_bell(folder: Path, documents: int = 12, **keys: Any) -> Path:
    rows = [{"name": f"guest {index}"} for index in range(documents)]
    given = {
        "output_type": "agent",
        "doc_to_text": "Ring once for {{name}}.",
        "doc_to_target": None,
        "environment": Function("utils.Bell"),
        "metric_list": [{"metric": "task_success"}],
        **keys,
    }
    return write_task(folder, "bell", rows, helpers=HELPERS, **given)


def run_bell(path: Path, name: str, fails: Any, **options: Any) -> Any:
    def act(request: Request) -> Response | str:
        assert isinstance(request, Generate)
        if request.round == 0 and not fails(request):
            return Response(request_id="", value="", tool_calls=(ToolCall("ring", "{}", "c"),))
        return f"{name} is done."

    model = ScriptedModel(act, name=name, abilities=TOOLS)
    return assay.run(model=model, tasks=[str(path)], use_cache=None, **options)


def test_agents_of_different_models_can_be_compared(workspace: Path) -> None:
    path = write_bell(workspace)
    first = run_bell(path, "one", lambda request: False)
    second = run_bell(path, "two", lambda request: True)
    assert first.facts["repeats"][0]["repeats"] == 3, "agent tasks are repeated by default"
    comparison = assay.compare(first.folder, second.folder)
    assert not [one for one in comparison.mismatches if one.blocks]
    (row,) = [row for row in comparison.rows if row.metric == "task_success"]
    assert (row.first, row.second) == (1.0, 0.0) and row.p_value is not None and row.p_value < 0.01


def test_only_attempts_with_the_same_seed_are_compared(workspace: Path) -> None:
    path = write_bell(workspace)
    first = run_bell(path, "one", lambda request: request.repeat > 0, repeats=3)
    second = run_bell(path, "two", lambda request: request.repeat > 0, repeats=2)
    comparison = assay.compare(first.folder, second.folder)
    (row,) = [row for row in comparison.rows if row.metric == "task_success"]
    assert (row.first, row.second) == (0.5, 0.5), "the third attempt has no partner"
    (note,) = [note for note in comparison.notes if "attempts" in note]
    assert note.startswith("bell: 3 attempts per document in the first run, 2 in the second")


def test_another_first_prompt_is_still_a_mismatch(workspace: Path) -> None:
    first = run_bell(write_bell(workspace / "a"), "one", lambda request: False, repeats=1)
    path = write_bell(workspace / "b", doc_to_text="Please ring once for {{name}}.")
    second = run_bell(path, "two", lambda request: False, repeats=1)
    comparison = assay.compare(first.folder, second.folder)
    assert [one.kind for one in comparison.mismatches if one.blocks] == ["prompts"]


@pytest.mark.parametrize(("repeats", "score"), [(1, 1.0), (2, 0.5)], ids=["one attempt", "two attempts"])
def test_a_run_of_agents_stops_when_the_score_is_known_well_enough(
    workspace: Path, repeats: int, score: float
) -> None:
    path = write_bell(workspace, documents=500)
    run = run_bell(path, "one", lambda request: request.repeat > 0, repeats=repeats, stop_when="ci<=15")
    stopped = run.facts["stopped"]["bell"]
    assert stopped["asked"] < 500 and run.outcomes("bell") == {"scored": stopped["asked"]}
    assert run.results["bell"]["task_success,none"] == score
