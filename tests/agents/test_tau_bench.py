"""The adapter for tau-bench, with a small checkout of the same form."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tools.oracle.tau_bench_replay import list_differences, replay

import assay
from assay.agents import EnvironmentContext, tau_bench
from assay.core.errors import TaskError

FILES = {
    "__init__.py": "from tau_bench.envs.base import Env",
    "envs/__init__.py": "",
    "envs/base.py": "from tau_bench.envs.user import LLMUserSimulationEnv\nclass Env: pass",
    "envs/user.py": """
from litellm import completion

class LLMUserSimulationEnv:
    def build_system_prompt(self, instruction):
        return "You are a user. " + instruction
""",
    "envs/airline/__init__.py": "",
    "envs/airline/wiki.py": 'WIKI = "Be polite."',
    "envs/airline/data.py": 'def load_data():\n    return {"seats": {"1A": {"free": True}, "1B": {"free": True}}}',
    "envs/airline/tools.py": """
class Book:
    @staticmethod
    def invoke(data, seat):
        data["seats"][seat]["free"] = False
        return "booked " + seat

    @staticmethod
    def get_info():
        schema = {"type": "object", "properties": {"seat": {"type": "string"}}, "required": ["seat"]}
        return {"type": "function", "function": {"name": "book", "description": "Book.", "parameters": schema}}


class Transfer:
    @staticmethod
    def invoke(data):
        return "transferred"

    @staticmethod
    def get_info():
        return {"function": {"name": "transfer_to_human_agents", "parameters": {"type": "object", "properties": {}}}}


ALL_TOOLS = [Book, Transfer]
""",
    "envs/airline/tasks_test.py": """
from types import SimpleNamespace as Task

book = Task(name="book", kwargs={"seat": "1A"})
TASKS = [
    Task(user_id="u", instruction="Book 1A.", actions=[book], outputs=["1234"]),
    Task(user_id="u", instruction="Book nothing.", actions=[], outputs=[]),
]
""",
}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "checkout" / "tau_bench" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("TAU_BENCH", str(tmp_path / "checkout"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "tau_bench"]:
        monkeypatch.delitem(sys.modules, name)
    tau_bench._load_domain.cache_clear()
    return tmp_path / "checkout"


def trajectory(task: int, reward: float, *messages: Any) -> dict[str, Any]:
    traj: list[dict[str, Any]] = [{"role": "system", "content": "Be polite."}]
    for message in messages:
        if isinstance(message, dict):
            function = {"name": message["name"], "arguments": json.dumps(message["arguments"])}
            traj.append(
                {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": function}]}
            )
        else:
            traj.append({"role": message[0], "content": message[1]})
    return {"task_id": task, "trial": 0, "reward": reward, "traj": traj}


BOOK = {"name": "book", "arguments": {"seat": "1A"}}
WRONG = {"name": "book", "arguments": {"place": "1A"}}
HELLO, STOP = ("user", "Hi"), ("user", "Bye ###STOP###")


def test_replayed_trajectories_have_their_rewards(checkout: Path, workspace: Path) -> None:
    trajectories = [
        trajectory(0, 1.0, HELLO, BOOK, ("assistant", "It costs 1,234 dollars."), STOP),
        trajectory(0, 0.0, HELLO, BOOK, ("assistant", "Booked."), STOP),
        trajectory(0, 0.0, HELLO, WRONG, ("assistant", "It costs 1234."), STOP),
        trajectory(1, 1.0, HELLO, ("assistant", "No."), STOP),
        trajectory(1, 0.0, HELLO, BOOK, ("assistant", "Booked."), STOP),
        trajectory(1, 1.0, HELLO, {"name": "transfer_to_human_agents", "arguments": {}}),
    ]
    run = replay(trajectories, workspace / "replay")
    assert list_differences(run) == []
    assert run.results["tau_bench_replay"]["task_success,none"] == 0.5
    ends = {document: content for document, _, content in run.journal.read_agent_ends("tau_bench_replay")}
    assert [ends[number]["end"] for number in range(6)] == ["user-ended"] * 5 + ["tool-ended"]
    assert ends[4]["missing"] == [{"path": "seats", "before": None, "after": {"1A": {"free": False}}}]
    results = [
        event.content["text"]
        for event in run.journal.read_agent_events("tau_bench_replay", 2)[0]
        if event.kind == "result"
    ]
    assert results[0].startswith("Error: "), "the tool itself refuses its arguments, as in tau-bench"


def test_a_wrong_reward_is_a_difference(checkout: Path, workspace: Path) -> None:
    run = replay([trajectory(1, 0.0, HELLO, ("assistant", "No."), STOP)], workspace / "replay")
    (line,) = list_differences(run)
    assert line.startswith("trajectory 0: published 0.0, replayed 1.0 (user-ended)")


def test_the_built_in_task_talks_to_a_user_with_the_instructions_of_the_checkout(
    checkout: Path, workspace: Path
) -> None:
    run = assay.run(
        model="dummy",
        model_args={"text": "Sorry."},
        user="dummy,text=###STOP###",
        tasks=["tau_bench_airline"],
    )
    assert run.outcomes("tau_bench_airline") == {"user-left": 2}
    prompts = [row[0] for row in run.journal.query("SELECT prompt FROM judge_requests ORDER BY document")]
    assert "You are a user. Book 1A." in prompts[0] and "How can I help you today?" in prompts[0]


def test_an_environment_is_restored_from_its_changes(checkout: Path, tmp_path: Path) -> None:
    context = EnvironmentContext(
        document={"task": 0}, repeat=0, seed=0, folder=tmp_path, options={"domain": "airline"}
    )
    first, second = tau_bench.TauBenchEnvironment(context), tau_bench.TauBenchEnvironment(context)
    first.invoke("book", {"seat": "1B"})
    second.restore(first.snapshot())
    assert second.state() == first.state() == {"seats": {"1B": {"free": False}}}
    assert first.expected_state() == {"seats": {"1A": {"free": False}}}


def test_a_missing_checkout_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TAU_BENCH", raising=False)
    with pytest.raises(TaskError, match="is not named"):
        tau_bench.find_checkout(None)
    with pytest.raises(TaskError, match="no checkout of tau-bench"):
        tau_bench.find_checkout(str(tmp_path))
