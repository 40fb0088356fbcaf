"""Replay published tau-bench trajectories through Assay's agent loop and compare the rewards.

    TAU_BENCH=~/tau-bench python -m tools.oracle.tau_bench_replay airline.jsonl.zst

A replay model repeats the messages and tool calls of the assistant, a scripted user those of the user. Everything else is a
normal run of the task `tau_bench_airline`: the tools run, and the reward is the metric `task_success`. The number of the
trajectory in the system message makes every prompt unique, because equal requests get one response.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import assay
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Response
from assay.core.records.tools import ToolCall
from assay.testing import ScriptedModel

__all__ = ["ReplayModel", "read_trajectories", "replay"]

_TASK = """\
task: tau_bench_replay
test_split: test
dataset_path: json
dataset_kwargs: {{data_files: {{test: trajectories.jsonl}}}}
output_type: agent
repeats: 1
solver: {{name: tool_loop, first_call_only: true}}
limits: {{max_turns: 30, max_tool_errors: null}}
environment: {{class: tau_bench, domain: {domain}}}
user: {{script: script}}
description: "Trajectory {{{{number}}}}"
doc_to_text: ""
metric_list:
  - metric: task_success
  - metric: state_match
"""


def read_trajectories(path: Path) -> list[dict[str, Any]]:
    """Read a file of trajectories, compressed or not."""
    data = path.read_bytes()
    if path.suffix == ".zst":
        if sys.version_info >= (3, 14):
            from compression import zstd

            data = zstd.decompress(data)
        else:
            import zstandard

            data = zstandard.ZstdDecompressor().stream_reader(data).read()
    return [json.loads(line) for line in data.decode().splitlines() if line.strip()]


class ReplayModel(ScriptedModel):
    """Repeats the turns of the assistant: turn n of trajectory d answers round n of document d."""

    def __init__(self, trajectories: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(self._repeat, name="replay", abilities=frozenset({"generate", "chat", "tools"}))
        self._turns = [
            [message for message in trajectory["traj"] if message["role"] == "assistant"]
            for trajectory in trajectories
        ]

    def _repeat(self, request: Request) -> Response:
        assert isinstance(request, Generate)
        message = self._turns[request.document][request.round]
        calls = tuple(
            ToolCall(one["function"]["name"], one["function"]["arguments"], one["id"])
            for one in message.get("tool_calls") or ()
        )
        return Response(request_id="", value=message.get("content") or "", tool_calls=calls)


def replay(trajectories: Sequence[Mapping[str, Any]], folder: Path, domain: str = "airline") -> assay.Run:
    """Run the trajectories as the documents of one task. Documents keep their order."""
    rows = [
        {
            "number": number,
            "task": trajectory["task_id"],
            "trial": trajectory["trial"],
            "reward": trajectory["reward"],
            "script": [one["content"] for one in trajectory["traj"] if one["role"] == "user"],
        }
        for number, trajectory in enumerate(trajectories)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trajectories.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (folder / "replay.yaml").write_text(_TASK.format(domain=domain), "utf-8")
    return assay.run(
        model=ReplayModel(trajectories),
        tasks=[str(folder / "replay.yaml")],
        output_path=str(folder / "runs"),
        no_cache=True,
    )


def list_differences(run: assay.Run) -> list[str]:
    """Return a line for each trajectory whose reward differs from the published one."""
    ends = {document: content for document, _, content in run.journal.read_agent_ends("tau_bench_replay")}
    published = dict(run.journal.read_field("tau_bench_replay", "reward"))
    lines = []
    for _, metric, document, kind, value in run.journal.read_verdicts("tau_bench_replay"):
        if metric == "task_success" and (kind != "score" or value != published[document]):
            end = ends.get(document, {})
            lines.append(
                f"trajectory {document}: published {published[document]}, replayed {value} ({end.get('end')}); "
                f"differences from the expected state: {json.dumps(end.get('missing'))[:2000]}"
            )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--domain", default="airline")
    given = parser.parse_args(arguments)
    trajectories = read_trajectories(given.file)
    with tempfile.TemporaryDirectory() as folder:
        run = replay(trajectories, Path(folder), given.domain)
        lines = list_differences(run)
        print(f"{len(trajectories) - len(lines)} of {len(trajectories)} rewards are equal")
        print(*lines, sep="\n")
        print(run.outcomes("tau_bench_replay"), run.results["tau_bench_replay"])
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
