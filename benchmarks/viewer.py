"""How long the viewer takes over a run of half a million documents.

    python benchmarks/viewer.py [--documents 500000] [--folder DIR]

Writes a run through the store (two tasks; questions, few-shot prompts, responses of a few hundred characters, log-
probabilities of choices), opens `assay view` on it in a process of its own and asks for pages over HTTP. The first look at
a run reads it once and keeps an index; that is measured apart. Wanted: the first page of documents under 300 ms, any
filter or search under 1 s, a document under 150 ms.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from measurements import Goal, Measurement, Report, add_json_option

from assay.core.documents import Document
from assay.core.messages import Prompt
from assay.core.requests import Generate, Likelihood, Settings
from assay.core.responses import LogProbability, Response, Usage
from assay.core.verdicts import Answer, Estimate, Score
from assay.store.journal.journal import Journal

WORDS = (
    "the of and a question answer which following true about physics river stone light number train apple seven twelve"
    " hundred percent because therefore energy market history culture language model capital empire theory cell plant"
    " ocean music engine doctor winter summer garden bridge window letter paper silver golden copper iron"
).split()
SUBJECTS = [f"subject {n:02d}" for n in range(57)]
SHOTS = (
    "Question: How many legs do three cats have?\nAnswer: 12\n\nQuestion: What is two and two?\nAnswer: 4\n\n"
)
CHUNK = 5000
SETTINGS = Settings({"until": ["\n"], "max_gen_toks": 256})


def write_run(folder: Path, documents: int) -> None:
    """Half of the documents generate, half choose."""
    rng = random.Random(0)
    half = documents // 2
    sizes = {"reasoning": half, "choosing": documents - half}
    journal = Journal.open_for_writing(folder)
    journal.set_facts(
        {
            "run_id": folder.name, "digest": "benchmark", "model": "instant", "top": list(sizes), "groups": {},
            "started": time.time() - 3600, "ended": time.time(), "seconds": 3600.0, "spec": {"model": "instant"},
            "tasks": {
                name: {
                    "documents": count, "n_shot": 2 if name == "reasoning" else 0, "pipelines": ["none"],
                    "metrics": ["exact_match"] if name == "reasoning" else ["acc", "acc_norm"],
                    "output_type": "generate_until" if name == "reasoning" else "multiple_choice", "config": {},
                }
                for name, count in sizes.items()
            },
        }
    )  # fmt: skip
    for task, count in sizes.items():
        for start in range(0, count, CHUNK):
            write_chunk(journal, rng, task, range(start, min(start + CHUNK, count)))
    journal.add_estimates(
        [
            Estimate(
                task=task, metric="exact_match" if task == "reasoning" else "acc", pipeline="none", value=0.7,
                stderr=0.001, interval=(0.698, 0.702), scored=count, higher_is_better=True,
            )
            for task, count in sizes.items()
        ]
    ).result()  # fmt: skip
    journal.close()


def write_chunk(journal: Journal, rng: random.Random, task: str, numbers: range) -> None:
    asked, responses, outcomes, answers, verdicts = [], [], [], [], []
    for n in numbers:
        question = f"{' '.join(rng.choices(WORDS, k=30))} (number {n})?"
        fields = {"question": question, "subject": SUBJECTS[n % 57], "level": n % 5}
        document = Document(task=task, index=n, fields=fields)
        right = float(rng.random() < 0.7)
        if task == "reasoning":
            said = f"{' '.join(rng.choices(WORDS, k=45))}. The answer is {n * 7 % 1000}."
            prompt = Prompt.of_text(f"{SHOTS}Question: {question}\nAnswer:")
            requests = [Generate(task=task, document=n, index=0, prompt=prompt, settings=SETTINGS)]
            values = [Response(request_id="", value=said, finish="stop", usage=Usage(90, 60), seconds=0.5)]
            answers.append(Answer(document=n, pipeline="none", values=(str(n * 7 % 1000),)))
            verdicts.append(Score(document=n, metric="exact_match", pipeline="none", value=right))
        else:
            prompt = Prompt.of_text(f"Question: {question}\nAnswer:")
            requests = [
                Likelihood(task=task, document=n, index=at, prompt=prompt, continuation=f" choice {at}")
                for at in range(4)
            ]
            values = [
                Response(request_id="", value=LogProbability(-rng.random() * 9, at == 0)) for at in range(4)
            ]
            pairs = tuple((value.value.total, value.value.greedy) for value in values)
            answers.append(Answer(document=n, pipeline="none", values=pairs))
            verdicts += [
                Score(document=n, metric=metric, pipeline="none", value=right)
                for metric in ("acc", "acc_norm")
            ]
        marks = [f"{task}{n:024d}{at:02d}" for at in range(len(requests))]
        asked.append((document, str(n * 7 % 1000), requests, marks))
        responses += zip(marks, values, strict=True)
        outcomes.append((n, "scored" if rng.random() > 0.02 else "unparsed", ""))
    journal.add_documents(asked)
    journal.add_responses(responses, source="model")
    journal.add_judged(task, outcomes, answers, verdicts).result()


class Visitor:
    """Asks a viewer for pages."""

    def __init__(self, folder: Path, home: Path) -> None:
        environment = {**os.environ, "ASSAY_HOME": str(home)}
        command = [sys.executable, "-m", "assay", "view", str(folder), "--no_browser"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
        assert self.process.stdout is not None
        address = urlsplit(self.process.stdout.readline().strip())
        self.host = address.netloc
        answer = self._ask(f"/?{address.query}", "")
        self.cookie = answer.getheader("set-cookie", "").partition(";")[0]

    def _ask(self, path: str, cookie: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.host, timeout=120)
        connection.request("GET", path, headers={"cookie": cookie})
        response = connection.getresponse()
        self.body = response.read()
        connection.close()
        return response

    def get(self, path: str) -> tuple[int, float]:
        """(status, milliseconds)"""
        begin = time.perf_counter()
        status = self._ask(path, self.cookie).status
        return status, 1000 * (time.perf_counter() - begin)

    def cpu_ms(self) -> float:
        """Processor time of the viewer so far: what does not depend on who else is at work here."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)


