"""Two runs with known lengths, tokens, times, costs and confidences."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tests.making import write_choices, write_task

import assay
from assay.core.records.responses import LogProbability, Response, Usage
from assay.store.runs.run import Run
from assay.testing import ScriptedModel

DOCUMENTS = 40


class MeasuredModel(ScriptedModel):
    """Document n of `sums` gets a response of n words; every `wrong_every`th is wrong.

    The first 20 documents of `choices` have a confidence of 0.75, and 15 are right; the others 0.9, and 10 are right.
    """

    def __init__(self, name: str, wrong_every: int) -> None:
        super().__init__(self._say, name=name)
        self._wrong_every = wrong_every

    async def identify(self) -> dict[str, str]:
        return {"name": self.name}

    def _say(self, request: Any) -> Response:
        number = request.document
        if hasattr(request, "continuation"):
            right = number % 4 != 0 if number < 20 else number % 2 == 0
            gold = (number + 1) % 2
            odds = 3 if number < 20 else 9
            total = -1.0 if (request.index == gold) == right else -1.0 - math.log(odds)
            return Response(request_id="", value=LogProbability(total, False))
        answer = number + 1 if number % self._wrong_every else "unknown"
        return Response(
            request_id="",
            value=f"{'word ' * number}The answer is {answer}",
            usage=Usage(100 + number, number + 4, cost_usd=1e-4 * (number + 1)),
            seconds=0.1 * (number + 1),
        )


def make_plot_runs(folder: Path) -> tuple[Run, Run]:
    """Make a run of each of two models on both tasks."""
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(DOCUMENTS)]
    steps = [{"function": "regex", "regex_pattern": r"answer is (\w+)"}, {"function": "take_first"}]
    sums = write_task(folder / "tasks", "sums", rows, filter_list=[{"name": "find", "filter": steps}])
    tasks = [str(sums), str(write_choices(folder / "tasks", rows=DOCUMENTS))]
    first, second = (
        assay.run(
            model=MeasuredModel(name, wrong_every),
            tasks=tasks,
            no_cache=True,
            output_path=str(folder / "runs"),
        )
        for name, wrong_every in (("first-model", 4), ("second-model", 5))
    )
    return first, second
