"""What the harness itself costs: an instant model, so that everything measured is rendering, journalling, scoring.

    python benchmarks/overhead.py [--documents 30000] [--choice-documents 10000] [--peer-documents 1000] [--million]

Runs Assay and lm_eval 0.4.13 on the same task files, one after the other, and prints documents per CPU-second and
their ratio. The peer gets fewer documents: its cost per document does not fall with their number. Assay journals
every document, request, response and verdict; the peer keeps nothing. `--peer-documents 0` leaves the peer out; `--million` asks a
million questions of `generate`, without the peer. Both are measured with their modules compiled, as `pip` leaves them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from instant import FOLDER, GENERATE, write_task
from measurements import Goal, Measurement, Report, add_json_option
from peers import measure, peer_python

CHOICE5 = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}, train: {data}}}}}
test_split: test
fewshot_split: train
num_fewshot: 5
output_type: multiple_choice
doc_to_text: "{{{{question.strip()}}}}\\nA. {{{{choices[0]}}}}\\nB. {{{{choices[1]}}}}\\nC. {{{{choices[2]}}}}\\nD. {{{{choices[3]}}}}\\nAnswer:"
doc_to_choice: ["A", "B", "C", "D"]
doc_to_target: label
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
"""
TASKS = {"generate": GENERATE, "choice5": CHOICE5}
TITLES = {"generate": "generate, 0-shot", "choice5": "multiple choice, 5-shot, 4 choices"}
GOALS = {"generate": Goal(least=10_000), "choice5": Goal(of="ratio", least=25)}

OURS = """
import json, sys, time
import assay
sys.path.insert(0, sys.argv[3])
from instant import Instant
started = time.process_time()
run = assay.run(model=Instant(), tasks=[sys.argv[1]], output_path=sys.argv[2], log_samples=False, no_cache=True)
name = next(iter(run.tasks))
print(json.dumps({"cpu_s": time.process_time() - started, "results": run.results[name]}))
"""

THEIRS = """
import json, logging, sys, time
import lm_eval
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager
logging.disable(logging.WARNING)

class Instant(LM):
    def loglikelihood(self, requests, **kwargs): return [(-float(len(r.args[1])), False) for r in requests]
    def loglikelihood_rolling(self, requests, **kwargs): return [-1.0 for r in requests]
    def generate_until(self, requests, **kwargs): return ["7" for r in requests]

manager = TaskManager(include_path=sys.argv[2], include_defaults=False)
started = time.process_time()
results = lm_eval.simple_evaluate(model=Instant(), tasks=[sys.argv[1]], task_manager=manager, bootstrap_iters=100000)
print(json.dumps({"cpu_s": time.process_time() - started, "results": results["results"][sys.argv[1]]}))
"""


def rows(documents: int) -> Iterator[dict[str, Any]]:
    for number in range(documents):
        yield {
            "question": f"A train with {number} wagons meets one with {number + 1}. How many wagons are there?",
            "answer": str(number % 10),
            "choices": [str(number + offset) for offset in range(4)],
            "label": number % 4,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=30_000)
    parser.add_argument("--choice-documents", type=int, default=10_000)
    parser.add_argument("--peer-documents", type=int, default=1_000)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--million", action="store_true")
    add_json_option(parser)
    options = parser.parse_args()
    counts = {"generate": options.documents, "choice5": options.choice_documents}
    report = Report(options.json)
    with tempfile.TemporaryDirectory() as compiled:
        # a checkout may be read-only, or bytecode switched off; an installed package has its bytecode
        ours = {"PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        ask_assay("generate", 10, ours)  # compiles
        print(f"{'task':<10} {'':<8} {'documents':>9} {'CPU s':>8} {'docs/CPU-s':>11} {'peak MB':>8}")
        for name in options.tasks:
            report.add(compare(name, counts[name], options.peer_documents, ours))
        if options.million:
            large(ours, report)


def compare(name: str, documents: int, fewer: int, ours: dict[str, str]) -> Measurement:
    row = ask_assay(name, documents, ours)
    rate, peer = documents / row["cpu_s"], None
    show(name, "assay", documents, row)
    if fewer:
        theirs = ask_lm_eval(name, fewer)
        peer = fewer / theirs["cpu_s"]
        show(name, "lm_eval", fewer, theirs)
        print(f"{name:<10} ratio {rate / peer:.1f}x", flush=True)
    return Measurement(
        what=f"{TITLES[name]}, {documents:,} documents", ours=rate, peer=peer, against="lm_eval" if fewer else "",
        unit="documents per CPU-second", more_is_better=True, goal=GOALS[name],
        details={"peak MB": round(row["peak_mb"])} | ({"documents of lm_eval": fewer} if fewer else {}),
    )  # fmt: skip


def large(ours: dict[str, str], report: Report) -> None:
    """A million documents: as quick as fewer, and in how much memory."""
    documents = 1_000_000
    row = ask_assay("generate", documents, ours)
    show("generate", "assay", documents, row)
    speed, unit = documents / row["cpu_s"], "documents per CPU-second"
    what = f"{TITLES['generate']}, {documents:,} documents"
    report.add(Measurement(what=what, ours=speed, unit=unit, more_is_better=True, goal=GOALS["generate"]))
    report.add(Measurement(what=f"{what}: memory", ours=row["peak_mb"], unit="MB", goal=Goal(most=1500)))


def ask_assay(name: str, documents: int, environment: dict[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as made:
        task = write_task(Path(made), name, rows(documents), TASKS[name])
        return measure(sys.executable, OURS, str(task), f"{made}/out", FOLDER, cwd=Path(made), **environment)


def ask_lm_eval(name: str, documents: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as made:
        write_task(Path(made), name, rows(documents), TASKS[name])
        environment = {"HF_HOME": f"{made}/hf", "HF_DATASETS_OFFLINE": "1"}
        return measure(peer_python("lm_eval"), THEIRS, name, made, cwd=Path(made), **environment)


def show(name: str, who: str, documents: int, row: dict[str, Any]) -> None:
    rate = documents / row["cpu_s"]
    print(
        f"{name:<10} {who:<8} {documents:>9} {row['cpu_s']:>8.2f} {rate:>11.0f} {row['peak_mb']:>8.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
