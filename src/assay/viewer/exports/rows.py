"""Documents as lines and rows: jsonl (everything), csv and parquet (a row per document and filter)."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from assay.core.codec import to_plain
from assay.core.errors import MissingPackage
from assay.store.runs import Run

__all__ = ["harmless", "metric_names", "storable", "table_rows", "write_csv", "write_jsonl", "write_parquet"]

_COLUMNS = (
    "task",
    "document",
    "filter",
    "outcome",
    "why",
    "target",
    "prompt",
    "response",
    "answer",
    "fields",
)
_BATCH = 1000
_FORMULA = re.compile(r"^[=+\-@\t\r]")
_NUMBER = re.compile(r"^[+-]?\d[\d.,]*%?$")


def write_jsonl(run: Run, tasks: Sequence[str], stream: TextIO) -> None:
    """A line per document: what was asked, answered and judged, and how it ended."""
    for task in tasks:
        for record in run.records(task):
            stream.write(dumped(to_plain(record)) + "\n")


def dumped(value: Any) -> str:
    """JSON that every reader takes: numbers that are none as texts, half characters escaped."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(_finite(value), default=str)
    except ValueError:
        return dumped(_finite(value))
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def metric_names(run: Run, tasks: Sequence[str]) -> list[str]:
    """Every metric some documents have a number of, in the order of the tasks."""
    names: dict[str, None] = {}
    for task in tasks:
        names |= dict.fromkeys(run.tasks[task].get("metrics", ()))
    for estimate in run.estimates:
        if estimate.task in tasks and not estimate.metric.endswith("_decontaminate"):
            names.setdefault(estimate.metric)
    for about in run.facts.get("repeats") or ():
        if about["task"] in tasks:
            names.setdefault(f"{about['metric']}.mean")
    return list(names)


def table_rows(run: Run, tasks: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Flat rows: texts, numbers, and nothing. A document that was not judged has one row without a filter."""
    metrics = metric_names(run, tasks)
    for task in tasks:
        for record in run.records(task):
            first = record["requests"][0] if record["requests"] else {}
            head = {
                "task": task,
                "document": record["document"],
                "outcome": record["outcome"],
                "why": record["why"],
                "target": _cell(record["target"]),
                "prompt": first.get("prompt", ""),
                "response": _cell(_responses(record["requests"])),
                "fields": dumped(to_plain(record["fields"])),
            }
            for pipeline in record["answers"] or {"": []}:
                values = record["answers"].get(pipeline, [])
                scores = {
                    verdict["metric"]: verdict["value"]
                    for verdict in record["verdicts"]
                    if verdict["filter"] == pipeline and verdict["kind"] == "score"
                }
                for one in record.get("repeats", ()):
                    if one["filter"] == pipeline:
                        means = {
                            f"{name}.mean": sum(all_) / len(all_) for name, all_ in one["scores"].items()
                        }
                        scores |= means
                row = {**head, "filter": pipeline, "answer": _cell(values[0] if len(values) == 1 else values)}
                yield {
                    **{column: row[column] for column in _COLUMNS},
                    **{metric: _number(scores.get(metric)) for metric in metrics if metric not in _COLUMNS},
                }


def _responses(requests: list[dict[str, Any]]) -> Any:
    """One text, or all of what came back."""
    values = [one.get("logprob") if one.get("response") is None else one["response"] for one in requests]
    return values[0] if len(values) == 1 else values


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else dumped(to_plain(value))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def write_csv(run: Run, tasks: Sequence[str], stream: TextIO) -> None:
    """A row per document and filter. A text that a spreadsheet would run as a formula gets an apostrophe before it."""
    names = [*_COLUMNS, *(name for name in metric_names(run, tasks) if name not in _COLUMNS)]
    writer = csv.DictWriter(stream, names)
    writer.writeheader()
    for row in table_rows(run, tasks):
        writer.writerow({name: harmless(value) for name, value in row.items()})


def harmless(value: Any) -> Any:
    """A cell as a spreadsheet may have it: a text it would run as a formula gets an apostrophe before it."""
    if not isinstance(value, str):
        return value
    text = value.replace("\0", "\\0")
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.match(text) else text


def write_parquet(run: Run, tasks: Sequence[str], path: Path) -> None:
    """The same rows in a parquet file, written piece by piece."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingPackage.of("pyarrow", "the format `parquet`", extra="parquet") from None
    metrics = [name for name in metric_names(run, tasks) if name not in _COLUMNS]
    kinds = {"document": pyarrow.int64(), **dict.fromkeys(metrics, pyarrow.float64())}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in (*_COLUMNS, *metrics)])
    rows = table_rows(run, tasks)
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        while batch := [
            {name: storable(value) for name, value in row.items()} for row in islice(rows, _BATCH)
        ]:
            writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))


def storable(value: Any) -> Any:
    """Half characters, which parquet cannot hold, are written out."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
