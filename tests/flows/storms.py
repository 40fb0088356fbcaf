"""A run against a server that fails a share of the calls: repeated until it is whole, every call accounted for."""

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

from assay.core.verdicts import Estimate
from assay.store.journal.journal import JOURNAL_FILE, Journal

MAX_PASSES = 60
DIGIT = [{"function": "regex", "regex_pattern": r"(\d)"}, {"function": "take_first"}]


@dataclass(slots=True)
class FaultCounts:
    """What a run in bad weather came to."""

    questions: int = 0
    passes: int = 0
    calls: int = 0
    faults: Counter[str] = field(default_factory=Counter)


class FaultyServerRun:
    """One run, one server, and what must be true between them after every pass."""

    def __init__(self, bench: CommandRunner, server: FaultyServer, documents: int) -> None:
        self.bench = bench
        self.server = server
        self.documents = documents
        rows = [{"question": f"What is {n} + {n}?", "answer": str(n % 4)} for n in range(documents)]
        digits: dict[str, Any] = {"filter_list": [{"name": "digit", "filter": DIGIT}]}
        drawn = {"do_sample": True, "temperature": 0.5}
        self.tasks = [
            str(write_task(bench.folder / "tasks", "once", rows, **digits)),
            str(
                write_task(
                    bench.folder / "tasks",
                    "thrice",
                    rows[: documents // 3],
                    doc_to_text="Again: {{question}}",
                    repeats=3,
                    generation_kwargs=drawn,
                    **digits,
                )
            ),
        ]
        self.questions = documents + 3 * (documents // 3)

    def run(self, *options: str, output: str = "out") -> CompletedProcess[str]:
        model = f"port={self.server.port},timeout_s=4"
        command = [*ASSAY, "run", "--model", "served", "--model_args", model, *self.tasks, *options]
        return self.bench.finish([*command, "--output_path", output])

    def find_run_folder(self, output: str = "out") -> Path:
        return self.bench.find_run_folder(output)

    # --- what must be true -------------------------------------------------------------------------

    def check(self, output: str = "out") -> int:
        """Hold the journal against the books of the server; returns how many questions are open."""
        answers = dict(self.read_answers(output))
        for question, text in answers.items():
            assert text == self.server.given[question][-1], (
                "an answer is what the server said, to that question"
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
        """All that were ever written down, by kind."""
        with closing(sqlite3.connect(self.find_run_folder(output) / JOURNAL_FILE)) as journal:
            return Counter(kind for (kind,) in journal.execute("SELECT kind FROM failures"))

    def _check_task(self, task: str, answers: dict[Question, str], journal: Journal) -> None:
        """Failed documents are counted as failed, the others scored by what was said; nothing else is in the mean."""
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
        """The cache holds the answers and no failure in the place of one."""
        with closing(sqlite3.connect(self.bench.folder / "home" / "cache.sqlite")) as cache:
            texts = {text for (text,) in cache.execute("SELECT text FROM responses")}
        assert texts == set(answers.values())


def run_until_complete(folder: Path, *, share: float, seed: int, documents: int = 90) -> FaultCounts:
    """Repeat the command until everything is answered; after each pass, the books must agree."""
    with start_faulty_server(share, seed) as server:
        storm = FaultyServerRun(CommandRunner(folder), server, documents)
        report = FaultCounts(questions=storm.questions)
        failures = 0
        for _ in range(MAX_PASSES):
            known = {question for question, _ in storm.read_answers()} if report.passes else set()
            server.clear_calls()
            passed = storm.run()
            report.passes += 1
            open_questions = storm.check()
            assert not known & server.calls.keys(), "what was answered is not asked again"
            assert set(server.calls.values()) <= {1}, "nothing is asked twice in one pass"
            calls = server.calls.total()
            assert calls == storm.questions - len(known)
            failed_now = storm.count_failures().total() - failures
            failures += failed_now
            assert failed_now == open_questions >= server.fault_count
            assert passed.returncode == int(open_questions > 0.01 * storm.questions), passed.stderr
            assert "Traceback" not in passed.stderr
            report.calls += calls
            report.faults.update(kind for kinds in server.faults.values() for kind in kinds)
            if not open_questions:
                break
        else:
            raise AssertionError(f"{open_questions} questions are open after {MAX_PASSES} passes")
        assert report.calls == storm.questions + failures, "an answer or a failure for every call"
        return report
