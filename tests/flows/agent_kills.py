"""Kill agent runs with `kill -9` at random points, resume them, and compare with a run without kills.

    python -m tests.flows.agent_kills --kills 100 --seed 1

Agents write files, count, and post letters into a box outside the run, which is an effect that must not be repeated. Every
document ends with the transcript, the state and the verdicts of the run without kills, and each letter is posted once. A kill
during the posting of a letter is the exception: that document ends as `in-doubt`, and its letter is posted at most once.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.command_server import OTHER_HASH_SEED
from tests.flows.running import CommandRunner, kill, wait_until
from tests.making import Function, write_task

from assay.store.journal.journal import Journal

TASK = "letters"
DOCUMENTS = 12
REPEATS = 2
HELPERS = '''
import json
import os
import shutil
import time

from assay.agents import AskModel, CallTools, Finished, tool
from assay.core.records.tools import ToolCall


class Desk:
    """Files in a folder, a counter, and a letter box outside."""

    def __init__(self, context):
        self.name, self.repeat = context.document["name"], context.repeat
        self.folder, self.files = context.folder, context.folder / "files"
        self.files.mkdir(parents=True, exist_ok=True)
        self.counter = 0

    def tools(self):
        return [self.write, self.count, self.post, self.read]

    def state(self):
        texts = {path.name: path.read_text() for path in sorted(self.files.iterdir())}
        return {"files": texts, "counter": self.counter}

    def snapshot(self):
        number = 0
        while (self.folder / f"snapshot-{number}").exists():
            number += 1
        shutil.copytree(self.files, self.folder / f"snapshot-{number}")
        return json.dumps([number, self.counter])

    def restore(self, snapshot):
        number, self.counter = json.loads(snapshot)
        shutil.rmtree(self.files, ignore_errors=True)
        shutil.copytree(self.folder / f"snapshot-{number}", self.files)

    def close(self):
        pass

    @tool()
    def write(self, text: str) -> str:
        """Append a line to a file, in two steps."""
        with (self.files / "notes.txt").open("a") as file:
            file.write(text)
            file.flush()
            time.sleep(0.002)
            file.write("\\n")
        return "written"

    @tool()
    def count(self) -> int:
        """Add one."""
        self.counter += 1
        return self.counter

    @tool(effect="once")
    def post(self, text: str) -> str:
        """Post a letter."""
        time.sleep(0.002)
        box = os.open(os.environ["LETTER_BOX"], os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(box, f"{self.name} {self.repeat} {text}\\n".encode())
        os.close(box)
        time.sleep(0.002)
        return "posted"

    @tool(effect="pure")
    def read(self) -> str:
        """Read the file."""
        path = self.files / "notes.txt"
        return path.read_text() if path.exists() else ""


class Digits:
    """Turns each answer of the model, a digit, into a call."""

    def next(self, state):
        last = state.last
        turn = state.turns
        if last is not None and last.role == "assistant":
            name = ("write", "count", "post", "read")[int(last.text.strip()) % 4]
            arguments = {"text": f"turn {turn}"} if name in ("write", "post") else {}
            return CallTools((ToolCall(name, json.dumps(arguments), f"call_{turn}"),))
        return AskModel() if turn < 6 else Finished("done")


def process_results(doc, results):
    state = results[0].result.state
    return {"counter": state["counter"], "lines": len(state["files"].get("notes.txt", "").splitlines())}
'''


@dataclass(slots=True)
class AgentKillCounts:
    """What happened in all killed runs."""

    kills: Counter[str] = field(default_factory=Counter)
    """Kills of a running process, by the last event in the journal."""

    late_kills: int = 0
    runs: int = 0
    identical: int = 0
    in_doubt: int = 0
    repeated_letters: int = 0
    different: list[str] = field(default_factory=list)


class AgentKillTest:
    """Runs the agents once without kills, then kills and resumes them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.runner = CommandRunner(folder)
        self.generator = random.Random(seed)
        self.counts = AgentKillCounts()
        rows = [{"name": f"d{number}"} for number in range(DOCUMENTS)]
        metrics = [{"metric": name, "aggregation": "mean"} for name in ("counter", "lines")]
        self.path = write_task(
            folder / "tasks",
            TASK,
            rows,
            helpers=HELPERS,
            output_type="agent",
            doc_to_text="{{name}}",
            doc_to_target=None,
            solver=Function("utils.Digits"),
            environment=Function("utils.Desk"),
            process_results=Function("utils.process_results"),
            metric_list=metrics,
            repeats=REPEATS,
        )
        self._start("whole")
        done = self.runner.finish(self._build_command("whole"))
        assert done.returncode == 0, done.stderr
        self.expected = read_documents(self.runner.find_run_folder("whole"))
        self.letters = self._read_letters("whole")
        assert len(self.expected) == DOCUMENTS * REPEATS and len(self.letters) > DOCUMENTS
        self.needed = len(self.runner.read_all_request_ids())

    def run(self, kills: int) -> AgentKillCounts:
        """Kill this many running processes, in runs that are killed up to five times before they finish."""
        late = 0
        while (left := kills - self.counts.kills.total()) > 0:
            before = self.counts.kills.total()
            self._kill_and_finish(min(left, self.generator.randint(1, 5)))
            late = late + 1 if self.counts.kills.total() == before else 0
            assert late < 20, "every kill was late"
        return self.counts

    def _start(self, output: str) -> None:
        self.runner.clear_logs()
        self.runner.environment["LETTER_BOX"] = str(self.runner.folder / f"{output}.box")

    def _build_command(self, output: str) -> list[str]:
        options = [str(self.path), "--no_cache", "--output_path", output]
        return self.runner.build_command(*options, window=4, delay_ms=2)

    def _kill_and_finish(self, kills: int) -> None:
        output = f"killed-{self.counts.runs}"
        self.counts.runs += 1
        self._start(output)
        for _ in range(kills):
            seen = len(self.runner.read_all_request_ids())
            process = self.runner.start(self._build_command(output))
            calls = self.generator.randint(1, max(1, self.needed - seen))
            wait_until(partial(self.runner.has_total_requests, seen + calls), process, timeout_s=300)
            time.sleep(self.generator.uniform(0, 0.03))  # spreads the kills over the steps of the tools
            kill(process)
            if process.returncode == -9:
                self.counts.kills[_find_last_event(self.runner.folder / output)] += 1
            else:
                assert process.returncode == 0, process.returncode
                self.counts.late_kills += 1
        other = (
            OTHER_HASH_SEED if self.counts.runs == 1 else ""
        )  # once: results must not depend on the order of sets
        last = self.runner.finish(self._build_command(output), hash_seed=other)
        assert last.returncode == 0, last.stderr
        self._compare(output)
        shutil.rmtree(self.runner.folder / output)

    def _compare(self, output: str) -> None:
        found = read_documents(self.runner.find_run_folder(output))
        letters = self._read_letters(output)
        self.counts.repeated_letters += sum(count - 1 for count in letters.values())
        doubtful = {key[:1] for key, content in found.items() if content["end"] == "in-doubt"}
        self.counts.in_doubt += len(doubtful)
        for key, content in self.expected.items():
            if key[:1] in doubtful:
                if not _is_expected_in_doubt(found[key], content):
                    self.counts.different.append(f"{output} {key}: in doubt")
            elif found.get(key) == content:
                self.counts.identical += 1
            else:
                self.counts.different.append(f"{output} {key}")
        lost = {
            letter
            for letter in self.letters
            if letter not in letters and (int(letter.split()[0][1:]),) not in doubtful
        }
        if lost or not letters.keys() <= self.letters.keys():
            self.counts.different.append(f"{output}: letters {sorted(lost)[:3]}")

    def _read_letters(self, output: str) -> Counter[str]:
        box = self.runner.folder / f"{output}.box"
        return Counter(box.read_text().splitlines() if box.exists() else ())


