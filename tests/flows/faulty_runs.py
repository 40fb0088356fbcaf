"""Repeat a run with a faulty server until it is complete, and account for every call."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from tests.flows.faulty_server import FaultyServer, Question, start_faulty_server
from tests.flows.running import ASSAY, CommandRunner
from tests.making import write_task

from assay.core.records.verdicts import Estimate
from assay.store.journal.journal import JOURNAL_FILE, Journal

MAX_PASSES = 60
DIGIT = [{"function": "regex", "regex_pattern": r"(\d)"}, {"function": "take_first"}]


@dataclass(slots=True)
class FaultCounts:
    """Counts of a run with a faulty server."""

    questions: int = 0
    passes: int = 0
    calls: int = 0
    faults: Counter[str] = field(default_factory=Counter)


class FaultyServerRun:
    """A run with a faulty server, and the checks after every pass."""

    def __init__(self, runner: CommandRunner, server: FaultyServer, documents: int) -> None:
        self.runner = runner
        self.server = server
        self.documents = documents
        rows = [{"question": f"What is {n} + {n}?", "answer": str(n % 4)} for n in range(documents)]
        digits: dict[str, Any] = {"filter_list": [{"name": "digit", "filter": DIGIT}]}
        sampling = {"do_sample": True, "temperature": 0.5}
        self.tasks = [
            str(write_task(runner.folder / "tasks", "once", rows, **digits)),
            str(
                write_task(
                    runner.folder / "tasks",
                    "thrice",
                    rows[: documents // 3],
                    doc_to_text="Again: {{question}}",
                    repeats=3,
                    generation_kwargs=sampling,
                    **digits,
                )
            ),
        ]
        self.questions = documents + 3 * (documents // 3)

    def run(self, *options: str, output: str = "out") -> CompletedProcess[str]:
        model = f"port={self.server.port},timeout_s=4"
        command = [*ASSAY, "run", "--model", "served", "--model_args", model, *self.tasks, *options]
        return self.runner.finish([*command, "--output_path", output])

    def find_run_folder(self, output: str = "out") -> Path:
        return self.runner.find_run_folder(output)

    # --- checks -------------------------------------------------------------------------

    def check(self, output: str = "out") -> int:
        """Compare the journal with the log of the server; return the number of unanswered questions."""
        answers = dict(self.read_answers(output))
        for question, text in answers.items():
            assert text == self.server.given[question][-1], (
                "a stored answer is the reply of the server to that question"
            )
        journal = Journal.open_readonly(self.find_run_folder(output))
        try:
            failed, asked = journal.count_failed_requests()
            assert (failed, asked) == (self.questions - len(answers), self.questions)
            for task in ("once", "thrice"):
                self._check_task(task, answers, journal)
        finally:
            journal.close()
        self._check_cache(answers, output)
        return failed

    def read_answers(self, output: str = "out") -> Iterator[tuple[Question, str]]:
        query = "SELECT q.prompt, q.repeat, r.text FROM requests q JOIN responses r ON r.fingerprint = q.fingerprint"
        with closing(sqlite3.connect(self.find_run_folder(output) / JOURNAL_FILE)) as journal:
            for prompt, repeat, text in journal.execute(query):
                yield (prompt, repeat), text

    def count_failures(self, output: str = "out") -> Counter[str]:
        """Return the number of stored failures, by kind."""
        with closing(sqlite3.connect(self.find_run_folder(output) / JOURNAL_FILE)) as journal:
            return Counter(kind for (kind,) in journal.execute("SELECT kind FROM failures"))

    def _check_task(self, task: str, answers: dict[Question, str], journal: Journal) -> None:
        """Check that failed documents count as failed and the mean covers exactly the other documents."""
        scores: list[float] = []
        documents = list(journal.read_documents(task))
        for _, fields, _, _ in documents:
            row = json.loads(fields)
            prompt = (
                f"Question: {row['question']}\nAnswer:" if task == "once" else f"Again: {row['question']}"
            )
            repeats = range(1 if task == "once" else 3)
            if all((prompt, repeat) in answers for repeat in repeats):
                found = re.search(r"\d", answers[prompt, 0])
                assert found is not None
                scores.append(float(found[0] == row["answer"]))
        endings = Counter(scored=len(scores), failed=len(documents) - len(scores))
        assert Counter(journal.count_outcomes(task)) == +endings
        (estimate,) = [one for one in journal.read_estimates() if one.task == task]
        assert isinstance(estimate, Estimate)
        assert (estimate.scored, estimate.unscored, estimate.failed) == (len(scores), 0, endings["failed"])
        if scores:
            assert abs(estimate.value - sum(scores) / len(scores)) < 1e-12

    def _check_cache(self, answers: dict[Question, str], output: str) -> None:
        """Check that the cache contains the answers and no failures."""
        with closing(sqlite3.connect(self.runner.folder / "home" / "cache.sqlite")) as cache:
            texts = {text for (text,) in cache.execute("SELECT text FROM responses")}
        assert texts == set(answers.values())


def run_until_complete(folder: Path, *, share: float, seed: int, documents: int = 90) -> FaultCounts:
    """Repeat the command until everything is answered, with checks after each pass."""
    with start_faulty_server(share, seed) as server:
        faulty_run = FaultyServerRun(CommandRunner(folder), server, documents)
        report = FaultCounts(questions=faulty_run.questions)
        failures = 0
        for _ in range(MAX_PASSES):
            known = {question for question, _ in faulty_run.read_answers()} if report.passes else set()
            server.clear_calls()
            passed = faulty_run.run()
            report.passes += 1
            open_questions = faulty_run.check()
            assert not known & server.calls.keys(), "answered questions are not sent again"
            assert set(server.calls.values()) <= {1}, "no question is sent twice in one pass"
            calls = server.calls.total()
            assert calls == faulty_run.questions - len(known)
            failed_now = faulty_run.count_failures().total() - failures
            failures += failed_now
            assert failed_now == open_questions >= server.fault_count
            assert passed.returncode == int(open_questions > 0.01 * faulty_run.questions), passed.stderr
            assert "Traceback" not in passed.stderr
            report.calls += calls
            report.faults.update(kind for kinds in server.faults.values() for kind in kinds)
            if not open_questions:
                break
        else:
            raise AssertionError(f"{open_questions} questions are open after {MAX_PASSES} passes")
        assert report.calls == faulty_run.questions + failures, "every call has an answer or a failure"
        return report
