"""Replicas on Ray: how two scale on two cores, and how much one driver can feed.

    python benchmarks/replicas.py [scaling] [driver] [--documents 1200] [--requests 40000] [--replicas 64]

`scaling`: the embedded model, one thread for each replica, on one and on two of them; beside it the same requests in one and in two
plain processes that share nothing: what the machine itself has to give. `driver`: instant replicas that take no
processor time of their own from Ray's books, so that what is measured is the driver: rendering, sending, receiving, journal,
scoring. Starting Ray and its processes is stated and not counted: the clock runs from the moment all replicas are open to
the last answer, and nothing but the first few hundred documents is rendered before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

from measurements import Goal, Measurement, Report, add_json_option

import assay
from assay import Generate, LogProbability, Prompt, Response, Traits
from assay.core.requests import Settings
from assay.engine import run as engine_run
from assay.engine.running import document_reader
from assay.models.embedded import EmbeddedModel
from assay.models.replicas import ReplicaConfig, ReplicatedModel

TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: {kind}
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: {target}
{more}
metric_list: [{{metric: {metric}, aggregation: mean, higher_is_better: true}}]
"""
GENERATE = {"kind": "generate_until", "target": "answer", "metric": "exact_match"}
GENERATE |= {"more": 'generation_kwargs: {until: ["@"], max_gen_toks: 48, do_sample: false}'}
CHOICE = {"kind": "multiple_choice", "target": "label", "metric": "acc"}
CHOICE |= {"more": 'doc_to_choice: ["A", "B", "C", "D"]'}


class Instant:
    """Answers at once."""

    name = "instant"
    traits = Traits(abilities=frozenset(("generate", "likelihood")), window=64)

    async def identify(self) -> Mapping[str, str]:
        return {"name": "instant"}

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def answer(self, window: Sequence[Any]) -> AsyncIterator[Response]:
        for request in window:
            likelihood = hasattr(request, "continuation")
            value = LogProbability(-float(request.index), False) if likelihood else "7"
            yield Response(request_id=request.id, value=value)


OPENED = threading.Event()
open_chunks = document_reader.read_chunks


def late_chunks(*arguments: Any) -> Iterator[Any]:
    """Documents are rendered ahead while the model is being opened, which takes a minute here: now they are not."""
    opened = open_chunks(*arguments)
    yield next(opened)
    OPENED.wait()
    yield from opened


engine_run.read_chunks = late_chunks  # type: ignore[attr-defined, assignment]


class Timed:
    """Replicas whose asking is timed, from when all are open."""

    def __init__(self, make: Any, wishes: ReplicaConfig) -> None:
        self._inner, self._wanted = ReplicatedModel(make(), make, wishes), wishes.replicas
        self.name, self.traits = self._inner.name, self._inner.traits
        self.starting_s = self.seconds = self.cpu_s = 0.0
        self.answered = 0

    async def identify(self) -> Mapping[str, str]:
        return await self._inner.identify()

    async def open(self) -> None:
        begin = time.monotonic()
        await self._inner.open()
        while self._inner._dispatcher is None or self._inner._dispatcher.ready < self._wanted:
            await asyncio.sleep(0.05)
        self.starting_s = time.monotonic() - begin
        self._begin, self._cpu = time.monotonic(), time.process_time()
        OPENED.set()

    async def answer(self, window: Sequence[Any]) -> AsyncIterator[Any]:
        async for outcome in self._inner.answer(window):
            self.answered += 1
            yield outcome
        self.seconds, self.cpu_s = time.monotonic() - self._begin, time.process_time() - self._cpu

    async def close(self) -> None:
        await self._inner.close()


def write_task(folder: Path, name: str, documents: int, details: Mapping[str, str]) -> str:
    data = folder / f"{name}.jsonl"
    rows = (
        {"question": f"What is {n} + {n % 7}?", "answer": str(n + n % 7), "label": n % 4}
        for n in range(documents)
    )
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / f"{name}.yaml"
    path.write_text(TASK.format(name=name, data=data, **details))
    return str(path)


def measure(make: Any, wishes: ReplicaConfig, task: str, folder: Path) -> tuple[Timed, float]:
    OPENED.clear()
    model = Timed(make, wishes)
    begin = time.monotonic()
    place = tempfile.mkdtemp(dir=folder)
    assay.run(model=model, tasks=[task], output_path=place, no_cache=True, log_samples=False)
    return model, time.monotonic() - begin