def _is_expected_in_doubt(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether an agent of a document in doubt did the same, up to the call that was interrupted or to its end."""
    if found["outcome"] != "in-doubt":
        return False
    if found["end"] != "in-doubt":  # the other agent of the document is in doubt
        return all(found[key] == expected[key] for key in ("end", "state", "changes", "results", "calls"))
    calls, results = found["calls"], found["results"]
    return (
        len(calls) == len(results) + 1
        and calls[-1]["effect"] == "once"
        and calls == expected["calls"][: len(calls)]
        and results == expected["results"][: len(results)]
    )


def read_documents(folder: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the result, the results of all tools and the verdicts of each agent, without times."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    with closing(Journal.open_readonly(folder)) as journal:
        outcomes = {document: outcome for document, outcome, _ in journal.read_outcomes(TASK)}
        verdicts = {document: content for document, _, content in journal.read_judged(TASK)}
        for document in range(DOCUMENTS):
            for repeat, events in journal.read_agent_events(TASK, document).items():
                end = next((event.content for event in events if event.kind == "end"), {})
                found[document, repeat] = {
                    "outcome": outcomes.get(document),
                    "end": end.get("end"),
                    "state": json.dumps(end.get("state"), sort_keys=True),
                    "changes": end.get("changes"),
                    "results": [event.content["text"] for event in events if event.kind == "result"],
                    "calls": [event.content for event in events if event.kind == "call"],
                    "verdicts": verdicts.get(document),
                }
    return found


def _find_last_event(output: Path) -> str:
    """Return the kind of the last event that a killed process wrote."""
    journals = list(output.glob("*/journal.sqlite"))
    if not journals:
        return "nothing"
    with closing(Journal.open_for_writing(journals[0].parent)) as journal:
        rows = list(journal.query("SELECT kind FROM main.agent_events ORDER BY at DESC, number DESC LIMIT 1"))
    return str(rows[0][0]) if rows else "nothing"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        test = AgentKillTest(Path(folder), given.seed)
        for kills in [*range(10, given.kills, 10), given.kills]:
            counts = test.run(kills)
            print(f"{kills} kills: {len(counts.different)} different, {counts.in_doubt} in doubt", flush=True)
    print(
        f"{counts.kills.total()} kills {dict(counts.kills)} in {counts.runs} runs; {counts.late_kills} kills came too late"
    )
    print(
        f"{counts.identical} agents identical, {len(counts.different)} different, {counts.in_doubt} in doubt"
    )
    print(f"{counts.repeated_letters} letters posted twice")
    print(*counts.different, sep="\n")
    return 1 if counts.different or counts.repeated_letters else 0


if __name__ == "__main__":
    sys.exit(main())
