"""Measure replicas on Ray: the speedup of two replicas, the start-up, and the throughput of the driver.

    python benchmarks/replicas.py [scaling] [device] [driver] [--documents 1500] [--repeat 3] [--requests 40000] [--replicas 64]

`scaling` runs the embedded model with one and two replicas, one thread each, in turn. As a baseline, it sends the same requests in one
and two independent processes, which shows the speedup the machine allows. On two cores the driver has no core of its own; the limit
of the speedup follows from its CPU time. `device` uses replicas that wait 8 ms per request, as for an accelerator, so that
no replica needs a core. `driver` uses instant replicas that reserve no CPU in Ray, so it measures the driver: rendering, sending,
receiving, journal and scoring. The time starts when all replicas are open and ends with the last answer. The start-up of Ray is
reported separately, and only the first few hundred documents are rendered during it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

from measurements import Goal, Measurement, Report, add_json_option

import assay
from assay import Generate, LogProbability, Prompt, Response, Traits
from assay.core.records.requests import Settings
from assay.engine import run as engine_run
from assay.models.embedded import EmbeddedModel
from assay.models.replicas import Cluster, ReplicaConfig, ReplicatedModel

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


class InstantModel:
    """A model without latency."""

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


class DeviceModel(InstantModel):
    """A model that computes elsewhere: it waits for each answer and needs no core."""

    name, each_s = "device", 0.008

    async def answer(self, window: Sequence[Any]) -> AsyncIterator[Response]:
        async for response in super().answer(window):
            await asyncio.sleep(self.each_s)
            yield response


CLUSTER_STARTS_S: list[float] = []
join_cluster = Cluster.join


async def join_and_measure(self: Cluster) -> None:
    """Measure the start of a local cluster."""
    begin = time.monotonic()
    await join_cluster(self)
    CLUSTER_STARTS_S.append(time.monotonic() - begin)


Cluster.join = join_and_measure  # type: ignore[method-assign]
OPENED = threading.Event()
queue_chunk = engine_run._RunStream._queue_chunk


async def queue_chunk_and_wait(self: Any, *arguments: Any) -> None:
    """Queue the first chunk, then delay rendering until the model is open, which can take a minute."""
    await queue_chunk(self, *arguments)
    while not OPENED.is_set():
        await asyncio.sleep(0.01)


engine_run._RunStream._queue_chunk = queue_chunk_and_wait  # type: ignore[method-assign]


class TimedModel:
    """A replicated model that measures the time from when all replicas are open."""

    def __init__(self, make: Any, config: ReplicaConfig) -> None:
        self._inner, self._wanted = ReplicatedModel(make(), make, config), config.replicas
        self.name, self.traits = self._inner.name, self._inner.traits
        self.starting_s = self.seconds = self.cpu_s = 0.0
        self.answered = 0

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.answered / self.seconds

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


def run_model(make: Any, config: ReplicaConfig, task: str, folder: Path) -> tuple[TimedModel, float]:
    OPENED.clear()
    model = TimedModel(make, config)
    begin = time.monotonic()
    place = tempfile.mkdtemp(dir=folder)
    assay.run(model=model, tasks=[task], output_path=place, no_cache=True, log_samples=False)
    return model, time.monotonic() - begin


def measure_speedup(make: Any, task: str, folder: Path, repeat: int) -> dict[int, TimedModel]:
    """Run one and two replicas in turn; return for each the run with the median rate."""
    print("\n| replicas | start, s | requests, s | requests/s | driver CPU, s |\n|---|---|---|---|---|")
    runs: dict[int, list[TimedModel]] = {1: [], 2: []}
    for _ in range(repeat):
        for replicas, models in runs.items():
            model, _ = run_model(make, ReplicaConfig(replicas=replicas), task, folder)
            models.append(model)
            print(
                f"| {replicas} | {model.starting_s:.1f} | {model.seconds:.2f} | {model.rate:.1f} | {model.cpu_s:.2f} |",
                flush=True,
            )
    return {
        replicas: sorted(models, key=lambda model: model.rate)[len(models) // 2]
        for replicas, models in runs.items()
    }


def measure_scaling(folder: Path, documents: int, repeat: int, report: Report) -> None:
    task = write_task(folder, "sums", documents, GENERATE)
    print(f"\nembedded, {documents} documents, one thread per replica; load {os.getloadavg()[0]:.1f}")
    found = measure_speedup(EmbeddedModel, task, folder, repeat)
    for replicas, model in found.items():
        details = {"start, s": model.starting_s, "driver CPU s": model.cpu_s}
        what = f"embedded model, {documents:,} documents, one thread each, replicas: {replicas}"
        report.add(
            Measurement(what=what, ours=model.rate, unit="requests/s", more_is_better=True, details=details)
        )
    rates, model_cpu_s = measure_processes(documents)
    report.add(
        Measurement(
            what=f"embedded model, {documents:,} documents: speedup of two replicas", ours=found[2].rate / found[1].rate,
            unit="times", more_is_better=True, limit=2 * model_cpu_s / (model_cpu_s + found[2].cpu_s),
            limited_by="two cores, one of them shared with the driver", goal=Goal(least=1.9),
        )
    )  # fmt: skip
    what = "baseline: speedup of two processes, without Ray and the engine"
    report.add(Measurement(what=what, ours=rates[2] / rates[1], unit="times", more_is_better=True))
    what = "start of a local cluster"
    report.add(
        Measurement(what=what, ours=statistics.median(CLUSTER_STARTS_S), unit="s", goal=Goal(most=3.0))
    )


def measure_device(folder: Path, documents: int, report: Report) -> None:
    """Measure the speedup of replicas that need no core."""
    task = write_task(folder, "device", documents, GENERATE)
    print(f"\n{1000 * DeviceModel.each_s:g} ms per request without a core; load {os.getloadavg()[0]:.1f}")
    found = measure_speedup(DeviceModel, task, folder, 1)
    what = f"model that waits {1000 * DeviceModel.each_s:g} ms per request, {documents:,} documents: speedup of two replicas"
    report.add(
        Measurement(
            what=what, ours=found[2].rate / found[1].rate, unit="times", more_is_better=True, limit=2.0,
            limited_by="two replicas", goal=Goal(least=1.9),
        )
    )  # fmt: skip


def answer_share(documents: int, share: int, shares: int, start: Any, took: Any) -> None:
    """Answer every `shares`-th question in this process, in windows as a replica receives them."""
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
        begin, used = time.monotonic(), time.process_time()
        for begin_index in range(0, len(asked), model.traits.window):
            async for _ in model.answer(asked[begin_index : begin_index + model.traits.window]):
                pass
        took.put((time.monotonic() - begin, time.process_time() - used))

    asyncio.run(work())


def measure_processes(documents: int) -> tuple[dict[int, float], float]:
    """Return the rates of one and two processes without Ray and the engine, and the CPU seconds of one."""
    context = multiprocessing.get_context("spawn")
    rates, cpu_s = {}, 0.0
    for processes in (1, 2):
        start, took = context.Barrier(processes), context.Queue()
        started = [
            context.Process(target=answer_share, args=(documents, share, processes, start, took))
            for share in range(processes)
        ]
        for process in started:
            process.start()
        times = [took.get() for _ in started]
        for process in started:
            process.join()
        seconds = max(wall for wall, _ in times)
        rates[processes], cpu_s = documents / seconds, cpu_s or times[0][1]
        print(f"| {processes} (no Ray) | | {seconds:.2f} | {rates[processes]:.1f} | |", flush=True)
    return rates, cpu_s


def measure_driver(folder: Path, requests: int, replicas: int, report: Report) -> None:
    print(f"\n{replicas} instant replicas; load {os.getloadavg()[0]:.1f}\n")
    print(
        "| task | requests | start, s | requests, s | requests/s | driver CPU per request | whole run, s |\n|---|---|---|---|---|---|---|"
    )
    config = ReplicaConfig(replicas=replicas, resources={"cpu": 0})
    for name, details, each in (("multiple choice", CHOICE, 4), ("generate", GENERATE, 1)):
        task = write_task(folder, name.replace(" ", "_"), requests // each, details)
        model, whole = run_model(InstantModel, config, task, folder)
        rate, cost = model.rate, model.cpu_s / model.answered
        print(
            f"| {name} | {model.answered} | {model.starting_s:.1f} | {model.seconds:.1f} | {rate:.0f} | {cost * 1e6:.0f} µs | {whole:.1f} |",
            flush=True,
        )
        report.add(
            Measurement(
                what=f"driver with {replicas} instant replicas, {name}, {model.answered:,} requests", ours=rate,
                unit="requests/s", more_is_better=True, goal=Goal(least=5000),
                details={"start, s": model.starting_s, "driver CPU µs per request": cost * 1e6},
            )
        )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["scaling", "device", "driver"])
    parser.add_argument("--documents", type=int, default=1500)
    parser.add_argument("--repeat", type=int, default=3, help="runs of the embedded model")
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--replicas", type=int, default=64)
    add_json_option(parser)
    arguments = parser.parse_args()
    found = Report(arguments.json)
    with tempfile.TemporaryDirectory() as place:
        os.environ["ASSAY_HOME"] = place
        if "scaling" in arguments.parts:
            measure_scaling(Path(place), arguments.documents, arguments.repeat, found)
        if "device" in arguments.parts:
            measure_device(Path(place), arguments.documents, found)
        if "driver" in arguments.parts:
            measure_driver(Path(place), arguments.requests, arguments.replicas, found)
