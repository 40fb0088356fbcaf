"""Measure video decoding beside decord, memory use over many clips, and how much of the decoding the model hides.

    python benchmarks/videos.py [--seconds 60] [--few 100] [--many 1000] [--model_ms 40]

decode   frames of one H.264 clip, in CPU seconds, and whether decord returns the same pixels
memory   a task with `--few` and with `--many` clips of two seconds: the peak of the private memory
hidden   the same runs: the share of the decoding that happens while the model works on other clips

The model of the runs takes `--model_ms` per clip and reads eight frames of each.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from measurements import Goal, Measurement, Report, add_json_option
from peers import find_peer
from pictures import MemorySampler

from assay import Response, Traits
from assay.media import frames
from assay.media.media_files import open_media_file
from assay.media.video import FrameSelection, extract_frames, spread_evenly

HELPER = 'def doc_to_visual(doc):\n    return [doc["video"]]\n'
TASK = """
task: videos
dataset_path: json
dataset_kwargs: {data_files: {test: test.jsonl}}
test_split: test
output_type: generate_until
doc_to_visual: !function utils.doc_to_visual
doc_to_text: "Clip {{number}}. What moves?"
doc_to_target: "7"
generation_kwargs: {until: ["\\n"], max_gen_toks: 1}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
DECORD = """
import hashlib, json, sys, time
import decord
path, numbers = sys.argv[1], json.loads(sys.argv[2])
def decode():
    return decord.VideoReader(path, ctx=decord.cpu(0), num_threads=1).get_batch(numbers).asnumpy()
decode()
seconds = []
for _ in range(5):
    started = time.process_time()
    pixels = decode()
    seconds.append(time.process_time() - started)
print(json.dumps({"cpu_s": min(seconds), "digest": hashlib.sha256(pixels.tobytes()).hexdigest()}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--few", type=int, default=100)
    parser.add_argument("--many", type=int, default=1000)
    parser.add_argument("--model_ms", type=float, default=40.0)
    parser.add_argument("--child", nargs=2, metavar=("TASK", "LIMIT"), help=argparse.SUPPRESS)
    add_json_option(parser)
    given = parser.parse_args()
    if given.child:
        run_child(given.child[0], int(given.child[1]), given.model_ms / 1000)
        return
    report = Report(given.json)
    with tempfile.TemporaryDirectory(prefix="assay-videos-") as folder:
        clip = write_clip(Path(folder) / "clip.mp4", given.seconds, (640, 360))
        print("| frames | CPU s | decord CPU s | same pixels |\n|---|---|---|---|")
        for count in (8, 32):
            compare_decoding(clip, given.seconds * RATE, count, report)
        task = write_task(Path(folder) / "task", given.many)
        measure_runs(task, (given.few, given.many), given.model_ms, report)


RATE = 30


def write_clip(path: Path, seconds: int, size: tuple[int, int]) -> Path:
    """Write a clip with moving blocks, with the key frames and B-frames that x264 chooses."""
    import av
    import numpy as np

    width, height = size
    blocks = np.random.default_rng(0).integers(0, 255, (height // 8, width // 8, 3), dtype=np.uint8)
    picture = np.kron(blocks, np.ones((8, 8, 1), np.uint8))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=RATE, options={"preset": "veryfast"})
        stream.width, stream.height, stream.pix_fmt = picture.shape[1], picture.shape[0], "yuv420p"
        for number in range(seconds * RATE):
            moved = np.ascontiguousarray(np.roll(picture, 2 * number, axis=1))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(moved, format="rgb24")))
        container.mux(stream.encode(None))
    return path


def compare_decoding(clip: Path, total: int, count: int, report: Report) -> None:
    source, selection, seconds = open_media_file(clip), FrameSelection(count=count), []
    for _ in range(5):
        started = time.process_time()
        found = extract_frames(source, selection)
        seconds.append(time.process_time() - started)
    digest = hashlib.sha256(b"".join(one.tobytes() for one in found.frames)).hexdigest()
    peer: dict[str, Any] = {}
    if (python := find_peer("packages")) is not None:
        command = [str(python), "-c", DECORD, str(clip), json.dumps(spread_evenly(total, count))]
        peer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    same = "" if not peer else "yes" if peer["digest"] == digest else "no"
    print(f"| {count} | {min(seconds):.3f} | {peer.get('cpu_s', 0):.3f} | {same} |", flush=True)
    report.add(
        Measurement(
            what=f"{count} frames of a clip of {total // RATE} s", ours=min(seconds), unit="CPU s",
            peer=peer.get("cpu_s"), against="decord" if peer else "", goal=Goal(of="ratio", least=1.0),
            details={"same pixels": same},
        )
    )  # fmt: skip


def write_task(folder: Path, count: int) -> Path:
    """Write a task over clips with equal pixels and different bytes."""
    folder.mkdir()
    data = write_clip(folder / "clip.mp4", 2, (320, 176)).read_bytes()
    rows = []
    for number in range(count):
        path = folder / f"{number}.mp4"
        path.write_bytes(data + number.to_bytes(8, "big"))
        rows.append(json.dumps({"number": number, "video": str(path)}) + "\n")
    (folder / "test.jsonl").write_text("".join(rows), "utf-8")
    (folder / "utils.py").write_text(HELPER, "utf-8")
    (folder / "videos.yaml").write_text(TASK, "utf-8")
    return folder / "videos.yaml"


def measure_runs(task: Path, counts: tuple[int, int], model_ms: float, report: Report) -> None:
    print("\n| clips | private peak MB | clips/s | decoding hidden |\n|---|---|---|---|")
    peaks = []
    for count in counts:
        command = [sys.executable, __file__, "--child", str(task), str(count), "--model_ms", str(model_ms)]
        with tempfile.TemporaryDirectory(prefix="assay-videos-run-") as home:
            environment = {**os.environ, "ASSAY_HOME": home}
            done = subprocess.run(
                command, cwd=home, env=environment, capture_output=True, text=True, check=False
            )
        if done.returncode:
            raise SystemExit(done.stderr)
        result = json.loads(done.stdout.splitlines()[-1])
        peaks.append(result["own_mb"])
        hidden = 1 - result["waited_s"] / result["decoding_s"]
        rate = count / result["seconds"]
        print(f"| {count:,} | {result['own_mb']:.0f} | {rate:.0f} | {hidden:.0%} |", flush=True)
        what = f"{count:,} clips, a model of {model_ms:g} ms per clip: decoding hidden behind the model"
        details = {"clips/s": rate, "private MB": round(result["own_mb"])}
        report.add(
            Measurement(
                what=what,
                ours=hidden,
                unit="of 1",
                more_is_better=True,
                goal=Goal(least=0.9),
                details=details,
            )
        )
    what = f"memory of {counts[1]:,} clips relative to {counts[0]:,}"
    report.add(Measurement(what=what, ours=peaks[1] / peaks[0], unit="times", goal=Goal(most=1.2)))


class VideoModel:
    """Reads eight frames of each clip and takes a fixed time. Frames are decoded ahead by `prepare`."""

    name = "video"
    traits = Traits(abilities=frozenset(("generate", "chat", "video")), window=16)

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.decoding_s = self.waited_s = 0.0

    async def identify(self) -> Mapping[str, str]:
        return {"name": self.name}

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def prepare(self, part: Any) -> Any:
        """Decode a clip; the engine calls this ahead of `answer`."""
        started = time.perf_counter()
        clip = frames(part, count=8)
        self.decoding_s += time.perf_counter() - started
        return clip.frames

    async def answer(self, window: Sequence[Any]) -> AsyncIterator[Response]:
        for request in window:
            await asyncio.to_thread(self._read, request.prompt.media)
            await asyncio.sleep(self._seconds)
            yield Response(request_id=request.id, value="7")

    def _read(self, media: Sequence[Any]) -> None:
        started = time.perf_counter()
        for part in media:
            frames(part, count=8)
        self.waited_s += time.perf_counter() - started


def run_child(task: str, limit: int, seconds_each: float) -> None:
    import av  # noqa: F401 - not a part of decoding the first clip; other models import it while they open
    import PIL.Image  # noqa: F401

    import assay

    sampler, model, started = MemorySampler(), VideoModel(seconds_each), time.monotonic()
    finished = assay.run(model=model, tasks=[task], limit=limit, no_cache=True, media_memory_mb=64)
    seconds = time.monotonic() - started
    if (outcomes := finished.outcomes("videos")) != {"scored": limit}:
        raise SystemExit(f"not every clip was scored: {outcomes}")
    found = {"own_mb": sampler.stop() / 1024, "seconds": seconds}
    print(json.dumps({**found, "waited_s": model.waited_s, "decoding_s": model.decoding_s}))


if __name__ == "__main__":
    main()
