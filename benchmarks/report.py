"""How long a report takes, and how much memory: one file of a run of many documents.

    python benchmarks/report.py [--documents 100000] [--runs 2]

Makes runs of an instant model (once, in a folder that is kept with --keep), then times `assay report` and `assay table` in
processes of their own.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 16}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""

MAKE = """
import random, sys
import assay
from assay import Response, Traits

class Instant:
    def __init__(self, name, skill): self.name, self.skill = name, skill
    traits = Traits(abilities=frozenset(("generate",)), window=1024)
    async def identify(self): return {"name": self.name}
    async def open(self): pass
    async def close(self): pass
    async def answer(self, window):
        for request in window:
            right = random.Random(f"{request.document} {self.name}").random() < self.skill
            yield Response(request_id=request.id, value=str(request.document + (0 if right else 1)), finish="stop")

task, folder, count = sys.argv[1:]
for number in range(int(count)):
    model = Instant(f"instant-{number}", 0.5 + 0.02 * number)
    run = assay.run(model=model, tasks=[task], output_path=folder, no_cache=True, log_samples=False)
    print(run.folder)
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--keep", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.keep or temporary)
        folders = make(folder, options.documents, options.runs)
        rows = [
            ("assay report, one run", ["report", folders[0], "-o", str(folder / "one.html")]),
            ("assay report, all runs", ["report", *folders, "-o", str(folder / "all.html")]),
            ("assay table, all runs", ["table", *folders]),
        ]
        print(f"{options.documents:,} documents a run, {options.runs} runs; load {os.getloadavg()[0]:.1f}\n")
        print("| | CPU s | wall s | peak MB | file MB |\n|---|---|---|---|---|")
        for name, words in rows:
            cpu, wall, peak = measured([sys.executable, "-m", "assay", *words])
            size = f"{Path(words[-1]).stat().st_size / 1e6:.1f}" if words[0] == "report" else ""
            print(f"| {name} | {cpu:.1f} | {wall:.1f} | {peak:.0f} | {size} |")


def make(folder: Path, documents: int, runs: int) -> list[str]:
    """Runs in a folder; those that are there are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"numbers{documents}"
    data, task = folder / f"{name}.jsonl", folder / f"{name}.yaml"
    with data.open("w") as file:
        for number in range(documents):
            kind = ("arithmetic", "algebra", "geometry", "logic", "words")[number % 5]
            question = f"Which number comes after {number - 1} and before {number + 1}?"
            file.write(f'{{"question": "{question}", "answer": "{number}", "category": "{kind}"}}\n')
    task.write_text(TASK.format(name=name, data=data))
    command = [sys.executable, "-c", MAKE, str(task), str(folder / "runs"), str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.split()


def measured(command: list[str]) -> tuple[float, float, float]:
    """CPU seconds, wall seconds and peak MB of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    script = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL,"
        " stderr=subprocess.DEVNULL); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command], capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.perf_counter() - start, int(done.stdout) / 1024


if __name__ == "__main__":
    main()
