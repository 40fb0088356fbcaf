"""Exports of documents: jsonl (one line per document), csv and parquet (one row per document and filter)."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from assay.core.errors import MissingPackage
from assay.core.records.codec import to_plain
from assay.core.records.subsets import DocumentSubset
from assay.store.runs.labels import Label, group_labels, read_run_labels
from assay.store.runs.run import Run

__all__ = [
    "escape_formula",
    "escape_surrogates",
    "iterate_table_rows",
    "list_metrics",
    "write_csv",
    "write_jsonl",
    "write_parquet",
]

_COLUMNS = (
    "task",
    "document",
    "filter",
    "outcome",
    "why",
    "target",
    "prompt",
    "reasoning",
    "response",
    "answer",
    "fields",
)
_LABEL_COLUMNS = ("label", "notes")
_WEIGHT_COLUMN = "weight"
"""The number of documents that a document of a weighted subset stands for."""

_BATCH_SIZE = 1000
_FORMULA = re.compile(r"^[=+\-@\t\r]")
_NUMBER = re.compile(r"^[+-]?\d[\d.,]*%?$")


def write_jsonl(run: Run, tasks: Sequence[str], stream: TextIO) -> None:
    """Write a line per document: requests, responses, answers, verdicts, outcome, and labels if there are any."""
    labels = group_labels(read_run_labels(run.folder))
    for task in tasks:
        weights = read_weights(run, task)
        for record in run.records(task):
            if weights is not None:
                record[_WEIGHT_COLUMN] = weights.get(record["document"])
            if known := labels.get((task, record["document"])):
                record["labels"] = [label.as_json() for label in known]
            stream.write(dump_json(to_plain(record)) + "\n")


def dump_json(value: Any) -> str:
    """Return strict JSON: non-finite numbers as text, lone surrogates escaped."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(_replace_non_finite(value), default=str)
    except ValueError:
        return dump_json(_replace_non_finite(value))
    return text


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _replace_non_finite(item) for key, item in value.items()}
    return [_replace_non_finite(item) for item in value] if isinstance(value, list) else value


def list_metrics(run: Run, tasks: Sequence[str]) -> list[str]:
    """Return every metric with document scores, in the order of the tasks."""
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


def iterate_table_rows(
    run: Run, tasks: Sequence[str], documents: Mapping[str, Sequence[int]] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield flat rows of text, numbers and None. A document that was not scored has one row without a filter.

    `documents`: only the documents with these numbers, by task.
    """
    metrics = list_metrics(run, tasks)
    labels = group_labels(read_run_labels(run.folder))
    own = _list_own_columns(run)
    taken = (*own, *(_LABEL_COLUMNS if labels else ()))
    for task in tasks:
        weights = read_weights(run, task) or {}
        for record in run.records(task, None if documents is None else documents.get(task, ())):
            first = record["requests"][0] if record["requests"] else {}
            head = {
                "task": task,
                "variant": record.get("variant", ""),
                "document": record["document"],
                "outcome": record["outcome"],
                "why": record["why"],
                "target": _format_cell(record["target"]),
                "prompt": first.get("prompt", ""),
                "reasoning": _format_cell(_join_reasoning(record["requests"])),
                "response": _format_cell(_join_responses(record["requests"])),
                "fields": dump_json(to_plain(record["fields"])),
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
                row = {
                    **head,
                    "filter": pipeline,
                    "answer": _format_cell(values[0] if len(values) == 1 else values),
                }
                yield {
                    **{column: row[column] for column in own if column != _WEIGHT_COLUMN},
                    **({_WEIGHT_COLUMN: weights.get(record["document"])} if _WEIGHT_COLUMN in own else {}),
                    **(_describe_labels(labels.get((task, record["document"]), [])) if labels else {}),
                    **{metric: _to_float(scores.get(metric)) for metric in metrics if metric not in taken},
                }


def _describe_labels(labels: Sequence[Label]) -> dict[str, Any]:
    """Return the columns of human labels: the mean verdict, and the notes with their authors."""
    values = [label.value for label in labels if label.value is not None]
    return {
        "label": sum(values) / len(values) if values else None,
        "notes": "; ".join(f"{label.who}: {label.note}" for label in labels if label.note),
    }


def _list_columns(run: Run, tasks: Sequence[str]) -> list[str]:
    """Return the names of all columns of a table; those of labels only if the run has any."""
    labels = _LABEL_COLUMNS if read_run_labels(run.folder) else ()
    own = (*_list_own_columns(run), *labels)
    return [*own, *(name for name in list_metrics(run, tasks) if name not in own)]


def _list_own_columns(run: Run) -> tuple[str, ...]:
    """Return the columns of documents: the prompt variant only if the run has several, the weight only if it has weights."""
    has_variants = any("variant" in facts for facts in run.tasks.values())
    has_weights = any(read_weights(run, task) is not None for task in run.tasks)
    variant = ("variant",) if has_variants else ()
    return (_COLUMNS[0], *variant, *_COLUMNS[1:], *((_WEIGHT_COLUMN,) if has_weights else ()))


def read_weights(run: Run, task: str) -> dict[int, float] | None:
    """Return the weights of the documents of a task; None if all documents were asked."""
    subsets = run.facts.get("spec", {}).get("subset") or {}
    return DocumentSubset.from_json(subsets[task], where=task).weights if task in subsets else None


def _join_responses(requests: list[dict[str, Any]]) -> Any:
    """Return the only response, or the list of all. A response with tool calls is shown as its calls."""
    values = [_response_value(one) for one in requests]
    return values[0] if len(values) == 1 else values


def _response_value(request: dict[str, Any]) -> Any:
    if "tool_calls" in request:
        return request["tool_calls"]
    return request.get("logprob") if request.get("response") is None else request["response"]


def _join_reasoning(requests: list[dict[str, Any]]) -> Any:
    """Return the reasoning of the only response, the list of all, or None if no response has any."""
    values = [one.get("reasoning") for one in requests]
    if not any(values):
        return None
    return values[0] if len(values) == 1 else values


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else dump_json(to_plain(value))


def _to_float(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def write_csv(run: Run, tasks: Sequence[str], stream: TextIO) -> None:
    """Write a row per document and filter; text that a spreadsheet would run as a formula is escaped."""
    writer = csv.DictWriter(stream, _list_columns(run, tasks))
    writer.writeheader()
    for row in iterate_table_rows(run, tasks):
        writer.writerow({name: escape_formula(value) for name, value in row.items()})


def escape_formula(value: Any) -> Any:
    """Prefix text that a spreadsheet would run as a formula with an apostrophe."""
    if not isinstance(value, str):
        return value
    text = value.replace("\0", "\\0")
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.match(text) else text


def write_parquet(run: Run, tasks: Sequence[str], path: Path) -> None:
    """Write the rows of `write_csv` to a parquet file in batches."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingPackage.of("pyarrow", "the format `parquet`", extra="parquet") from None
    texts = {*_COLUMNS, "notes"} - {"document"}
    kinds = {"document": pyarrow.int64(), **dict.fromkeys(texts, pyarrow.string())}
    schema = pyarrow.schema(
        [(name, kinds.get(name, pyarrow.float64())) for name in _list_columns(run, tasks)]
    )
    rows = iterate_table_rows(run, tasks)
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        while batch := [
            {name: escape_surrogates(value) for name, value in row.items()}
            for row in islice(rows, _BATCH_SIZE)
        ]:
            writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))


def escape_surrogates(value: Any) -> Any:
    """Escape lone surrogates, which parquet cannot store."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
