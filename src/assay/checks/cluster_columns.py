"""Find columns that look like clusters: several documents about one text, image or video.

Documents of a cluster are answered alike, so an interval that takes them as independent is too narrow.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from itertools import groupby, islice
from typing import Any

from assay.checks.findings import Findings
from assay.tasks.task import Task

__all__ = ["check_cluster_columns", "find_cluster_columns"]

_MAX_DOCUMENTS = 500
_MAX_SECONDS = 3.0
_MIN_DOCUMENTS = 20
_CLUSTER_NAME = re.compile(
    r"(^|[^a-z])(passage|context|story|article|paragraph|image|picture|video|audio|scene|dialogue|conversation)"
    r"s?(_?(id|name|path|file|url|idx|index))?$",
    re.IGNORECASE,
)


def check_cluster_columns(task: Task, findings: Findings) -> None:
    """Warn if a column looks like a cluster and the task names none, or names a column that does not exist."""
    spec = task.spec
    if spec.cluster_key:
        column = spec.cluster_key.partition(".")[0]
        if spec.process_results is None and column not in task.columns:
            findings.warning(
                "cluster",
                f"`cluster_key: {spec.cluster_key}` is not a column, so documents are taken as independent",
                spec.place("cluster_key"),
                f"columns: {', '.join(sorted(task.columns))}",
            )
        return
    columns: dict[str, list[Any]] = {}
    count, started = 0, time.monotonic()
    for document in islice(task.documents(), _MAX_DOCUMENTS):
        for name, value in document.fields.items():
            if isinstance(value, (str, int)) and not isinstance(value, bool):
                columns.setdefault(name, []).append(value)
        count += 1
        if time.monotonic() - started > _MAX_SECONDS:
            break
    complete = {name: values for name, values in columns.items() if len(values) == count}
    if found := find_cluster_columns(complete):
        name, clusters = found[0]
        findings.warning(
            "cluster",
            f"{count} documents share {clusters} values of `{name}`: their answers are probably not independent",
            spec.place("dataset_path"),
            f"add `cluster_key: {name}`, so that intervals and comparisons account for it",
        )


def find_cluster_columns(columns: dict[str, list[Any]]) -> list[tuple[str, int]]:
    """Return (column, number of clusters) of the columns that look like clusters, the most likely first.

    A column looks like a cluster if its name says so and its values repeat, or if its values repeat in runs and are too many
    for a category.

    >>> find_cluster_columns({"passage": [n // 5 for n in range(50)], "answer": [n % 2 for n in range(50)]})
    [('passage', 10)]
    """
    found = []
    for name, values in columns.items():
        size, kinds = len(values), len(set(values))
        if size < _MIN_DOCUMENTS or kinds < 2 or kinds > 0.7 * size:
            continue
        is_named = _CLUSTER_NAME.search(name) is not None
        if is_named or (kinds >= 10 and size / kinds <= 50 and _count_runs(values) <= 1.1 * kinds):
            found.append((not is_named, name, kinds))
    return [(name, kinds) for _, name, kinds in sorted(found)]


def _count_runs(values: Sequence[Any]) -> int:
    return sum(1 for _ in groupby(values))
