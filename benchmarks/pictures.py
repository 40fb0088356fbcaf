"""Measure memory use and throughput of tasks with many images.

    python benchmarks/pictures.py [--few 1000] [--many 10000] [--size 800x600] [--embedded]

Writes images (half JPEG, half PNG) and runs tasks over them in separate processes, with a model that decodes each image:

    files     a column of paths; the file is decoded when the model reads the image
    columns   an image column of the `datasets` library, read with `doc["image"].convert("RGB")` as task helpers of lmms-eval do

Prints the peak of the private memory (without mapped files, which the system can reclaim), the peak with mapped files, and
images per second. `--embedded` uses the embedded model, which processes every image, instead of a scripted model that only
decodes it.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path

from measurements import Goal, Measurement, Report, add_json_option

BY_PATH = 'def doc_to_visual(doc):\n    return [doc["image"]]\n'
BY_COLUMN = 'def doc_to_visual(doc):\n    return [doc["image"].convert("RGB")]\n'
TASK = """
task: pictures
dataset_path: {path}
dataset_kwargs: {kwargs}
test_split: test
output_type: generate_until
doc_to_visual: !function utils.doc_to_visual
doc_to_text: "Picture {{{{number}}}}. What color is it?"
doc_to_target: "{{{{number}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 1}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--few", type=int, default=1000)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--size", default="800x600")
    parser.add_argument("--embedded", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("TASK", "LIMIT"), help=argparse.SUPPRESS)
    add_json_option(parser)
    given = parser.parse_args()
    if given.child:
        run_child(given.child[0], int(given.child[1]), embedded=given.embedded)
        return
    width, height = (int(part) for part in given.size.split("x"))
    with tempfile.TemporaryDirectory(prefix="assay-pictures-") as folder:
        tasks = {
            kind: write_task(Path(folder) / kind, kind, given.many, (width, height))
            for kind in ("files", "columns")
        }
        report = Report(given.json)
        print("| images from | images | private peak MB | peak MB with mapped files | images/s |")
        print("|---|---|---|---|---|")
        for kind, task in tasks.items():
            measure(
                task, min(10, given.few), embedded=given.embedded
            )  # fills the cache of the datasets library
            peaks = []
            for count in (given.few, given.many):
                result = measure(task, count, embedded=given.embedded)
                peaks.append(result["own_mb"])
                print(
                    f"| {kind} | {count:,} | {result['own_mb']:.0f} | {result['peak_mb']:.0f} |"
                    f" {count / result['seconds']:.0f} |",
                    flush=True,
                )
                what = f"{count:,} images of {given.size} from {kind}: private memory"
                rest = {
                    "pictures/s": count / result["seconds"],
                    "MB with mapped files": round(result["peak_mb"]),
                }
                report.add(Measurement(what=what, ours=result["own_mb"], unit="MB", details=rest))
            report.add(
                Measurement(
                    what=f"from {kind}: memory of {given.many:,} images relative to {given.few:,}",
                    ours=peaks[1] / peaks[0], unit="times", goal=Goal(most=1.5),
                )
            )  # fmt: skip


@cache
def make_image(number: int, size: tuple[int, int]) -> tuple[bytes, str]:
    """Return a unique image that takes some work to decode, and its format."""
    import numpy as np
    from PIL import Image

    width, height = size
    across, down = np.meshgrid(np.arange(width), np.arange(height))
    wave = np.sin(across / (7 + number % 31)) * np.cos(down / (5 + number % 17)) * 100 + 128
    pixels = np.stack([wave, np.roll(wave, number % width, 1), 255 - wave], axis=-1).astype(np.uint8)
    kind = "PNG" if number % 2 else "JPEG"
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(
        buffer, kind, **({"compress_level": 1} if kind == "PNG" else {"quality": 80})
    )
    return buffer.getvalue(), kind.lower()


def write_task(folder: Path, kind: str, count: int, size: tuple[int, int]) -> Path:
    """Write the images and a task. Only the first 500 have different pixels; all have different names and bytes."""
    (folder / "data").mkdir(parents=True)
    rows = []
    for number in range(count):
        data, suffix = make_image(number % 500, size)
        data += number.to_bytes(4, "big") if kind == "files" else b""
        path = folder / "data" / f"{number}.{suffix}"
        if kind == "files":
            path.write_bytes(data)
            rows.append({"number": number, "image": str(path)})
        else:
            rows.append({"number": number, "image": {"bytes": data, "path": None}})
            if len(rows) == 1000:
                write_parquet(folder, rows, number // 1000)
                rows = []
    if kind == "files":
        (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        text = TASK.format(path="json", kwargs="{data_files: {test: test.jsonl}}")
    else:
        if rows:
            write_parquet(folder, rows, count // 1000)
        files = json.dumps({"data_files": {"test": str(folder / "data" / "*.parquet")}})
        text = TASK.format(path="parquet", kwargs=files)
    (folder / "utils.py").write_text(BY_PATH if kind == "files" else BY_COLUMN, "utf-8")
    (folder / "pictures.yaml").write_text(text, "utf-8")
    return folder / "pictures.yaml"


def write_parquet(folder: Path, rows: list[dict[str, object]], part: int) -> None:
    import datasets

    features = datasets.Features({"number": datasets.Value("int64"), "image": datasets.Image()})
    datasets.disable_progress_bars()
    datasets.Dataset.from_list(rows, features=features).to_parquet(
        str(folder / "data" / f"{part:05}.parquet")
    )


def measure(task: Path, count: int, *, embedded: bool) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", str(task), str(count)] + ["--embedded"] * embedded
    with tempfile.TemporaryDirectory(prefix="assay-pictures-run-") as folder:
        home = {"ASSAY_HOME": folder, "HF_DATASETS_CACHE": f"{task.parent}/cache", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, **home}, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def run_child(task: str, limit: int, *, embedded: bool) -> None:
    import assay
    from assay.testing import ScriptedModel

    sampler = MemorySampler()
    started = time.monotonic()
    model = "embedded" if embedded else ScriptedModel(lambda asked: "red", window=64)
    finished = assay.run(model=model, tasks=[task], limit=limit, no_cache=True)
    seconds = time.monotonic() - started
    outcomes = finished.outcomes("pictures")
    if outcomes != {"scored": limit}:
        raise SystemExit(f"not every image was scored: {outcomes}")
    print(
        json.dumps(
            {"own_mb": sampler.stop() / 1024, "peak_mb": read_status("VmHWM") / 1024, "seconds": seconds}
        )
    )


class MemorySampler:
    """Samples the private memory of the process twenty times a second and stores the peak."""

    def __init__(self) -> None:
        self.peak = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)
        self.thread.start()

    def sample(self) -> None:
        while not self.ended.wait(0.05):
            self.peak = max(self.peak, read_status("RssAnon"))

    def stop(self) -> int:
        self.ended.set()
        self.thread.join()
        return self.peak


def read_status(name: str) -> int:
    """Return a value of /proc/self/status in kB."""
    text = Path("/proc/self/status").read_text("utf-8")
    return int(text.partition(f"{name}:")[2].split()[0])


if __name__ == "__main__":
    main()
