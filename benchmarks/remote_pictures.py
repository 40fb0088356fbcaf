"""Measure how sending images to a server affects the event loop and memory. Started by `remote_models.py`.

python benchmarks/remote_pictures.py URL COUNT CONCURRENCY
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from remote_peers import read_cpu_s

ANSWER = "The answer is 42."


def measure_images(url: str, count: int, concurrency: int) -> dict[str, Any]:
    """Measure the event loop delay and memory while images of 512 x 512 are encoded and sent.

    The delay grows with the load of the machine; the CPU time of the longest step of the loop does not.
    """
    import assay
    from assay.models import make_model

    model: Any = make_model(
        "openai", {"model": "latency", "base_url": url, "num_concurrent": concurrency, "probe": False}
    )
    delays: list[float] = []
    open_model = model.open

    async def record_delays() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.005)
            delays.append(time.perf_counter() - began - 0.005)

    tasks: list[Any] = []
    longest_s = 0.0
    step = asyncio.Handle._run

    def run_timed(handle: asyncio.Handle) -> None:
        nonlocal longest_s
        began = time.thread_time()
        step(handle)
        longest_s = max(longest_s, time.thread_time() - began)

    async def open_() -> None:
        await open_model()
        tasks.append(asyncio.ensure_future(record_delays()))
        asyncio.Handle._run = run_timed  # type: ignore[method-assign]

    model.open = open_
    close_model = model.close

    async def close() -> None:
        asyncio.Handle._run = step  # type: ignore[method-assign]
        for task in tasks:
            task.cancel()
        await close_model()

    model.close = close
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ASSAY_HOME"] = str(Path(folder) / "home")
        task = _write_task(Path(folder), count)
        before, used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, read_cpu_s()
        began = time.perf_counter()
        assay.run(model=model, tasks=[str(task)], output_path=str(Path(folder) / "out"), media_memory_mb=64)
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    delays.sort()
    return {
        "rate": count / seconds,
        "cpu_ms": 1000 * (read_cpu_s() - used) / count,
        "grown_mb": (peak - before) / 1024,
        "peak_mb": peak / 1024,
        "late_ms": 1000 * delays[len(delays) // 2],
        "latest_ms": 1000 * delays[-1],
        "step_ms": 1000 * longest_s,
    }


def _write_task(folder: Path, count: int) -> Path:
    import numpy
    from PIL import Image

    generator = numpy.random.default_rng(1)
    for number in range(count):
        coarse = generator.integers(0, 255, (32, 32, 3), dtype=numpy.uint8)
        Image.fromarray(coarse).resize((512, 512), Image.Resampling.BICUBIC).save(
            folder / f"{number}.png", compress_level=1
        )
    rows = [{"picture": str(folder / f"{number}.png"), "answer": ANSWER} for number in range(count)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (folder / "utils.py").write_text(
        "def doc_to_visual(doc):\n    return [doc['picture']]\n\ndef doc_to_text(doc):\n    return 'What is it?'\n",
        "utf-8",
    )
    (folder / "pictures.yaml").write_text(
        "task: pictures\ndataset_path: json\ndataset_kwargs: {data_files: {test: rows.jsonl}}\ntest_split: test\n"
        "output_type: generate_until\ndoc_to_visual: !function utils.doc_to_visual\ndoc_to_text: !function utils.doc_to_text\n"
        "doc_to_target: answer\ngeneration_kwargs: {max_new_tokens: 16}\nmetric_list: [{metric: exact_match}]\n",
        "utf-8",
    )
    return folder / "pictures.yaml"


if __name__ == "__main__":
    print(json.dumps(measure_images(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