def pages(run: str, documents: int) -> Iterator[tuple[str, float, list[str]]]:
    """(what, milliseconds it may take, addresses: each asked for once, so that nothing is remembered)"""
    at, half = f"/runs/{run}/documents", documents // 2
    yield "documents, first page", 300, [f"{at}?page={n}" for n in (1, 2, 3)]
    yield "documents, last page", 300, [f"{at}?page={documents // 50 - n}" for n in (0, 1, 2)]
    yield (
        "filter: task and ending",
        1000,
        [f"{at}?task={t}&outcome=unparsed" for t in ("reasoning", "choosing")],
    )
    yield "filter: score", 1000, [f"{at}?low={low}&high=1" for low in ("0.5", "0.6", "1")]
    yield "filter: category", 1000, [f"{at}?category=subject%3Dsubject+{n:02d}" for n in (3, 30, 50)]
    yield "sort by score", 1000, [f"{at}?sort=score", f"{at}?sort=score&order=desc&task=reasoning"]
    yield "sort by length", 1000, [f"{at}?sort=length&order=desc", f"{at}?sort=length&task=reasoning"]
    yield "search: one document", 1000, [f"{at}?q=number+{half - n}%29" for n in (7, 99, 1234)]
    yield "search: a frequent word", 1000, [f"{at}?q={word}" for word in ("question", "energy", "the")]
    yield "search: a letter", 1000, [f"{at}?q={letter}" for letter in ("e", "x")]
    yield "search: words, not there", 1000, [f"{at}?q={word}" for word in ("qqqqq", "%22river+zebra%22")]
    yield (
        "search, task, score, sort",
        1000,
        [f"{at}?q={word}&task=reasoning&low=1&sort=length" for word in ("ocean", "garden", "iron")],
    )
    yield "document", 150, [f"{at}/reasoning/{n}" for n in (0, half // 2, half - 1)]
    yield "document, choices", 150, [f"{at}/choosing/{n}" for n in (0, half // 3, half - 1)]
    yield (
        "document within a filter",
        150,
        [f"{at}/reasoning/{n}?task=reasoning&sort=length" for n in (half // 90, half // 9, half // 5)],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--documents", type=int, default=500_000)
    parser.add_argument("--folder", type=Path, default=None, help="where the run is made, or is already")
    add_json_option(parser)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = (given.folder or Path(scratch)) / f"run-{given.documents}"
        if not (folder / "journal.sqlite").exists():
            begin = time.perf_counter()
            write_run(folder, given.documents)
            print(f"made {given.documents} documents in {time.perf_counter() - begin:.0f} s")
        size = (folder / "journal.sqlite").stat().st_size / 2**20
        print(f"journal {size:.0f} MB, load {os.getloadavg()[0]:.1f}")
        measure(folder, Path(scratch) / "home", given.documents, Report(given.json))


def measure(folder: Path, home: Path, documents: int, report: Report) -> None:
    visitor = Visitor(folder.parent, home)
    try:
        run = folder.name
        status, first = visitor.get(f"/runs/{run}/documents")
        print(f"first visit, nothing known: {first:.0f} ms (status {status}, index in the background)")
        begin = time.perf_counter()
        while b'"ready":true' not in visitor.body:
            time.sleep(0.2)
            visitor.get(f"/runs/{run}/index")
        indexed = time.perf_counter() - begin
        print(f"index made in {indexed:.1f} s", flush=True)
        what = f"{documents:,} documents, first visit, nothing known"
        report.add(Measurement(what=what, ours=first, unit="ms"))
        what = "index, made once in the background"
        report.add(Measurement(what=what, ours=indexed, unit="s"))
        visitor.close()
        visitor = Visitor(folder.parent, home)
        status, again = visitor.get(f"/runs/{run}/documents")
        print(f"second visit, index kept: {again:.0f} ms")
        report.add(Measurement(what="second visit in a new process, index kept", ours=again, unit="ms"))
        print("| page | median ms | slowest ms | processor ms | wanted |\n|---|--:|--:|--:|--:|")
        late = 0
        for what, limit, addresses in pages(run, documents):
            taken = []
            before = visitor.cpu_ms()
            for address in addresses:
                status, spent = visitor.get(address)
                assert status == 200, (address, status)
                taken.append(spent)
            late += max(taken) > limit
            cpu = (visitor.cpu_ms() - before) / len(addresses)
            print(f"| {what} | {statistics.median(taken):.0f} | {max(taken):.0f} | {cpu:.0f} | {limit:.0f} |")
            details = {"median ms": statistics.median(taken), "processor ms": cpu}
            report.add(
                Measurement(
                    what=f"{what}, slowest",
                    ours=max(taken),
                    unit="ms",
                    goal=Goal(most=limit),
                    details=details,
                )
            )
        print(f"load {os.getloadavg()[0]:.1f}")
        print("everything in time" if not late else f"{late} kinds of page too slow")
    finally:
        visitor.close()


if __name__ == "__main__":
    main()
