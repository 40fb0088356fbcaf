"""Compare the speed and values of bootstrap standard errors with lm_eval 0.4.13.

    python benchmarks/bootstrap.py [--documents 2000] [--iterations 2000] [--metrics f1 bleu]

lm_eval's function (in one process, with `DISABLE_MULTIPROC`) and Assay resample the same values of each metric. Prints CPU
seconds, the ratio, and whether the standard errors agree. With `--bootstrap_draws own`, where Assay uses a different
algorithm, they agree within a few percent.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path

from measurements import Goal, Measurement, Report, add_json_option
from peers import measure_script, require_peer

FACTORS = {"bleu": 0.05, "chrf": 0.05, "perplexity": 10, "median": 10}
"""Multipliers for the number of resamples: more for fast metrics, fewer for slow ones."""

WITHOUT_DRAWING = ("perplexity", "median")
"""Metrics that Assay can bootstrap without drawing every document."""

VALUES = """
import json, random, sys, time
name, documents, iterations = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rnd = random.Random(5)
words = "the cat sat on a mat near old dogs and new tricks".split()
def sentence(): return " ".join(rnd.choices(words, k=8))
values = {
    "perplexity": lambda: [-rnd.random() * 5 for _ in range(documents)],
    "median": lambda: [rnd.random() for _ in range(documents)],
    "f1": lambda: [(rnd.randrange(2), rnd.randrange(2)) for _ in range(documents)],
    "mcc": lambda: [(rnd.randrange(2), rnd.randrange(2)) for _ in range(documents)],
    "bleu": lambda: [([sentence()], sentence()) for _ in range(documents)],
    "chrf": lambda: [([sentence()], sentence()) for _ in range(documents)],
}[name]()
started = time.process_time()
"""
THEIRS = (
    "import os; os.environ['DISABLE_MULTIPROC'] = '1'\nimport logging; logging.disable(50)\nfrom lm_eval.api import metrics\n"
    + VALUES
    + """
function = {"mcc": metrics.matthews_corrcoef, "f1": metrics.f1_score}.get(name) or getattr(metrics, name)
error = metrics.bootstrap_stderr(function, values, iters=iterations)
print(json.dumps({"error": error, "cpu_s": time.process_time() - started}))
"""
)
OURS = (
    "from assay.stats.intervals.standard_errors import compute_standard_error\n"
    + VALUES
    + """
aggregation = {"mcc": "matthews_corrcoef"}.get(name, name)
error, _ = compute_standard_error(aggregation, values, metric="any", iterations=iterations, draws=sys.argv[4])
print(json.dumps({"error": error, "cpu_s": time.process_time() - started}))
"""
)


def report_metric(
    title: str,
    iterations: int,
    theirs: dict[str, float],
    ours: dict[str, float],
    tolerance: float,
    report: Report,
    *,
    same: bool,
) -> None:
    numbers = ("same" if tolerance < 0.01 else f"within {tolerance:.0%}") if same else "DIFFERENT"
    ratio = theirs["cpu_s"] / ours["cpu_s"]
    print(
        f"{title:<22} {iterations:>9} {theirs['cpu_s']:>10.2f} {ours['cpu_s']:>9.3f} {ratio:>7.1f}x  {numbers}"
    )
    report.add(
        Measurement(
            what=f"{title}, {iterations:,} resamples", ours=ours["cpu_s"], peer=theirs["cpu_s"], against="lm_eval",
            unit="CPU s", goal=Goal(of="ratio", least=50), details={"numbers": numbers},
        )
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--metrics", nargs="*", default=["perplexity", "median", "f1", "mcc", "bleu", "chrf"])
    add_json_option(parser)
    options = parser.parse_args()
    report = Report(options.json)
    print(f"{'metric':<22} {'resamples':>9} {'lm_eval s':>10} {'assay s':>9} {'ratio':>8}  numbers")
    different = []
    for name in options.metrics:
        iterations = round(options.iterations * FACTORS.get(name, 1))
        arguments = (name, str(options.documents), str(iterations))
        with tempfile.TemporaryDirectory() as folder:
            theirs = measure_script(require_peer("lm_eval"), THEIRS, *arguments, cwd=Path(folder))
            for draws in ("lm_eval", "own") if name in WITHOUT_DRAWING else ("lm_eval",):
                ours = measure_script(sys.executable, OURS, *arguments, draws, cwd=Path(folder))
                tolerance = 1e-9 if draws == "lm_eval" else 0.05
                same = math.isclose(theirs["error"], ours["error"], rel_tol=tolerance)
                title = name if draws == "lm_eval" else f"{name}, own draws"
                different += [] if same else [title]
                report_metric(title, iterations, theirs, ours, tolerance, report, same=same)
    if different:
        raise SystemExit(f"standard errors differ from lm_eval: {', '.join(different)}")


if __name__ == "__main__":
    main()
