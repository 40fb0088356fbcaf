"""How long statistics take: comparing two large runs, and a bootstrap beside lm_eval's own.

    python benchmarks/comparing.py [--documents 100000] [--bootstrap-documents 10000] [--resamples 100000]

Two runs of a scripted model are made and compared in a fresh process (seconds from start to exit). Then the means of
resamples of 0/1 scores and of continuous ones, in CPU seconds; and lm_eval's `bootstrap_stderr` of the mean of the same values
on fewer resamples, in the same run, scaled to as many.
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

from peers import measure, peer_python

MAKE = """
import json, sys, random
import assay
from assay.testing import ScriptedModel
documents, share, folder = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
draw = random.Random(share)
right = [draw.random() < share for _ in range(documents)]
model = ScriptedModel(lambda request: "yes" if right[request.document] else "no")
run = assay.run(model=model, tasks=["big.yaml"], no_cache=True, output_path=folder, log_samples=False)
print(json.dumps({"folder": str(run.folder)}))
"""
TASK = """
task: big
dataset_path: json
dataset_kwargs: {data_files: {test: big.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: answer
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
OURS = """
import json, sys, time
import numpy as np
from assay.stats.resampling import bootstrap_means
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
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compare(folder, options.documents)
        bootstrap(folder, options.bootstrap_documents, options.resamples)


def compare(folder: Path, documents: int) -> None:
    (folder / "big.yaml").write_text(TASK)
    rows = (
        json.dumps({"question": f"Is {n} a number, and {n + 1}?", "answer": "yes"}) for n in range(documents)
    )
    (folder / "big.jsonl").write_text("\n".join(rows) + "\n")
    runs = [
        measure(sys.executable, MAKE, str(documents), share, f"out-{share}", cwd=folder)["folder"]
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


def bootstrap(folder: Path, documents: int, resamples: int) -> None:
    fewer = max(resamples // 100, 1000)
    theirs = measure(peer_python("lm_eval"), THEIRS, str(documents), str(fewer), cwd=folder)
    ours = measure(sys.executable, OURS, str(documents), str(resamples), cwd=folder)
    for kind in ("0/1", "continuous"):
        seconds, error = ours[kind]
        scaled = theirs[kind][0] * resamples / fewer
        print(
            f"bootstrap of a mean, {kind}: {documents} documents, {resamples} resamples: assay {seconds:.2f} s"
            f" (error {error:.6f}); lm_eval {theirs[kind][0]:.1f} s for {fewer} (error {theirs[kind][1]:.6f}),"
            f" so {scaled:.0f} s: {scaled / seconds:.0f}x"
        )


if __name__ == "__main__":
    main()
