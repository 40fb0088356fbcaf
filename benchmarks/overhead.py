"""What the harness itself costs: an instant model, so that everything measured is rendering, journalling, scoring.

    python benchmarks/overhead.py [--documents 30000] [--peer-documents 1000] [--tasks generate choice5]

Runs Assay and lm_eval 0.4.13 on the same task files, one after the other, and prints documents per CPU-second and
their ratio. The peer gets fewer documents: its cost per document does not fall with their number. Assay journals
every document, request, response and verdict; the peer keeps nothing. `--peer-documents 0` leaves the peer out.
Both are measured with their modules compiled, as `pip` leaves them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from peers import measure, peer_python

TASKS = {
    "generate": """
task: generate
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 16}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
""",
    "choice5": """
task: choice5
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
""",
}

OURS = """
import json, sys, time
import assay
from assay import LogProbability, Response, Traits

class Instant:
    name = "instant"
    traits = Traits(abilities=frozenset(("generate", "likelihood", "rolling")), window=1024)
    async def identify(self): return {"name": "instant"}
    async def open(self): pass
    async def close(self): pass
    async def answer(self, window):
        for request in window:
            generate = not hasattr(request, "continuation")
            yield Response(request_id=request.id, value="7" if generate else LogProbability(-float(len(request.continuation)), False))

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


def write(folder: Path, name: str, documents: int) -> None:
    data = folder / f"{name}.jsonl"
    with data.open("w") as file:
        for number in range(documents):
            row = {
                "question": f"A train with {number} wagons meets one with {number + 1}. How many wagons are there?",
                "answer": str(number % 10),
                "choices": [str(number + offset) for offset in range(4)],
                "label": number % 4,
            }
            file.write(json.dumps(row) + "\n")
    (folder / f"{name}.yaml").write_text(TASKS[name].format(data=data))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=30_000)
    parser.add_argument("--peer-documents", type=int, default=1_000)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as compiled:
        # a checkout may be read-only, or bytecode switched off; an installed package has its bytecode
        ours = {"PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        compare(options, ours)


def compare(options: argparse.Namespace, ours: dict[str, str]) -> None:
    folder = Path(ours["PYTHONPYCACHEPREFIX"])
    write(folder, "generate", 10)
    task, out = str(folder / "generate.yaml"), str(folder / "out")
    measure(sys.executable, OURS, task, out, cwd=folder, **ours)  # compiles
    print(f"{'task':<10} {'':<8} {'documents':>9} {'CPU s':>8} {'docs/CPU-s':>11} {'peak MB':>8}")
    for name in options.tasks:
        rates = {}
        for who, count in (("assay", options.documents), ("lm_eval", options.peer_documents)):
            if not count:
                continue
            with tempfile.TemporaryDirectory() as made:
                folder = Path(made)
                write(folder, name, count)
                if who == "assay":
                    task, out = str(folder / f"{name}.yaml"), str(folder / "out")
                    row = measure(sys.executable, OURS, task, out, cwd=folder, **ours)
                else:
                    environment = {"HF_HOME": str(folder / "hf"), "HF_DATASETS_OFFLINE": "1"}
                    row = measure(
                        peer_python("lm_eval"), THEIRS, name, str(folder), cwd=folder, **environment
                    )
            rates[who] = count / row["cpu_s"]
            print(
                f"{name:<10} {who:<8} {count:>9} {row['cpu_s']:>8.2f} {rates[who]:>11.0f} {row['peak_mb']:>8.0f}"
            )
        if "lm_eval" in rates:
            print(f"{name:<10} ratio {rates['assay'] / rates['lm_eval']:.1f}x")


if __name__ == "__main__":
    main()
