"""Few-shot examples: enough of them, and none that gives an answer away."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from assay.checks.findings import Findings
from assay.core.specs import TaskSpec
from assay.tasks.task import Task

__all__ = ["check_example_pool", "check_example_source"]

_COMPARED = 2_000
"""Rows of each side that are compared: leaks are rarely a single row."""

_NUMBERING = frozenset(("id", "idx", "index", "ind", "qid", "uid", "uuid", "key", "__index_level_0__"))


def example_split(spec: TaskSpec) -> str | None:
    """The split examples are drawn from; None when the task brings its own."""
    split = spec.fewshot.split or spec.fewshot_split
    if split is None and spec.fewshot.samples is not None:
        return None
    return split or spec.training_split or spec.validation_split or spec.test_split


def check_example_source(spec: TaskSpec, findings: Findings) -> None:
    """Examples from the very split that is evaluated; needs no data."""
    if spec.output_type == "loglikelihood_rolling" or spec.config.get("class") is not None:
        return
    split = example_split(spec)
    asked, named = bool(spec.num_fewshot), bool(spec.fewshot.split or spec.fewshot_split)
    if split is None or split != spec.evaluated_split or not (asked or (named and spec.num_fewshot is None)):
        return
    itself = (spec.fewshot.split or spec.fewshot_split) != spec.test_split
    what = f"examples come from `{split}`, the split that is evaluated"
    what += ": a document may be its own example" if itself else ": other documents' answers may leak"
    findings.add(
        "warning" if asked else "note",
        "fewshot-leak",
        what,
        spec.place(
            "fewshot_config.split" if spec.fewshot.split else "fewshot_split" if named else "num_fewshot"
        ),
        "name another `fewshot_split`, or write `fewshot_config: {samples: [...]}`",
    )


def check_example_pool(task: Task, findings: Findings) -> bool:
    """Enough examples, and no evaluated document among them. False when there are too few to go on."""
    spec = task.spec
    if (
        not spec.num_fewshot
        or spec.output_type == "loglikelihood_rolling"
        or spec.config.get("class") is not None
    ):
        return True
    own = (spec.fewshot.split or spec.fewshot_split) == spec.test_split
    available = len(task.pool) - (1 if own and example_split(spec) == spec.evaluated_split else 0)
    if available < spec.num_fewshot:
        findings.error(
            "fewshot",
            f"`num_fewshot` is {spec.num_fewshot}, but there are {max(available, 0)} examples",
            spec.place("num_fewshot"),
            "lower num_fewshot, or name a larger fewshot_split",
        )
        return False
    if (
        example_split(spec) != spec.evaluated_split
        and spec.doc_to_image is None
        and spec.doc_to_visual is None
    ):
        _check_overlap(task, findings)
    return True


def _check_overlap(task: Task, findings: Findings) -> None:
    pool = set(_rows(task.pool))
    shared = [at for at, row in enumerate(_rows(task.rows)) if row in pool]
    if shared:
        findings.warning(
            "fewshot-leak",
            f"{len(shared)} evaluated documents are among the examples too, document {shared[0]} first",
            task.spec.place("fewshot_split"),
            "take them out of one side",
        )


def _rows(rows: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """What each row says, apart from its number."""
    for row in islice(rows, _COMPARED):
        told = {key: value for key, value in row.items() if str(key).lower() not in _NUMBERING}
        yield json.dumps(told, sort_keys=True, default=repr)
