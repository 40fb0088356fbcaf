"""Pictures on their way to a server: what they cost the event loop and the memory. Started by `remote_models.py`.

python benchmarks/remote_pictures.py URL COUNT AT_ONCE
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

from remote_peers import cpu_s

ANSWER = "The answer is 42."


def measure_images(url: str, count: int, at_once: int) -> dict[str, Any]:
    """Pictures of 512 x 512: how late the event loop is while they are encoded, and what memory they take.

    Lateness on the clock grows with whatever else the machine does; the longest step of the loop in CPU time does not.
    """
    import assay
    from assay.models import make_model

    model: Any = make_model(
        "openai", {"model": "latency", "base_url": url, "num_concurrent": at_once, "probe": False}
    )
    late: list[float] = []
    opened = model.open

    async def watch() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.005)
            late.append(time.perf_counter() - began - 0.005)

    tasks: list[Any] = []
    longest_s = 0.0
    step = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        nonlocal longest_s
        began = time.thread_time()
        step(handle)
        longest_s = max(longest_s, time.thread_time() - began)

    async def open_() -> None:
        await opened()
        tasks.append(asyncio.ensure_future(watch()))
        asyncio.Handle._run = timed  # type: ignore[method-assign]

    model.open = open_
    closed = model.close

    async def close() -> None:
        asyncio.Handle._run = step  # type: ignore[method-assign]
        for task in tasks:
            task.cancel()
        await closed()

    model.close = close
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ASSAY_HOME"] = str(Path(folder) / "home")
        task = _write_pictures(Path(folder), count)
        before, used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, cpu_s()
        began = time.perf_counter()
        assay.run(model=model, tasks=[str(task)], output_path=str(Path(folder) / "out"), media_memory_mb=64)
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    late.sort()
    return {
        "rate": count / seconds,
        "cpu_ms": 1000 * (cpu_s() - used) / count,
        "grown_mb": (peak - before) / 1024,
        "peak_mb": peak / 1024,
        "late_ms": 1000 * late[len(late) // 2],
        "latest_ms": 1000 * late[-1],
        "step_ms": 1000 * longest_s,
    }


def _write_pictures(folder: Path, count: int) -> Path:
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
        "def look(doc):\n    return [doc['picture']]\n\ndef ask(doc):\n    return 'What is it?'\n", "utf-8"
    )
    (folder / "pictures.yaml").write_text(
        "task: pictures\ndataset_path: json\ndataset_kwargs: {data_files: {test: rows.jsonl}}\ntest_split: test\n"
        "output_type: generate_until\ndoc_to_visual: !function utils.look\ndoc_to_text: !function utils.ask\n"
        "doc_to_target: answer\ngeneration_kwargs: {max_new_tokens: 16}\nmetric_list: [{metric: exact_match}]\n",
        "utf-8",
    )
    return folder / "pictures.yaml"


if __name__ == "__main__":
    print(json.dumps(measure_images(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
