"""The scenarios of the kill tests: tasks, options and the configuration of the slow model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.dialogues import GUESSING, write_guessing, write_lift
from tests.flows.running import CommandRunner
from tests.making import Function, write_task

SIX_ROUNDS = GUESSING.replace(
    "    if guess ==",
    "    if round_idx == 6:\n        return None, None, True, previous_output, info\n    if guess ==",
)
HELPER = """
import random
from lmms_eval.llm_judge import ServerConfig, get_server

server = get_server("assay", ServerConfig(model_name="any"))

def process(doc, results):
    reply = server.evaluate_binary(question=doc["question"], answer=doc["answer"], prediction=results[0])
    return {"judged": reply["result"], "random": random.random()}
"""
RATED = {
    "metric": "rated",
    "judge": {"kind": "score", "range": [0, 3], "repeats": 2, "settings": {"temperature": 1.0}},
}
"""The slow model always answers with a digit from 0 to 3, which is a valid rating."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The tasks and options of one kind of run."""

    name: str
    options: Callable[[CommandRunner], list[str]]
    """Writes the tasks and returns the arguments of `assay run`."""

    model: dict[str, Any] = field(default_factory=lambda: {"window": 4})
    empty: frozenset[str] = frozenset({"judge_requests"})
    """Tables that stay empty in such a run."""


def write_judged_tasks(folder: Path) -> list[str]:
    """Write a task with a judged metric and a task whose helper calls a judge."""
    rows = [{"question": f"What is {n} - {n} + {n % 4}?", "answer": str(n % 4)} for n in range(25)]
    native = write_task(folder / "native", "rated", rows, metric_list=[RATED, {"metric": "exact_match"}])
    metrics = [
        {"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("judged", "random")
    ]
    own = write_task(
        folder / "own",
        "own",
        rows,
        helpers=HELPER,
        process_results=Function("utils.process"),
        metric_list=metrics,
    )
    return [str(native), str(own)]


def _write_mixed(runner: CommandRunner) -> list[str]:
    return [*runner.write_tasks(documents=30), "--limit", "20", "--seed", "3"]


def _write_text(runner: CommandRunner) -> list[str]:
    return [*runner.write_tasks(documents=60)[:4], "quickstart_copy", "--limit", "60"]


def _write_images(runner: CommandRunner) -> list[str]:
    return ["quickstart_shapes"]


def _write_repeated(runner: CommandRunner) -> list[str]:
    rows = [{"question": f"What is {n} + {n}?", "answer": str(n % 4)} for n in range(20)]
    sampling = {"do_sample": True, "temperature": 0.7}
    repeated = write_task(runner.folder / "repeated", "repeated", rows, repeats=5, generation_kwargs=sampling)
    return ["quickstart_vote", str(repeated), "--limit", "20"]


def _write_dialogues(runner: CommandRunner) -> list[str]:
    guessing = write_guessing(runner.folder, 24, helpers=SIX_ROUNDS, repeats=2)
    return [str(guessing), str(write_lift(runner.folder, 12))]


def _write_judged(runner: CommandRunner) -> list[str]:
    judge = f"slow,log={runner.judge_log},delay_ms=4,window=4"
    return [*write_judged_tasks(runner.folder / "tasks"), "--judge", judge]


MIXED = Scenario(name="all kinds of tasks at once", options=_write_mixed)
TEXT = Scenario(name="text", options=_write_text)
IMAGES = Scenario(name="images", options=_write_images)
REPEATED = Scenario(name="repeated", options=_write_repeated, model={"window": 2, "in_flight": 3})
DIALOGUES = Scenario(name="dialogues", options=_write_dialogues)
JUDGED = Scenario(name="judged", options=_write_judged, empty=frozenset())
