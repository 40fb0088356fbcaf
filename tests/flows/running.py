"""Start, watch, kill and compare complete runs in separate processes."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.command_server import CommandProcess, start_command
from tests.making import Function, write_choices, write_task, write_texts

from assay.core.fingerprints import digest_json
from assay.core.records.requests import compute_fingerprint
from assay.store.journal.journal import JOURNAL_FILE

ASSAY = [sys.executable, "-c", "from assay.cli import main; main()"]
Process = subprocess.Popen[str] | CommandProcess
MODEL_DIGEST = digest_json({"name": "slow", "revision": "1"})
TABLES = {
    "documents": "*",
    "requests": "*",
    "responses": "fingerprint, text, logprob, greedy, finish, input_tokens, output_tokens",
    "judge_requests": "*",
    "answers": "*",
    "verdicts": "*",
    "outcomes": "*",
    "estimates": "*",
}
"""The columns that must be identical in two runs of the same plan: all but times and the source of a response."""


RANK = {"function": Function("utils.Rank")}
RANK_HELPER = """
class Rank:
    def apply(self, resps, docs):
        order = sorted(range(len(resps)), key=lambda index: (resps[index][0], index))
        return [f"{order.index(index)} of {len(resps)}" for index in range(len(resps))]
"""


class CommandRunner:
    """Runs commands in a folder with tasks and with the models `slow` and `served` installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "asked.log"
        self.judge_log = folder / "judged.log"
        self.broken = folder / "broken"
        self._request_ids: list[str] = []
        self._read: Counter[str] = Counter()
        plugin = folder / "plugin"
        about = plugin / "slow_model-1.0.dist-info"
        about.mkdir(parents=True)
        for module in ("slow_model.py", "served_model.py"):
            shutil.copy(Path(__file__).with_name(module), plugin)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-model\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(
            "[assay.models]\nslow = slow_model:SlowModel\nserved = served_model:ServedModel\n"
        )
        path = os.pathsep.join([str(plugin), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.environment = {**os.environ, "PYTHONPATH": path, "ASSAY_HOME": str(folder / "home")}

    def write_tasks(self, documents: int) -> list[str]:
        """Write every kind of task: text, choices, perplexity, cross-document filter, images, repeats, few-shot examples."""
        sums = [{"question": f"What is {n} - {n} + {n % 4}?", "answer": str(n % 4)} for n in range(documents)]
        strip = [{"function": "remove_whitespace"}, {"function": "take_first"}]
        tasks = self.folder / "tasks"
        paths = [
            write_task(tasks, rows=sums, filter_list=[{"name": "strip", "filter": strip}]),
            write_choices(tasks, rows=documents),
            write_texts(tasks),
            write_task(
                tasks, "crowd", sums, helpers=RANK_HELPER, filter_list=[{"name": "crowd", "filter": [RANK]}]
            ),
        ]
        return [*map(str, paths), "quickstart_shapes", "quickstart_copy", "quickstart_vote"]

    def build_command(self, *arguments: str, **model_args: Any) -> list[str]:
        """Return an `assay run` command with the slow model."""
        given = {"log": self.log, "broken": self.broken, **model_args}
        pairs = ",".join(f"{key}={value}" for key, value in given.items())
        return [*ASSAY, "run", "--model", "slow", "--model_args", pairs, *arguments]

    def start(self, command: list[str], *, hash_seed: str = "", **details: Any) -> Process:
        """Start a command. Those that begin with `ASSAY` come from the command server, unless `Popen` gets details.

        `hash_seed`: start an interpreter with this seed, which determines the order of sets.
        """
        if command[: len(ASSAY)] == ASSAY and not details and not hash_seed:
            return start_command(command[len(ASSAY) :], cwd=self.folder, env=self.environment)
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env={**self.environment, **({"PYTHONHASHSEED": hash_seed} if hash_seed else {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **details,
        )

    def finish(self, command: list[str], **details: Any) -> subprocess.CompletedProcess[str]:
        process = self.start(command, **details)
        try:
            out, err = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            kill(process)
            raise
        assert process.returncode is not None
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def read_request_ids(self, since: int = 0) -> list[str]:
        """Return the ids of the requests that the model answered, in order."""
        return _read_log(self.log)[since:]

    def read_judge_request_ids(self) -> list[str]:
        """Return the ids of the requests that the judge answered, in order."""
        return _read_log(self.judge_log)

    def read_all_request_ids(self) -> list[str]:
        """Return the ids answered by model and judge since the last `clear_logs`; new ids come last."""
        for log, kind in ((self.log, "model"), (self.judge_log, "judge")):
            lines = _read_log(log)
            self._request_ids += lines[self._read[kind] :]
            self._read[kind] = len(lines)
        return list(self._request_ids)

    def has_total_requests(self, count: int) -> bool:
        return len(self.read_all_request_ids()) >= count

    def clear_logs(self) -> None:
        """Delete the request logs."""
        for log in (self.log, self.judge_log):
            log.unlink(missing_ok=True)
        self._request_ids.clear()
        self._read.clear()

    def has_requests(self, count: int, *, since: int = 0) -> bool:
        return len(self.read_request_ids(since)) >= count

    def count_requests(self) -> Counter[str]:
        return Counter(self.read_request_ids())

    def find_run_folder(self, output: str) -> Path:
        """Return the only run folder below an output folder."""
        (journal,) = (self.folder / output).glob(f"*/{JOURNAL_FILE}")
        return journal.parent


def _read_log(log: Path) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in lines if line not in ("open", "close")]


def wait_until(condition: Callable[[], bool], process: Process, timeout_s: float = 60) -> bool:
    """Wait until the condition is true (return True) or the process ends (return False)."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.002)
    raise AssertionError("timeout: the condition did not become true")


def kill(process: Process, number: int = signal.SIGKILL) -> tuple[str, str]:
    """Send a signal, wait for the process and return its output."""
    process.send_signal(number)
    return process.communicate(timeout=60)


def read_tables(run_folder: Path) -> Mapping[str, list[tuple[Any, ...]]]:
    """Return the journal columns that must be identical in two runs."""
    with closing(sqlite3.connect(run_folder / JOURNAL_FILE)) as journal:
        return {
            table: sorted(journal.execute(f"SELECT {columns} FROM {table}"), key=repr)
            for table, columns in TABLES.items()
        }


def read_committed_fingerprints(run_folder: Path) -> set[str]:
    """Return the fingerprints of the stored responses, even after a crash."""
    if not (run_folder / JOURNAL_FILE).exists():
        return set()
    with closing(sqlite3.connect(run_folder / JOURNAL_FILE)) as journal:
        assert journal.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        known = journal.execute("SELECT count(*) FROM sqlite_master WHERE name = 'responses'").fetchone()[0]
        return (
            {fingerprint for (fingerprint,) in journal.execute("SELECT fingerprint FROM responses")}
            if known
            else set()
        )


def compute_fingerprints(request_ids: list[str]) -> set[str]:
    return {compute_fingerprint(MODEL_DIGEST, request_id) for request_id in request_ids}
