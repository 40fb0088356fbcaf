"""Bootstrap standard errors: the same numbers as lm_eval 0.4.13, and how much sooner.

    python benchmarks/bootstrap.py [--documents 2000] [--iterations 2000] [--metrics f1 bleu]

Each metric is resampled by lm_eval's own function (one process, as in its `DISABLE_MULTIPROC`) and by Assay on the same
values; prints CPU seconds, the ratio, and whether the numbers agree. With `--bootstrap_draws own` they agree to some
hundredths, where Assay has another way.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path

from measurements import Goal, Measurement, Report, add_json_option
from peers import measure, peer_python

FACTORS = {"bleu": 0.05, "chrf": 0.05, "perplexity": 10, "median": 10}
"""More resamples of what takes hundredths of a second, fewer of what takes minutes."""

WITHOUT_DRAWING = ("perplexity", "median")
"""Metrics whose resamples need not be drawn document by document."""

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
    "from assay.stats.standard_errors import standard_error\n"
    + VALUES
    + """
aggregation = {"mcc": "matthews_corrcoef"}.get(name, name)
error, _ = standard_error(aggregation, values, metric="any", iterations=iterations, draws=sys.argv[4])
print(json.dumps({"error": error, "cpu_s": time.process_time() - started}))
"""
)


def show(
    title: str,
    iterations: int,
    theirs: dict[str, float],
    ours: dict[str, float],
    near: float,
    report: Report,
    *,
    same: bool,
) -> None:
    numbers = ("same" if near < 0.01 else f"within {near:.0%}") if same else "DIFFERENT"
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
            theirs = measure(peer_python("lm_eval"), THEIRS, *arguments, cwd=Path(folder))
            for draws in ("lm_eval", "own") if name in WITHOUT_DRAWING else ("lm_eval",):
                ours = measure(sys.executable, OURS, *arguments, draws, cwd=Path(folder))
                near = 1e-9 if draws == "lm_eval" else 0.05
                same = math.isclose(theirs["error"], ours["error"], rel_tol=near)
                title = name if draws == "lm_eval" else f"{name}, own draws"
                different += [] if same else [title]
                show(title, iterations, theirs, ours, near, report, same=same)
    if different:
        raise SystemExit(f"other numbers than lm_eval's: {', '.join(different)}")


if __name__ == "__main__":
    main()
