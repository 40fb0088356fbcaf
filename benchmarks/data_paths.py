"""Measure what large data cost: few-shot pools, filters that read all documents, and `process_docs`.

    python benchmarks/data_paths.py [--rows 200000] [--documents 5000]

An instant model answers. A few-shot pool of many rows is compared with one of as many rows as there are documents; the examples come from
JSON lines or from a Parquet file, drawn at random (`default`) or from its start (`first_n`). A filter that reads all documents, and
`process_docs` that changes or selects rows, run over all rows. All runs use compiled modules, as installed by `pip`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from instant import FOLDER, GENERATE, convert_to_parquet
from measurements import Measurement, Report, add_json_option
from overhead import CHOICE5, OURS, make_rows
from peers import measure_script

HELPERS = """
def take_all(responses, documents):
    return [values[0] for values in responses]

def change(dataset):
    return dataset.map(lambda row: {"question": row["question"].strip()})

def select(dataset):
    return dataset.filter(lambda row: row["answer"] != "x")
"""
SUFFIXES = {"json": "jsonl", "parquet": "parquet"}
FORMATS = {"json": "JSON lines", "parquet": "Parquet"}
FILTER = "filter_list: [{name: all, filter: [{function: custom, filter_fn: !function helpers.take_all}]}]\n"
PROCESSES = {
    "a filter over all documents": FILTER,
    "`process_docs` that changes rows": "process_docs: !function helpers.change\n",
    "`process_docs` that selects rows": "process_docs: !function helpers.select\n",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--documents", type=int, default=5_000)
    add_json_option(parser)
    options = parser.parse_args()
    report = Report(options.json)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        ours = {
            "PYTHONPYCACHEPREFIX": f"{folder}/compiled",
            "PYTHONDONTWRITEBYTECODE": "",
            "HF_HOME": f"{folder}/hf",
        }
        (folder / "helpers.py").write_text(HELPERS)
        for name, count in (("large", options.rows), ("small", options.documents), ("ten", 10)):
            write_data(folder / name, count)
        for kind in FORMATS:  # compile the modules
            run_task(folder, GENERATE, kind, {"test": "ten"}, ours)
        print(f"{'':<60} {'CPU s':>8} {'peak MB':>8}")
        measure_pools(folder, options.rows, options.documents, ours, report)
        measure_processing(folder, options.rows, ours, report)


def measure_pools(folder: Path, rows: int, documents: int, ours: dict[str, str], report: Report) -> None:
    """Measure five examples per document from large and small pools."""
    for kind, label in FORMATS.items():
        for sampler in ("default", "first_n"):
            text = f"{CHOICE5}fewshot_config: {{{{sampler: {sampler}}}}}\n"
            small, large = (
                run_task(folder, text, kind, {"test": "small", "train": pool}, ours)
                for pool in ("small", "large")
            )
            what = f"{documents:,} documents, 5 of {rows:,} examples, {label}, `{sampler}`"
            print_row(what, large)
            report.add(
                Measurement(
                    what=what, ours=large["total_cpu_s"], unit="CPU s",
                    details={
                        f"CPU s with {documents:,} examples": round(small["total_cpu_s"], 2),
                        "peak MB": round(large["peak_mb"]),
                    },
                )
            )  # fmt: skip


def measure_processing(folder: Path, rows: int, ours: dict[str, str], report: Report) -> None:
    """Measure the memory of filters and `process_docs` over all rows."""
    for kind, label in FORMATS.items():
        plain = run_task(folder, GENERATE, kind, {"test": "large"}, ours)
        print_row(f"{rows:,} documents, {label}", plain)
        for process, lines in PROCESSES.items():
            found = run_task(folder, GENERATE + lines.replace("{", "{{").replace("}", "}}"), kind, {"test": "large"}, ours)  # fmt: skip
            what = f"{rows:,} documents, {label}, {process}: memory"
            print_row(what, found)
            report.add(
                Measurement(
                    what=what, ours=found["peak_mb"], unit="MB",
                    details={
                        "MB without it": round(plain["peak_mb"]),
                        "CPU s": round(found["total_cpu_s"], 2),
                        "CPU s without it": round(plain["total_cpu_s"], 2),
                    },
                )
            )  # fmt: skip


def write_data(path: Path, count: int) -> None:
    """Write rows as JSON lines and as a Parquet file."""
    with path.with_suffix(".jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in make_rows(count))
    convert_to_parquet(path.with_suffix(".jsonl"))


def run_task(
    folder: Path, text: str, kind: str, splits: dict[str, str], ours: dict[str, str]
) -> dict[str, Any]:
    """Run a task over these splits and return its CPU seconds, imports included, and its memory."""
    data = text.format(name="measured", data=f"{splits['test']}.{SUFFIXES[kind]}")
    data = data.replace("dataset_path: json", f"dataset_path: {kind}")
    if "train" in splits:
        data = data.replace(f"train: {splits['test']}.", f"train: {splits['train']}.")
    task = folder / "measured.yaml"
    task.write_text(data, "utf-8")
    with tempfile.TemporaryDirectory() as output:
        return measure_script(sys.executable, OURS, str(task), output, FOLDER, cwd=folder, **ours)


def print_row(what: str, found: dict[str, Any]) -> None:
    print(f"{what:<60} {found['total_cpu_s']:>8.2f} {found['peak_mb']:>8.0f}", flush=True)


if __name__ == "__main__":
    main()
