"""Measure the statistics: a comparison of two large runs, and a bootstrap compared with lm_eval.

    python benchmarks/comparing.py [--documents 100000] [--bootstrap-documents 10000] [--resamples 100000]

Creates two runs of a scripted model and compares them in a new process (seconds from start to exit). Then measures the CPU
time of bootstrapping the mean of 0/1 scores and of continuous scores. lm_eval's `bootstrap_stderr` gets the same values and
fewer resamples; its time is scaled up.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from instant import FOLDER, write_task
from measurements import Goal, Measurement, Report, add_json_option
from peers import measure_script, require_peer

MAKE = """
import json, sys
import assay
task, share, folder, benchmarks = sys.argv[1:]
sys.path.insert(0, benchmarks)
from instant import make_model_with_accuracy
run = assay.run(model=make_model_with_accuracy(share, float(share)), tasks=[task], no_cache=True, output_path=folder, log_samples=False)
print(json.dumps({"folder": str(run.folder)}))
"""
OURS = """
import json, sys, time
import numpy as np
from assay.stats.intervals.resampling import bootstrap_means
documents, resamples = int(sys.argv[1]), int(sys.argv[2])
draw = np.random.default_rng(1)
found = {}
for name, values in (("0/1", (draw.random(documents) < 0.7) * 1.0), ("continuous", draw.random(documents))):
    started = time.process_time()
    error = float(bootstrap_means(values, resamples).std(ddof=1))
    found[name] = [time.process_time() - started, error]
print(json.dumps(found))
"""
THEIRS = """
import json, os, sys, time
os.environ["DISABLE_MULTIPROC"] = "1"
import logging; logging.disable(50)
import numpy as np
from lm_eval.api import metrics
documents, resamples = int(sys.argv[1]), int(sys.argv[2])
draw = np.random.default_rng(1)
found = {}
for name, values in (("0/1", (draw.random(documents) < 0.7) * 1.0), ("continuous", draw.random(documents))):
    values = values.tolist()
    started = time.process_time()
    error = metrics.bootstrap_stderr(metrics.mean, values, iters=resamples)
    found[name] = [time.process_time() - started, float(error)]
print(json.dumps(found))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--bootstrap-documents", type=int, default=10_000)
    parser.add_argument("--resamples", type=int, default=100_000)
    add_json_option(parser)
    options = parser.parse_args()
    report = Report(options.json)
    print(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure_compare(folder, options.documents, report)
        measure_bootstrap(folder, options.bootstrap_documents, options.resamples, report)


def measure_compare(folder: Path, documents: int, report: Report) -> None:
    rows = ({"question": f"Which number comes before {n + 1}?", "answer": str(n)} for n in range(documents))
    task = str(write_task(folder, "big", rows))
    runs = [
        measure_script(sys.executable, MAKE, task, share, f"out-{share}", FOLDER, cwd=folder)["folder"]
        for share in ("0.70", "0.71")
    ]
    command = [sys.executable, "-m", "assay", "compare", *runs, "--json"]
    started, before = time.perf_counter(), os.times()
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    seconds, after = time.perf_counter() - started, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    row = json.loads(result.stdout)[0]["rows"][0]
    print(
        f"compare: 2 runs of {row['documents']} documents, {seconds:.2f} s ({cpu:.2f} s CPU), difference {row['difference']:+.4f}"
    )
    what = f"`assay compare`, 2 runs of {documents:,} documents"
    details = {"CPU s": cpu}
    report.add(Measurement(what=what, ours=seconds, unit="s", goal=Goal(most=3), details=details))


def measure_bootstrap(folder: Path, documents: int, resamples: int, report: Report) -> None:
    fewer = max(resamples // 100, 1000)
    theirs = measure_script(require_peer("lm_eval"), THEIRS, str(documents), str(fewer), cwd=folder)
    ours = measure_script(sys.executable, OURS, str(documents), str(resamples), cwd=folder)
    for kind in ("0/1", "continuous"):
        seconds, error = ours[kind]
        scaled = theirs[kind][0] * resamples / fewer
        print(
            f"bootstrap of a mean, {kind}: {documents} documents, {resamples} resamples: assay {seconds:.2f} s"
            f" (error {error:.6f}); lm_eval {theirs[kind][0]:.1f} s for {fewer} (error {theirs[kind][1]:.6f}),"
            f" so {scaled:.0f} s: {scaled / seconds:.0f}x"
        )
        report.add(
            Measurement(
                what=f"bootstrap of a mean, {kind}, {resamples:,} resamples", ours=seconds,
                peer=scaled, against="lm_eval, scaled", unit="CPU s", goal=Goal(most=2),
                details={"documents": documents, "resamples of lm_eval": fewer, "error": f"{error:.6f}", "error of lm_eval": f"{theirs[kind][1]:.6f}"},
            )
        )  # fmt: skip


if __name__ == "__main__":
    main()
