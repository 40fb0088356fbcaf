"""Measure the overhead of the harness with an instant model: rendering, journalling and scoring.

    python benchmarks/overhead.py [--documents 30000] [--choice-documents 10000] [--peer-documents 1000] [--million]

Runs Assay and lm_eval 0.4.13 on the same task files in sequence, and lighteval 0.13 on the same rows and prompts if its environment
exists, and prints documents per CPU-second and their ratio. The peers get fewer documents, because their cost per document does
not depend on their number. Assay journals every document, request, response and verdict; the peers store nothing. `--peer-documents 0`
skips the peers. `--million` adds a run of `generate` with a million documents, without peers. All run with compiled
modules, as installed by `pip`.

Also measured, without peers: the bytes of the journal per generated answer without the texts of document, prompt and answer,
and the CPU time from the start of Python to the first stored result of a task with 100,000 rows, in JSON lines and in a Parquet file.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from instant import FOLDER, GENERATE, convert_to_parquet, write_task
from measurements import Goal, Measurement, Report, add_json_option
from peers import find_peer, measure_script, provide_lighteval_file, require_peer

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
LEAST = """
import json, sqlite3, sys, time
started = time.process_time()
database = sqlite3.connect(sys.argv[2])
database.execute("CREATE TABLE documents (id INTEGER PRIMARY KEY, fields, score)")
database.execute("CREATE TABLE responses (id INTEGER PRIMARY KEY, text)")
with open(sys.argv[1], encoding="utf-8") as file:
    for start, line in enumerate(file):
        database.execute("INSERT INTO documents VALUES (?, ?, ?)", (start, json.dumps(json.loads(line)), 1.0))
        database.executemany("INSERT INTO responses (text) VALUES (?)", [("7",)] * int(sys.argv[3]))
database.commit()
print(json.dumps({"cpu_s": time.process_time() - started}))
"""
"""The least that a harness does which stores its results: parse each row and insert it and its responses into a database."""

REQUESTS = {"generate": 1, "choice5": 4}
TASKS = {"generate": GENERATE, "choice5": CHOICE5}
TITLES = {"generate": "generate, 0-shot", "choice5": "multiple choice, 5-shot, 4 choices"}
GOALS = {"generate": Goal(least=25_000), "choice5": Goal(least=8_000)}

OURS = """
import json, sys, time
import assay
sys.path.insert(0, sys.argv[3])
from instant import InstantModel
started = time.process_time()
run = assay.run(model=InstantModel(), tasks=[sys.argv[1]], output_path=sys.argv[2], log_samples=False, no_cache=True)
name = next(iter(run.tasks))
cpu_s = time.process_time() - started
journal_bytes = sum(path.stat().st_size for path in run.folder.glob("journal.sqlite*"))
print(json.dumps({"cpu_s": cpu_s, "results": run.results[name], "journal_bytes": journal_bytes}))
"""

FIRST_RESULT = """
import json, sys, time
import assay
from assay.store.journal.journal import Journal
sys.path.insert(0, sys.argv[3])
from instant import InstantModel
asked_at, stored_at = [], []
add_judged = Journal.add_judged

def reply(document):
    asked_at.append(time.process_time())
    return "7"

def add_and_record(*arguments, **options):
    written = add_judged(*arguments, **options)
    written.add_done_callback(lambda _: stored_at.append(time.process_time()))
    return written

Journal.add_judged = add_and_record
# the limit shortens what follows the first result; all rows are read before it
assay.run(model=InstantModel(reply=reply), tasks=[sys.argv[1]], output_path=sys.argv[2], no_cache=True, limit=500)
print(json.dumps({"asked_cpu_s": asked_at[0], "stored_cpu_s": stored_at[0]}))
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

