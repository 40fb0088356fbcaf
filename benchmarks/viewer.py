"""Measure the response times of the viewer with a run of half a million documents.

    python benchmarks/viewer.py [--documents 500000] [--folder DIR] [--browser]

Writes a run through the store (two tasks; questions, few-shot prompts, responses of a few hundred characters, log
probabilities of choices), starts `assay view` in a separate process and requests pages over HTTP. The first visit of a run
builds an index, which is measured separately. Goals: the first page of documents in 300 ms, any filter or search in 1 s, a
document in 150 ms.

With `--browser`, it opens the pages in Chromium, each with a new process and without an index. Goals: first paint in 1 s, an answer of
30,000 characters rendered in 100 ms, static files of 1 MB when compressed.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from measurements import Goal, Measurement, Report, add_json_option

from assay.core.records.documents import Document
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Likelihood, Settings
from assay.core.records.responses import LogProbability, Response, Usage
from assay.core.records.verdicts import Answer, Estimate, Score
from assay.store.journal.journal import Journal
from assay.viewer.web.rendering import STATIC_FILES, find_plotly_script, read_static_file

WORDS = (
    "the of and a question answer which following true about physics river stone light number train apple seven twelve"
    " hundred percent because therefore energy market history culture language model capital empire theory cell plant"
    " ocean music engine doctor winter summer garden bridge window letter paper silver golden copper iron"
).split()
SUBJECTS = [f"subject {n:02d}" for n in range(57)]
FEWSHOT_EXAMPLES = (
    "Question: How many legs do three cats have?\nAnswer: 12\n\nQuestion: What is two and two?\nAnswer: 4\n\n"
)
EXPRESSIONS = {
    "indexed names": [
        "score<1 and length>400 and not truncated",
        "wrong and subject in (a, b)",
        "not scored",
    ],
    "score, column and answer": [
        rf'score<1 and answer~/\d+/ and subject="subject {n:02d}"' for n in (3, 30, 50)
    ],
    "answer": [r"answer~/\d5/", r"answer~/^\w+$/", "answer=7"],
    "token count": ["output_tokens>20", "tokens<=90", "input_tokens>10 and wrong"],
    "text of few responses": ['response~"qqqqq"', r"response~/zebra \w+/"],
}
"""Filter expressions. The first use of a name that the index does not have is measured separately."""

CHUNK = 5000
SETTINGS = Settings({"until": ["\n"], "max_gen_toks": 256})


def write_run(folder: Path, documents: int) -> None:
    """Write a run: half of the documents are generation, half multiple choice."""
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
            response = f"{' '.join(rng.choices(WORDS, k=45))}. The answer is {n * 7 % 1000}."
            prompt = Prompt.of_text(f"{FEWSHOT_EXAMPLES}Question: {question}\nAnswer:")
            requests = [Generate(task=task, document=n, index=0, prompt=prompt, settings=SETTINGS)]
            values = [
                Response(request_id="", value=response, finish="stop", usage=Usage(90, 60), seconds=0.5)
            ]
            answers.append(Answer(document=n, pipeline="none", values=(str(n * 7 % 1000),)))
            verdicts.append(Score(document=n, metric="exact_match", pipeline="none", value=right))
        else:
            prompt = Prompt.of_text(f"Question: {question}\nAnswer:")
            requests = [
                Likelihood(task=task, document=n, index=index, prompt=prompt, continuation=f" choice {index}")
                for index in range(4)
            ]
            values = [
                Response(request_id="", value=LogProbability(-rng.random() * 9, index == 0))
                for index in range(4)
            ]
            pairs = tuple((value.value.total, value.value.greedy) for value in values)
            answers.append(Answer(document=n, pipeline="none", values=pairs))
            verdicts += [
                Score(document=n, metric=metric, pipeline="none", value=right)
                for metric in ("acc", "acc_norm")
            ]
        fingerprints = [f"{task}{n:024d}{index:02d}" for index in range(len(requests))]
        asked.append((document, str(n * 7 % 1000), requests, fingerprints))
        responses += zip(fingerprints, values, strict=True)
        outcomes.append((n, "scored" if rng.random() > 0.02 else "unparsed", ""))
    journal.add_documents(asked)
    journal.add_responses(responses, source="model")
    journal.add_judged(task, outcomes, answers, verdicts).result()


class ViewerClient:
    """Starts a viewer and requests its pages."""

    def __init__(self, folder: Path, home: Path, python: str = sys.executable) -> None:
        environment = {**os.environ, "ASSAY_HOME": str(home)}
        command = [python, "-m", "assay", "view", str(folder), "--no_browser"]
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
        """Request a page and return its status and the milliseconds it took."""
        begin = time.perf_counter()
        status = self._ask(path, self.cookie).status
        return status, 1000 * (time.perf_counter() - begin)

    def read_cpu_ms(self) -> float:
        """Return the CPU time of the viewer so far, which does not depend on the load of the machine."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)


