"""Memory over many pictures: does it stay flat from 1,000 to 10,000, and how fast do they go by?

    python benchmarks/pictures.py [--few 1000] [--many 10000] [--size 800x600] [--embedded]

Writes pictures (half JPEG, half PNG), and runs tasks over them in processes of their own, with a model that decodes each:

    files     a column of paths; the part decodes its file when the model looks
    columns   a column of the `datasets` library, `doc["image"].convert("RGB")` as task helpers of lmms-eval do it

Prints for each the peak of the memory that is the process's own (without pages of mapped files, which the system takes
back when it likes), the peak with them, and pictures per second. `--embedded` asks the embedded model, which looks at every
picture, instead of a scripted one that only loads it.
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
            kind: write(Path(folder) / kind, kind, given.many, (width, height))
            for kind in ("files", "columns")
        }
        report = Report(given.json)
        print("| pictures from | pictures | own peak MB | peak MB with mapped files | pictures/s |")
        print("|---|---|---|---|---|")
        for kind, task in tasks.items():
            measure(task, min(10, given.few), embedded=given.embedded)  # the library writes its cache once
            peaks = []
            for count in (given.few, given.many):
                seen = measure(task, count, embedded=given.embedded)
                peaks.append(seen["own_mb"])
                print(
                    f"| {kind} | {count:,} | {seen['own_mb']:.0f} | {seen['peak_mb']:.0f} |"
                    f" {count / seen['seconds']:.0f} |",
                    flush=True,
                )
                what = f"pictures of {given.size} from {kind}, {count:,}: memory of its own"
                rest = {"pictures/s": count / seen["seconds"], "MB with mapped files": round(seen["peak_mb"])}
                report.add(Measurement(what=what, ours=seen["own_mb"], unit="MB", details=rest))
            report.add(
                Measurement(
                    what=f"from {kind}: memory of {given.many:,} pictures against {given.few:,}",
                    ours=peaks[1] / peaks[0], unit="times", goal=Goal(most=1.5),
                )
            )  # fmt: skip


@cache
def picture(number: int, size: tuple[int, int]) -> tuple[bytes, str]:
    """A picture unlike any other, that takes a decoder some work."""
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


def write(folder: Path, kind: str, count: int, size: tuple[int, int]) -> Path:
    """The pictures and a task over them. Only the first 500 differ in their pixels, all in their names and bytes."""
    (folder / "data").mkdir(parents=True)
    rows = []
    for number in range(count):
        data, suffix = picture(number % 500, size)
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

    watch = Watch()
    started = time.monotonic()
    model = "embedded" if embedded else ScriptedModel(lambda asked: "red", window=64)
    finished = assay.run(model=model, tasks=[task], limit=limit, no_cache=True)
    seconds = time.monotonic() - started
    outcomes = finished.outcomes("pictures")
    if outcomes != {"scored": limit}:
        raise SystemExit(f"not every picture was seen: {outcomes}")
    print(json.dumps({"own_mb": watch.stop() / 1024, "peak_mb": status("VmHWM") / 1024, "seconds": seconds}))


class Watch:
    """The peak of the memory that is the process's own, looked at twenty times a second."""

    def __init__(self) -> None:
        self.peak = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self) -> None:
        while not self.ended.wait(0.05):
            self.peak = max(self.peak, status("RssAnon"))

    def stop(self) -> int:
        self.ended.set()
        self.thread.join()
        return self.peak


def status(name: str) -> int:
    """A line of /proc/self/status, in kB."""
    text = Path("/proc/self/status").read_text("utf-8")
    return int(text.partition(f"{name}:")[2].split()[0])


if __name__ == "__main__":
    main()