LIGHTEVAL = """
import json, logging, sys, time, types
logging.disable(logging.WARNING)
from lighteval.logging.evaluation_tracker import EvaluationTracker
from lighteval.metrics.metrics import Metrics
from lighteval.metrics.normalizations import LogProbCharNorm
from lighteval.models.dummy.dummy_model import DummyModel, DummyModelConfig
from lighteval.models.model_output import ModelResponse
from lighteval.pipeline import ParallelismManager, Pipeline, PipelineParameters
from lighteval.tasks.lighteval_task import LightevalTaskConfig
from lighteval.tasks.prompt_manager import PromptManager
from lighteval.tasks.registry import Registry
from lighteval.tasks.requests import Doc
name, folder = sys.argv[1:]
registering_s = 0.0
load_all = Registry.load_all_task_configs

def load_all_task_configs(*arguments, **options):
    global registering_s
    started = time.process_time()
    try:
        return load_all(*arguments, **options)
    finally:
        registering_s += time.process_time() - started

Registry.load_all_task_configs = staticmethod(load_all_task_configs)

def format_question(row, task):
    return Doc(task_name=task, query=f"Question: {row['question']}\\nAnswer:", choices=[row["answer"]], gold_index=0)

def format_choices(row, task):
    listed = "".join(f"\\n{letter}. {choice}" for letter, choice in zip("ABCD", row["choices"]))
    query = f"{row['question'].strip()}{listed}\\nAnswer:"
    return Doc(task_name=task, query=query, choices=[" A", " B", " C", " D"], gold_index=row["label"])

class Instant(DummyModel):
    # builds the prompts, as other models do; nothing is cached
    manager = PromptManager()
    def greedy_until(self, docs):
        prompts = [self.manager.prepare_prompt(doc) for doc in docs]
        return [ModelResponse(text=["7"]) for _ in prompts]
    def loglikelihood(self, docs):
        prompts = [self.manager.prepare_prompt(doc) for doc in docs]
        return [
            ModelResponse(logprobs=[-float(len(choice)) for choice in doc.choices], argmax_logits_eq_gold=[False] * 4)
            for doc, _ in zip(docs, prompts)
        ]

normalized = Metrics.loglikelihood_acc(sample_params={"logprob_normalization": LogProbCharNorm()})
kinds = {
    "generate": dict(prompt_function=format_question, metrics=[Metrics.exact_match], generation_size=16, stop_sequence=["\\n"]),
    "choice5": dict(prompt_function=format_choices, metrics=[Metrics.loglikelihood_acc, normalized], few_shots_split="train",
                    num_fewshots=5),
}
shots = kinds[name].get("num_fewshots", 0)
module = types.ModuleType("measured_tasks")
module.TASKS_TABLE = [
    LightevalTaskConfig(name=name, hf_repo=folder, hf_subset="default", hf_avail_splits=["train", "test"],
                        evaluation_splits=["test"], **kinds[name])
]
started = time.process_time()
pipeline = Pipeline(
    tasks=f"{name}|{shots}",
    pipeline_parameters=PipelineParameters(launcher_type=ParallelismManager.NONE, custom_tasks_directory=module),
    evaluation_tracker=EvaluationTracker(output_dir=folder + "/out"),
    model=Instant(DummyModelConfig(cache_dir=folder + "/cache")),
)
pipeline.evaluate()
results = pipeline.get_results()["results"]["all"]
print(json.dumps({"cpu_s": time.process_time() - started - registering_s, "results": results}, default=float))
"""


