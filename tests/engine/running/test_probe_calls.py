"""Probe calls after the plan: in `open`, and with the first requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.making import answer_correctly, write_task
from tests.models.hosted.services import KEY, OpenAIBatches
from tests.models.hosted.services import serving as serving_batches

import assay
from assay.core.records.requests import Request
from assay.core.records.responses import Failure, Outcome
from assay.testing import ScriptedModel
from assay.viewer.terminal.results_table import format_results

JUDGED = [{"metric": "judged", "judge": {"kind": "binary"}}]


class LateProbe(ScriptedModel):
    """Probes its server when it opens and with its first window, not in the plan."""

    def __init__(self, *args: Any, in_open: int, in_answer: int = 0, **details: Any) -> None:
        super().__init__(*args, **details)
        self.in_open, self.in_answer, self.calls = in_open, in_answer, 0

    async def probe(self) -> Sequence[str]:
        return ()

    @property
    def billed_as(self) -> str:
        return f"probed.example/{self.name}"

    @property
    def seen(self) -> Mapping[str, Any]:
        """A probe call takes a thousand tokens and generates ten."""
        return {
            "probe_calls": self.calls,
            "probe_input_tokens": 1000 * self.calls,
            "probe_output_tokens": 10 * self.calls,
        }

    async def open(self) -> None:
        await super().open()
        self.calls += self.in_open

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        self.calls, self.in_answer = self.calls + self.in_answer, 0
        async for outcome in super().answer(window):
            yield outcome


def test_probe_calls_of_open_and_of_the_first_requests_are_counted(workspace: Path) -> None:
    task = write_task(workspace, metric_list=JUDGED)
    judge = LateProbe(lambda request: "VERDICT: CORRECT", in_open=3, in_answer=2, name="judge")
    model = LateProbe(answer_correctly, in_open=1, name="model")
    done = assay.run(model=model, judge=judge, tasks=[str(task)])
    assert done.facts["probe_calls"] == {"": 1, "judge": 5}
    assert "judge judge: 6 requests and 5 probe calls" in format_results(done)


def test_counts_of_a_continued_run_add_up(workspace: Path) -> None:
    task = write_task(workspace, metric_list=JUDGED)

    def start(reply: str | Failure) -> assay.Run:
        judge = LateProbe(lambda request: reply, in_open=3, name="judge")
        model = LateProbe(answer_correctly, in_open=1, name="model")
        return assay.run(model=model, judge=judge, tasks=[str(task)], output_path="out")

    broken = start(Failure(request_id="", kind="model error", message="no reply"))
    assert broken.facts["probe_calls"] == {"": 1, "judge": 3}
    done = start("VERDICT: CORRECT")
    assert done.folder == broken.folder
    assert done.facts["probe_calls"] == {"": 1, "judge": 6}, "the model was not opened again"


def test_probe_calls_of_a_batch_api_are_counted(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving_batches(OpenAIBatches()) as service:
        arguments = {"model": "some-model", "base_url": f"{service.url}/v1", "poll_s": 0.02}
        done = assay.run(
            model="openai", model_args=arguments, tasks=[str(write_task(workspace))], batch_api=True
        )
        assert done.facts["probe_calls"][""] >= 1
        assert done.facts["probe_calls"] == {"": len(service.asked("/v1/chat/completions"))}


def test_probe_calls_count_against_the_cost_limit(workspace: Path) -> None:
    """At a dollar per million input tokens and a hundred per million output tokens, a call costs 0.2 cents."""
    task = write_task(workspace, metric_list=JUDGED)
    Path("prices.toml").write_text(
        'date = "2031-02-03"\n[prices]\n"probed.example/*" = { input = 1, output = 100 }'
    )

    def start(limit: float) -> assay.Run:
        judge = LateProbe(lambda request: "VERDICT: CORRECT", in_open=3, in_answer=2, name="judge")
        model = LateProbe(answer_correctly, in_open=1, name="model")
        return assay.run(
            model=model,
            judge=judge,
            tasks=[str(task)],
            output_path="out",
            prices="prices.toml",
            max_cost=limit,
        )

    done = start(1.0)
    assert done.facts["probe_costs"] == pytest.approx({"": 0.002, "judge": 0.01})
    assert "6 requests and 5 probe calls ($0.010 more)" in format_results(done)