def list_pages(run: str, documents: int) -> Iterator[tuple[str, float, list[str]]]:
    """Yield (label, limit in milliseconds, addresses). Each address is requested once, so no response is cached."""
    base, half = f"/runs/{run}/documents", documents // 2
    yield "documents, first page", 300, [f"{base}?page={n}" for n in (1, 2, 3)]
    yield "documents, last page", 300, [f"{base}?page={documents // 50 - n}" for n in (0, 1, 2)]
    yield (
        "filter: task and ending",
        1000,
        [f"{base}?task={t}&outcome=unparsed" for t in ("reasoning", "choosing")],
    )
    yield "filter: score", 1000, [f"{base}?low={low}&high=1" for low in ("0.5", "0.6", "1")]
    yield "filter: category", 1000, [f"{base}?category=subject%3Dsubject+{n:02d}" for n in (3, 30, 50)]
    for what, expressions in EXPRESSIONS.items():
        yield f"expression: {what}", 1000, [f"{base}?where={quote(one)}" for one in expressions]
    yield "sort by score", 1000, [f"{base}?sort=score", f"{base}?sort=score&order=desc&task=reasoning"]
    yield "sort by length", 1000, [f"{base}?sort=length&order=desc", f"{base}?sort=length&task=reasoning"]
    yield "search: one document", 1000, [f"{base}?q=number+{half - n}%29" for n in (7, 99, 1234)]
    yield "search: a frequent word", 1000, [f"{base}?q={word}" for word in ("question", "energy", "the")]
    yield "search: a letter", 1000, [f"{base}?q={letter}" for letter in ("e", "x")]
    yield "search: no match", 1000, [f"{base}?q={word}" for word in ("qqqqq", "%22river+zebra%22")]
    yield (
        "search, task, score, sort",
        1000,
        [f"{base}?q={word}&task=reasoning&low=1&sort=length" for word in ("ocean", "garden", "iron")],
    )
    yield "document", 150, [f"{base}/reasoning/{n}" for n in (0, half // 2, half - 1)]
    yield "document, choices", 150, [f"{base}/choosing/{n}" for n in (0, half // 3, half - 1)]
    yield (
        "document within a filter",
        150,
        [f"{base}/reasoning/{n}?task=reasoning&sort=length" for n in (half // 90, half // 9, half // 5)],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--documents", type=int, default=500_000)
    parser.add_argument(
        "--folder", type=Path, default=None, help="folder of the run; an existing run is reused"
    )
    parser.add_argument(
        "--browser", action="store_true", help="measure first paints in Chromium instead of responses"
    )
    add_json_option(parser)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = (given.folder or Path(scratch)) / f"run-{given.documents}"
        if not (folder / "journal.sqlite").exists():
            begin = time.perf_counter()
            write_run(folder, given.documents)
            print(f"wrote {given.documents} documents in {time.perf_counter() - begin:.0f} s")
        size = (folder / "journal.sqlite").stat().st_size / 2**20
        print(f"journal {size:.0f} MB, load {os.getloadavg()[0]:.1f}")
        report = Report(given.json)
        if given.browser:
            measure_static_files(report)
            measure_browser(folder, Path(scratch), given.documents, report)
        else:
            measure(folder, Path(scratch) / "home", given.documents, report)


def measure(folder: Path, home: Path, documents: int, report: Report) -> None:
    client = ViewerClient(folder.parent, home)
    try:
        run = folder.name
        status, first = client.get(f"/runs/{run}/documents")
        print(f"first visit, no index: {first:.0f} ms (status {status}, index built in the background)")
        begin = time.perf_counter()
        while b'"ready":true' not in client.body:
            time.sleep(0.2)
            client.get(f"/runs/{run}/index")
        indexed = time.perf_counter() - begin
        print(f"index built in {indexed:.1f} s", flush=True)
        what = f"{documents:,} documents, first visit, no index"
        report.add(Measurement(what=what, ours=first, unit="ms"))
        what = "index, built once in the background"
        report.add(Measurement(what=what, ours=indexed, unit="s"))
        client.close()
        client = ViewerClient(folder.parent, home)
        status, again = client.get(f"/runs/{run}/documents")
        print(f"second visit, with index: {again:.0f} ms")
        report.add(Measurement(what="second visit in a new process, with index", ours=again, unit="ms"))
        for expression in ("answer=1", "tokens=1"):
            begin = time.perf_counter()
            while client.get(f"/runs/{run}/documents?where={quote(expression)}")[0] != 200:
                time.sleep(0.05)
            spent = time.perf_counter() - begin
            print(f"first use of {expression.partition('=')[0]} in a filter: {spent:.1f} s", flush=True)
            what = f"first use of `{expression.partition('=')[0]}` in a filter, reads all documents once"
            report.add(Measurement(what=what, ours=spent, unit="s"))
        print("| page | median ms | slowest ms | CPU ms | goal |\n|---|--:|--:|--:|--:|")
        late = 0
        for what, limit, addresses in list_pages(run, documents):
            taken = []
            before = client.read_cpu_ms()
            for address in addresses:
                status, spent = client.get(address)
                assert status == 200, (address, status)
                taken.append(spent)
            late += max(taken) > limit
            cpu = (client.read_cpu_ms() - before) / len(addresses)
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
        print("all pages met their goal" if not late else f"{late} kinds of page missed their goal")
    finally:
        client.close()


def measure_static_files(report: Report) -> None:
    """Measure the compressed size of the static files; plotly's script comes from its own package."""
    sizes = [len(gzip.compress(read_static_file(name), mtime=0)) / 1000 for name in STATIC_FILES]
    plotly = len(gzip.compress(find_plotly_script().read_bytes(), mtime=0)) / 1000
    print(f"static files: {sum(sizes):.0f} kB compressed, and {plotly:.0f} kB for plotly")
    details = {"plotly kB": plotly}
    report.add(
        Measurement(
            what="static files, compressed", ours=sum(sizes), unit="kB", goal=Goal(most=1000), details=details
        )
    )


def measure_browser(folder: Path, scratch: Path, documents: int, report: Report) -> None:
    """Measure first paints without an index, and the rendering of a long answer, in Chromium."""
    chromium = os.environ.get("ASSAY_CHROMIUM") or shutil.which("chromium")
    if chromium is None or find_spec("playwright") is None:
        raise SystemExit("no Chromium or no Playwright")
    from playwright.sync_api import sync_playwright

    run = folder.name
    pages = {
        "runs": "/",
        "run": f"/runs/{run}",
        "documents": f"/runs/{run}/documents",
        "filtered documents": f"/runs/{run}/documents?where=score%3C1",
        "document": f"/runs/{run}/documents/reasoning/{documents // 4}",
        "matrix": "/matrix",
        "labels": f"/runs/{run}/labels",
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for number, (what, path) in enumerate(pages.items()):
            client = ViewerClient(folder.parent, scratch / f"home-{number}")
            try:
                context = browser.new_context()
                name, _, value = client.cookie.partition("=")
                context.add_cookies([{"name": name, "value": value, "url": f"http://{client.host}"}])
                page = context.new_page()
                page.goto(f"http://{client.host}{path}", wait_until="load", timeout=120_000)
                painted = None
                while painted is None:
                    painted = page.evaluate(
                        "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
                    )
                    page.wait_for_timeout(20)
                cpu = client.read_cpu_ms()
                print(f"first paint without an index, {what}: {painted:.0f} ms", flush=True)
                report.add(
                    Measurement(
                        what=f"first paint without an index: {what}", ours=painted, unit="ms",
                        goal=Goal(most=1000), details={"processor ms": cpu},
                    )
                )  # fmt: skip
                if what == "document":
                    measure_rendering(page, report)
                context.close()
            finally:
                client.close()
        browser.close()


LONG_ANSWER = """
const paragraph = "## Step\\n\\nThe **area** is $A = \\\\pi r^2$ with `r` and *so on*:\\n\\n1. one\\n2. two\\n\\n```python\\ndef f(x):\\n    return x + 1\\n```\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\\n\\n" + "Plain words follow here. ".repeat(12) + "\\n\\n";
const text = paragraph.repeat(Math.ceil(30000 / paragraph.length)).slice(0, 30000);
const { renderBody } = await import("/static/x/markdown.js");
const times = [];
for (let round = 0; round < 6; round += 1) {
  const body = document.createElement("div");
  body.innerHTML = '<pre class="text"></pre>';
  body.firstChild.textContent = text;
  document.body.append(body);
  const begin = performance.now();
  await renderBody(body);
  times.push(performance.now() - begin);
  body.remove();
}
return times;
"""


def measure_rendering(page: Any, report: Report) -> None:
    """Measure how long the browser renders an answer with markdown, mathematics and code."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def read_cpu_s() -> float:
        listed = session.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in listed if one["name"] == "TaskDuration"))

    page.evaluate(f"async () => {{ {LONG_ANSWER} }}")
    before = read_cpu_s()
    first, *others = page.evaluate(f"async () => {{ {LONG_ANSWER} }}")
    cpu = 1000 * (read_cpu_s() - before) / (1 + len(others))
    again = statistics.median([first, *others])
    print(f"answer of 30,000 characters: {again:.0f} ms, {cpu:.0f} ms of CPU time")
    report.add(
        Measurement(
            what="rendering an answer of 30,000 characters in the browser", ours=again, unit="ms",
            goal=Goal(most=100), details={"processor ms": cpu},
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
