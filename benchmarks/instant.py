"""A model without latency and a task for it, shared by the benchmarks of the harness.

Scripts in child processes import this module by adding `FOLDER` to `sys.path`.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay import LogProbability, Response, Traits

FOLDER = str(Path(__file__).resolve().parent)

GENERATE = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 16}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""


def write_task(folder: Path, name: str, rows: Iterable[Mapping[str, Any]], text: str = GENERATE) -> Path:
    """Write a task with these rows and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    data, task = folder / f"{name}.jsonl", folder / f"{name}.yaml"
    with data.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    task.write_text(text.format(name=name, data=data), "utf-8")
    return task


TO_PARQUET = """
import json, sys, pyarrow
from pyarrow import parquet
with open(sys.argv[1], encoding="utf-8") as file:
    table = pyarrow.Table.from_pylist([json.loads(line) for line in file])
parquet.write_table(table, sys.argv[2])
"""


def convert_to_parquet(data: Path) -> Path:
    """Write the rows of a JSON lines file to a Parquet file beside it.

    It runs in a process of its own: the peak memory of later child processes would include the rows.
    """
    converted = data.with_suffix(".parquet")
    subprocess.run([sys.executable, "-c", TO_PARQUET, str(data), str(converted)], check=True)
    return converted


class InstantModel:
    """A model without latency: answers "7" or what `reply` returns, and derives log-likelihoods from the length."""

    traits = Traits(abilities=frozenset(("generate", "likelihood", "rolling")), window=1024)

    def __init__(self, name: str = "instant", reply: Callable[[int], str] = lambda document: "7") -> None:
        self.name, self._reply = name, reply

    async def identify(self) -> Mapping[str, str]:
        return {"name": self.name}

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def answer(self, window: Sequence[Any]) -> AsyncIterator[Response]:
        for request in window:
            if hasattr(request, "continuation"):
                value: Any = LogProbability(-float(len(request.continuation)), False)
            else:
                value = self._reply(request.document)
            yield Response(request_id=request.id, value=value, finish="stop")


def make_model_with_accuracy(name: str, share: float) -> InstantModel:
    """Return a model that answers a fixed share of the documents correctly and the others off by one."""

    def reply(document: int) -> str:
        return str(document + (random.Random(f"{document} {name}").random() >= share))

    return InstantModel(name, reply)
