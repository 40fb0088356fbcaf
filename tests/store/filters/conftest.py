"""One small run of two tasks, shared by the tests of filter expressions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.core.records.documents import Document
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Likelihood, Settings
from assay.core.records.responses import LogProbability, Response, Usage
from assay.core.records.verdicts import Answer, Estimate, Score
from assay.store.index.document_index import DocumentIndex
from assay.store.journal.journal import Journal
from assay.store.runs.run import Run

SUMS = 40
TASKS = {
    "sums": {"pipelines": ["find", "all"], "metrics": ["exact_match", "f1", "bleu"], "documents": SUMS},
    "errors": {"pipelines": ["none"], "metrics": ["wer"], "documents": 4},
}
SETTINGS = Settings({"until": ["\n"]})


def write_run(folder: Path) -> None:
    """Write a run: even sums are right, every tenth is truncated; the second task has a metric where lower is better."""
    journal = Journal.open_for_writing(folder)
    journal.set_facts({"digest": "d", "tasks": TASKS, "started": 1.0, "ended": 2.0, "top": list(TASKS)})
    for n in range(SUMS):
        fields = {
            "question": f"What is {n} + 1?", "subject": "Algebra" if n % 3 else "Number Theory", "level": n % 5,
            "hard": n % 2 == 0, "meta": {"year": 2000 + n}, "two words": f"value {n}", "answer": str(n + 1),
        }  # fmt: skip
        document = Document(task="sums", index=n, fields=fields)
        prompt = Prompt.of_text(f"Question {n}")
        request = Generate(task="sums", document=n, index=0, prompt=prompt, settings=SETTINGS)
        journal.add_documents([(document, str(n + 1), [request], [f"sum-{n}"])])
        text = f"I think about it. The answer is {n + 1}." + " More." * n
        judge = Generate(task="sums", document=n, index=0, prompt=Prompt.of_text("Right?"), settings=SETTINGS)
        journal.add_judge_request(judge, f"judge-{n}", judge="gpt-strict" if n < 10 else "gpt-kind")
        journal.add_responses(
            [(f"judge-{n}", Response(request_id="", value="Yes" if n % 2 == 0 else "No, it is wrong"))],
            source="judge",
        )
        journal.add_responses(
            [
                (
                    f"sum-{n}",
                    Response(
                        request_id="",
                        value=text,
                        finish="length" if n % 10 == 9 else "stop",
                        usage=Usage(10, n),
                    ),
                )
            ],
            source="model",
        )
        right = float(n % 2 == 0)
        journal.add_judged(
            "sums",
            [(n, "truncated", "too long") if n % 10 == 9 else (n, "scored", "")],
            [Answer(document=n, pipeline="find", values=(str(n + 1),)), Answer(document=n, pipeline="all", values=(text,))],
            [
                Score(document=n, pipeline="find", metric="exact_match", value=right),
                Score(document=n, pipeline="find", metric="f1", value=n / SUMS),
                Score(document=n, pipeline="find", metric="bleu", value=n * 1.0),
                Score(document=n, pipeline="all", metric="exact_match", value=0.0),
                Score(document=n, pipeline="all", metric="bleu", value=100.0 + n),
            ],
        )  # fmt: skip
    for n in range(4):
        document = Document(task="errors", index=n, fields={"question": "?", "subject": "Speech"})
        choice = Likelihood(task="errors", document=n, index=0, prompt=Prompt.of_text("?"), continuation=" a")
        journal.add_documents([(document, 0, [choice], [f"error-{n}"])])
        journal.add_responses(
            [(f"error-{n}", Response(request_id="", value=LogProbability(-1.0, True)))], source="model"
        )
        journal.add_judged(
            "errors",
            [(n, "scored", "")],
            [Answer(document=n, pipeline="none", values=([-1.0, True], [-0.5, True]))],
            [Score(document=n, pipeline="none", metric="wer", value=float(n % 2))],
        )
    journal.add_estimates(
        [Estimate(task="errors", metric="wer", pipeline="none", value=0.5, higher_is_better=False)]
    )
    journal.flush().result()
    journal.close()


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filtered") / "run"
    write_run(folder)
    return folder


@pytest.fixture
def run(run_folder: Path) -> Iterator[Run]:
    opened = Run(run_folder)
    yield opened
    opened.close()


@pytest.fixture
def index(run: Run, tmp_path: Path) -> DocumentIndex:
    index = DocumentIndex(run.journal, tmp_path / "index", run.tasks)
    index.update()
    return index