def scaling(folder: Path, documents: int, report: Report) -> None:
    task = write_task(folder, "sums", documents, GENERATE)
    print(f"\nembedded, {documents} documents, one thread for each replica; load {os.getloadavg()[0]:.1f}\n")
    print(
        "| replicas | start, s | asking, s | requests/s | ratio | driver CPU, s |\n|---|---|---|---|---|---|"
    )
    alone = 0.0
    for replicas in (1, 2):
        model, _ = measure(EmbeddedModel, ReplicaConfig(replicas=replicas), task, folder)
        rate = model.answered / model.seconds
        alone = alone or rate
        print(
            f"| {replicas} | {model.starting_s:.1f} | {model.seconds:.1f} | {rate:.1f} | {rate / alone:.2f}x | {model.cpu_s:.1f} |",
            flush=True,
        )
        details = {"start, s": model.starting_s, "driver CPU s": model.cpu_s}
        what = f"the embedded model, one thread each, {documents:,} documents, replicas: {replicas}"
        report.add(Measurement(what=what, ours=rate, unit="requests/s", more_is_better=True, details=details))
    what = "the same: two replicas against one"
    report.add(
        Measurement(what=what, ours=rate / alone, unit="times", more_is_better=True, goal=Goal(least=1.8))
    )


def answer_share(documents: int, share: int, shares: int, start: Any, took: Any) -> None:
    """In a process of its own: every so-many-th of the questions, in windows, as a replica gets them."""
    settings = Settings({"until": ["@"], "max_gen_toks": 48, "do_sample": False})
    texts = [f"Question: What is {n} + {n % 7}?\nAnswer:" for n in range(share, documents, shares)]
    asked = [
        Generate(task="sums", document=n, prompt=Prompt.of_text(text), settings=settings)
        for n, text in enumerate(texts)
    ]

    async def work() -> None:
        model = EmbeddedModel()
        await model.open()
        start.wait()
        begin = time.monotonic()
        for at in range(0, len(asked), model.traits.window):
            async for _ in model.answer(asked[at : at + model.traits.window]):
                pass
        took.put(time.monotonic() - begin)

    asyncio.run(work())


def plain(documents: int, report: Report) -> None:
    """Without Assay's engine and without Ray."""
    spawning, alone = multiprocessing.get_context("spawn"), 0.0
    for processes in (1, 2):
        start, took = spawning.Barrier(processes), spawning.Queue()
        started = [
            spawning.Process(target=answer_share, args=(documents, share, processes, start, took))
            for share in range(processes)
        ]
        for process in started:
            process.start()
        seconds = max(took.get() for _ in started)
        for process in started:
            process.join()
        rate = documents / seconds
        alone = alone or rate
        print(f"| {processes} plain | | {seconds:.1f} | {rate:.1f} | {rate / alone:.2f}x | |", flush=True)
    what = "the yardstick: two plain processes against one, without Ray and without the engine"
    report.add(Measurement(what=what, ours=rate / alone, unit="times", more_is_better=True))


def driver(folder: Path, requests: int, replicas: int, report: Report) -> None:
    print(f"\n{replicas} instant replicas; load {os.getloadavg()[0]:.1f}\n")
    print(
        "| task | requests | start, s | asking, s | requests/s | driver CPU per request | whole run, s |\n|---|---|---|---|---|---|---|"
    )
    wishes = ReplicaConfig(replicas=replicas, resources={"cpu": 0})
    for name, details, each in (("choice of four", CHOICE, 4), ("generate", GENERATE, 1)):
        task = write_task(folder, name.replace(" ", "_"), requests // each, details)
        model, whole = measure(Instant, wishes, task, folder)
        rate, cost = model.answered / model.seconds, model.cpu_s / model.answered
        print(
            f"| {name} | {model.answered} | {model.starting_s:.1f} | {model.seconds:.1f} | {rate:.0f} | {cost * 1e6:.0f} µs | {whole:.1f} |",
            flush=True,
        )
        report.add(
            Measurement(
                what=f"the driver with {replicas} instant replicas, {name}, {model.answered:,} requests", ours=rate,
                unit="requests/s", more_is_better=True, goal=Goal(least=5000),
                details={"start, s": model.starting_s, "driver CPU µs per request": cost * 1e6},
            )
        )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["scaling", "driver"])
    parser.add_argument("--documents", type=int, default=1200)
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--replicas", type=int, default=64)
    add_json_option(parser)
    arguments = parser.parse_args()
    found = Report(arguments.json)
    with tempfile.TemporaryDirectory() as place:
        os.environ["ASSAY_HOME"] = place
        if "scaling" in arguments.parts:
            scaling(Path(place), arguments.documents, found)
            plain(arguments.documents, found)
        if "driver" in arguments.parts:
            driver(Path(place), arguments.requests, arguments.replicas, found)