def make_rows(documents: int) -> Iterator[dict[str, Any]]:
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
    parser.add_argument("--first-rows", type=int, default=100_000)
    add_json_option(parser)
    options = parser.parse_args()
    counts = {"generate": options.documents, "choice5": options.choice_documents}
    report = Report(options.json)
    with tempfile.TemporaryDirectory() as compiled:
        # The checkout may be read-only or bytecode disabled, but an installed package has bytecode.
        ours = {"PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        run_assay("generate", 10, ours)  # compile the modules
        print(f"{'task':<10} {'':<8} {'documents':>9} {'CPU s':>8} {'docs/CPU-s':>11} {'peak MB':>8}")
        for name in options.tasks:
            compare_task(name, counts[name], options.peer_documents, ours, report)
        if options.million:
            measure_million(ours, report)
        measure_journal(options.documents, ours, report)
        measure_first_result(options.first_rows, ours, report)


def compare_task(name: str, documents: int, fewer: int, ours: dict[str, str], report: Report) -> None:
    """Compare Assay with the peers whose environments exist, of which lm_eval is required."""
    row = run_assay(name, documents, ours)
    rate, limit = documents / row["cpu_s"], measure_limit(name, documents)
    print_row(name, "assay", documents, row)
    peers = {"lm_eval": run_lm_eval} | ({"lighteval": run_lighteval} if find_peer("lighteval") else {})
    for against, run in peers.items() if fewer else ():
        theirs = run(name, fewer)
        print_row(name, against, fewer, theirs)
        print(f"{name:<10} ratio {rate / (fewer / theirs['cpu_s']):.1f}x", flush=True)
        report.add(
            Measurement(
                what=f"{TITLES[name]}, {documents:,} documents", ours=rate, peer=fewer / theirs["cpu_s"], against=against,
                unit="documents per CPU-second", more_is_better=True, limit=limit, limited_by="JSON and SQLite",
                goal=GOALS[name] if against == "lm_eval" else None,
                details={"peak MB": round(row["peak_mb"]), "peak MB of the peer": round(theirs["peak_mb"]), "documents of the peer": fewer},
            )
        )  # fmt: skip


def measure_limit(name: str, documents: int) -> float:
    """Return the documents per CPU-second that parsing and storing allow."""
    return documents / run_least(name, documents)["cpu_s"]


def measure_million(ours: dict[str, str], report: Report) -> None:
    """Measure the speed and memory of a million documents."""
    documents = 1_000_000
    row = run_assay("generate", documents, ours)
    print_row("generate", "assay", documents, row)
    speed, unit = documents / row["cpu_s"], "documents per CPU-second"
    what = f"{TITLES['generate']}, {documents:,} documents"
    limit = measure_limit("generate", documents)
    report.add(
        Measurement(
            what=what, ours=speed, unit=unit, more_is_better=True, limit=limit, limited_by="JSON and SQLite", goal=GOALS["generate"]
        )
    )  # fmt: skip
    report.add(Measurement(what=f"{what}: memory", ours=row["peak_mb"], unit="MB", goal=Goal(most=1500)))


def measure_journal(documents: int, ours: dict[str, str], report: Report) -> None:
    """Measure what the journal stores per answer beside the texts of document, prompt and answer."""
    stored = run_assay("generate", documents, ours)["journal_bytes"]
    texts = sum(
        len(json.dumps(row)) + len(f"Question: {row['question']}\\nAnswer:7") for row in make_rows(documents)
    )
    each = (stored - texts) / documents
    print(
        f"journal: {each:.0f} bytes per generated answer beside its texts, {stored / documents:.0f} with them"
    )
    what = f"journal per generated answer beside its texts, {documents:,} documents"
    report.add(Measurement(what=what, ours=each, unit="bytes", goal=Goal(most=350)))


def measure_first_result(rows: int, ours: dict[str, str], report: Report) -> None:
    """Measure the CPU time from the start of Python to the first request and the first stored result."""
    for kind, label in {"json": "JSON lines", "parquet": "Parquet"}.items():
        runs = [run_assay("generate", rows, ours, FIRST_RESULT, kind) for _ in range(3)]
        asked, stored = (min(run[f"{event}_cpu_s"] for run in runs) for event in ("asked", "stored"))
        what = f"first stored result of a task with {rows:,} rows, {label}"
        print(f"{what}: {stored:.2f} CPU s, its request after {asked:.2f}")
        details = {"first request, CPU s": round(asked, 2), "peak MB": round(runs[0]["peak_mb"])}
        report.add(Measurement(what=what, ours=stored, unit="CPU s", goal=Goal(most=0.5), details=details))


def run_assay(
    name: str, documents: int, environment: dict[str, str], script: str = OURS, kind: str = "json"
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        task = write_task(Path(folder), name, make_rows(documents), TASKS[name])
        if kind == "parquet":
            task.write_text(task.read_text("utf-8").replace("dataset_path: json", "dataset_path: parquet"))
            task.write_text(task.read_text("utf-8").replace(".jsonl", ".parquet"))
            convert_to_parquet(task.with_suffix(".jsonl"))
        return measure_script(
            sys.executable, script, str(task), f"{folder}/out", FOLDER, cwd=Path(folder), **environment
        )


def run_least(name: str, documents: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        task = write_task(Path(folder), name, make_rows(documents), TASKS[name])
        words = (str(task.with_suffix(".jsonl")), f"{folder}/least.db", str(REQUESTS[name]))
        return measure_script(sys.executable, LEAST, *words, cwd=Path(folder))


def run_lm_eval(name: str, documents: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        write_task(Path(folder), name, make_rows(documents), TASKS[name])
        environment = {"HF_HOME": f"{folder}/hf", "HF_DATASETS_OFFLINE": "1"}
        return measure_script(require_peer("lm_eval"), THEIRS, name, folder, cwd=Path(folder), **environment)


def run_lighteval(name: str, documents: int) -> dict[str, Any]:
    python = require_peer("lighteval")
    provide_lighteval_file(python)
    with tempfile.TemporaryDirectory() as folder:
        for split in ("train", "test"):
            write_task(Path(folder), split, make_rows(documents))
        environment = {"HF_HOME": f"{folder}/hf", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
        return measure_script(python, LIGHTEVAL, name, folder, cwd=Path(folder), **environment)


def print_row(name: str, who: str, documents: int, row: dict[str, Any]) -> None:
    rate = documents / row["cpu_s"]
    print(
        f"{name:<10} {who:<8} {documents:>9} {row['cpu_s']:>8.2f} {rate:>11.0f} {row['peak_mb']:>8.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
