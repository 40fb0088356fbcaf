"""Compares two ways to run a task's own code: in the main thread of the run, and in a host process.

    python benchmarks/prototypes/user_code_host.py [--documents 20000]

The host process is a prototype: one child that loads the task, judges batches of documents and is fed through a pipe. Prints the
time per document of both ways for a text task, the time to move one image across the pipe, and the start-up time of the host.
docs/design/decisions.md, decision 15, uses these numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from assay import Response, plan
from assay.core.progress import TaskProgress
from assay.engine.judging.documents import judge_documents
from assay.engine.judging.worker import JudgeJob, deserialize, run_judge_job, serialize
from assay.engine.open_document import OpenDocument
from assay.engine.planning.records import Plan, PlannedTask
from assay.engine.running.document_reader import CHUNK_SIZE, read_chunks
from assay.user_code.event_loop import run_with_user_code
from assay.user_code.executor import Executor
from assay.user_code.random_state import TaskRandomState

TASK = """
task: measured
dataset_path: json
dataset_kwargs: {data_files: {test: rows.jsonl}}
test_split: test
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
process_results: !function helpers.score
metric_list: [{metric: exact, aggregation: mean, higher_is_better: true}]
"""
HELPERS = "def score(doc, results): return {'exact': float(results[0] == doc['answer'])}\n"
QUESTION = "A train leaves the station with some passengers. " * 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--documents", type=int, default=20_000)
    documents = parser.parse_args().documents
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ASSAY_HOME"] = folder
        write_task(Path(folder), documents)
        started = time.perf_counter()
        prepared = plan(model="dummy", tasks=[f"{folder}/measured.yaml"], output_path=folder)
        planned = prepared.tasks["measured"]
        chunks = read_answered_chunks(prepared, planned)
        host = Host()
        job = build_job(prepared, planned, chunks[0][:1])
        host.judge(job)
        print(f"host process: {time.perf_counter() - host.started:.2f} s from start to the first verdict")
        print(f"(the plan itself took {host.started - started:.2f} s)")
        here = measure(lambda: judge_in_main_thread(planned, chunks), documents)
        there = measure(lambda: judge_in_host(prepared, planned, chunks, host), documents)
        host.close()
        print(f"judging in the main thread: {here:7.1f} µs per document")
        print(f"judging in a host process:  {there:7.1f} µs per document ({there / here:.1f} times)")
        print(f"moving a 1024x768 image:    {measure_image():7.1f} µs")


def write_task(folder: Path, documents: int) -> None:
    (folder / "measured.yaml").write_text(TASK)
    (folder / "helpers.py").write_text(HELPERS)
    rows = ({"question": f"{index} {QUESTION}", "answer": str(index)} for index in range(documents))
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))


def read_answered_chunks(prepared: Plan, planned: PlannedTask) -> list[list[OpenDocument]]:
    counters = TaskProgress("measured", planned.documents)
    chunks = list(read_chunks(prepared, planned, frozenset(), counters, lambda _: CHUNK_SIZE, None))
    for chunk in chunks:
        for document in chunk:
            response = Response(request_id=document.requests[0].id, value=str(document.document.index))
            document.outcomes[0], document.missing = response, 0
    return chunks


def build_job(prepared: Plan, planned: PlannedTask, documents: list[OpenDocument]) -> bytes:
    model = prepared.model
    about = {"name": model.name, "abilities": sorted(model.traits.abilities), "identity": {}}
    spec = replace(prepared.spec, workers=1)
    return serialize(
        JudgeJob(
            spec=spec,
            task="measured",
            digest=planned.digest,
            model=about,
            documents=documents,
            panel_members={},
        )
    )


class Host:
    """A child process that judges what comes through a pipe."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=serve, args=(there,), daemon=True)
        self._process.start()

    def judge(self, job: bytes) -> object:
        self._pipe.send_bytes(job)
        return deserialize(self._pipe.recv_bytes())

    def close(self) -> None:
        self._process.kill()


def serve(pipe: Connection) -> None:
    while True:
        pipe.send_bytes(run_judge_job(pipe.recv_bytes()))


def judge_in_main_thread(planned: PlannedTask, chunks: list[list[OpenDocument]]) -> None:
    state = TaskRandomState((0, 1234, 1234, 1234), "measured")

    async def judge_all(executor: Executor) -> None:
        for chunk in chunks:
            await executor.run(lambda chunk=chunk: judge_documents(planned, chunk, random_state=state))  # type: ignore[misc]

    run_with_user_code(judge_all)


def judge_in_host(prepared: Plan, planned: PlannedTask, chunks: list[list[OpenDocument]], host: Host) -> None:
    async def judge_all() -> None:
        for chunk in chunks:
            await asyncio.to_thread(host.judge, build_job(prepared, planned, chunk))

    asyncio.run(judge_all())


def measure(work: Callable[[], None], documents: int) -> float:
    """Return the median of three runs, in microseconds per document."""
    taken = []
    for _ in range(3):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) / documents * 1e6


def measure_image() -> float:
    from PIL import Image

    image = Image.effect_noise((1024, 768), 50).convert("RGB")
    here, there = multiprocessing.Pipe()
    taken = []
    for _ in range(20):
        started = time.perf_counter()
        data = serialize(image)
        sender = threading.Thread(target=there.send_bytes, args=(data,))
        sender.start()
        deserialize(here.recv_bytes())
        taken.append(time.perf_counter() - started)
        sender.join()
    return statistics.median(taken) * 1e6


if __name__ == "__main__":
    sys.exit(main())
