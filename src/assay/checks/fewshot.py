"""Check few-shot examples: enough of them, and none that leaks an answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from assay.checks.findings import Findings
from assay.core.records.specs import TaskSpec
from assay.tasks.task import Task

__all__ = ["check_example_pool", "check_example_source"]

_MAX_COMPARED_ROWS = 2_000
"""Rows compared per side; a leak rarely affects a single row only."""

_ID_COLUMNS = frozenset(("id", "idx", "index", "ind", "qid", "uid", "uuid", "key", "__index_level_0__"))


def find_example_split(spec: TaskSpec) -> str | None:
    """Return the split that examples are drawn from, or None if the task lists its own examples."""
    split = spec.fewshot.split or spec.fewshot_split
    if split is None and spec.fewshot.samples is not None:
        return None
    return split or spec.training_split or spec.validation_split or spec.test_split


def check_example_source(spec: TaskSpec, findings: Findings) -> None:
    """Report ignored keys and examples drawn from the evaluated split. Needs no data."""
    _check_ignored_keys(spec, findings)
    if spec.output_type.scores_whole_text or spec.config.get("class") is not None:
        return
    split = find_example_split(spec)
    asked, named = bool(spec.num_fewshot), bool(spec.fewshot.split or spec.fewshot_split)
    if split is None or split != spec.evaluated_split or not (asked or (named and spec.num_fewshot is None)):
        return
    itself = (spec.fewshot.split or spec.fewshot_split) != spec.test_split
    what = f"examples are drawn from `{split}`, the evaluated split"
    what += ": a document may be its own example" if itself else ": other documents' answers may leak"
    findings.add(
        "warning" if asked else "note",
        "fewshot-leak",
        what,
        spec.place(
            "fewshot_config.split" if spec.fewshot.split else "fewshot_split" if named else "num_fewshot"
        ),
        "set another `fewshot_split`, or list examples in `fewshot_config: {samples: [...]}`",
    )


def _check_ignored_keys(spec: TaskSpec, findings: Findings) -> None:
    """Report keys of `fewshot_config` that the harness of the task ignores."""
    given = spec.config.get("fewshot_config")
    named = [key for key, value in given.items() if value is not None] if isinstance(given, Mapping) else []
    for key in sorted(spec.dialect.ignored_fewshot_keys.intersection(named)):
        findings.warning(
            "no-effect",
            f"lmms-eval ignores `{key}` in `fewshot_config`: examples use the keys of the task itself",
            spec.place("fewshot_config"),
            "delete the key, or set `dialect: lm_eval`",
        )
    if spec.fewshot.samples is not None and (spec.fewshot.split or spec.fewshot_split):
        findings.warning(
            "no-effect",
            "the examples in `fewshot_config: {samples: …}` are not used, because `fewshot_split` takes precedence",
            spec.place("fewshot_config"),
            "delete `fewshot_split` to use them",
        )


def check_example_pool(task: Task, findings: Findings) -> bool:
    """Check the number of examples and their overlap with evaluated documents; return False if there are too few."""
    spec = task.spec
    if not spec.num_fewshot or spec.output_type.scores_whole_text or spec.config.get("class") is not None:
        return True
    own = (spec.fewshot.split or spec.fewshot_split) == spec.test_split
    available = len(task.fewshot_pool) - (
        1 if own and find_example_split(spec) == spec.evaluated_split else 0
    )
    if available < spec.num_fewshot:
        findings.error(
            "fewshot",
            f"`num_fewshot` is {spec.num_fewshot}, but only {max(available, 0)} examples are available",
            spec.place("num_fewshot"),
            "lower `num_fewshot`, or set a larger `fewshot_split`",
        )
        return False
    if (
        find_example_split(spec) != spec.evaluated_split
        and spec.doc_to_image is None
        and spec.doc_to_visual is None
    ):
        _check_overlap(task, findings)
    return True


def _check_overlap(task: Task, findings: Findings) -> None:
    pool = set(_serialize_rows(task.fewshot_pool))
    shared = [index for index, row in enumerate(_serialize_rows(task.rows)) if row in pool]
    if shared:
        findings.warning(
            "fewshot-leak",
            f"{len(shared)} evaluated documents are also in the example pool; the first is document {shared[0]}",
            task.spec.place("fewshot_split"),
            "remove them from one of the splits",
        )


def _serialize_rows(rows: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Yield each row as JSON without its id columns."""
    for row in islice(rows, _MAX_COMPARED_ROWS):
        content = {key: value for key, value in row.items() if str(key).lower() not in _ID_COLUMNS}
        yield json.dumps(content, sort_keys=True, default=repr)
