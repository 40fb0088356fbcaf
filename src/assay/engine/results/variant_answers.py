"""Read the answers of a prompt variant in the terms of the unchanged prompt: positions and letters are those of the document."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from assay.core.errors import AssayError
from assay.engine.planning.records import PlannedTask
from assay.scoring.likelihoods import argmax
from assay.store.journal.journal import Journal
from assay.tasks.letter_choices import LetterChoiceTask
from assay.tasks.variants.choice_order import ChoiceFields
from assay.tasks.variants.variant_task import VariantTask

__all__ = ["read_answers"]


def _count_bytes(choice: str) -> int:
    return len(choice.encode("utf-8"))


_LENGTHS: Mapping[str, Callable[[str], int]] = {"acc_norm": len, "acc_bytes": _count_bytes}
"""Metrics that divide the log probability of a choice by its length."""


def read_answers(planned: PlannedTask, journal: Journal) -> dict[tuple[str, str], dict[int, Any]]:
    """Return the answer to each document by (pipeline, metric): the original position of the chosen choice, or the text that
    the filters returned with the original letter."""
    found: dict[tuple[str, str], dict[int, Any]] = {}
    fields = _find_choice_fields(planned)
    likelihoods = planned.spec.output_type.compares_choices
    for document, content, verdicts in journal.read_judged(planned.task.name):
        metrics = {
            (pipeline, metric) for pipeline, metric, kind, *_ in json.loads(verdicts) if kind == "score"
        }
        for pipeline, values in json.loads(content).items():
            for metric in [metric for name, metric in metrics if name == pipeline]:
                with suppress(AssayError, TypeError, ValueError, IndexError, KeyError):
                    row = planned.task.rows[document] if fields is not None or metric in _LENGTHS else {}
                    answer = (
                        _choose(planned, metric, values, row, fields)
                        if likelihoods
                        else _to_text(values, row, fields)
                    )
                    found.setdefault((pipeline, metric), {})[document] = answer
    return found


def _find_choice_fields(planned: PlannedTask) -> ChoiceFields | None:
    task = planned.task.original if isinstance(planned.task, LetterChoiceTask) else planned.task
    return task.choice_fields if isinstance(task, VariantTask) else None


def _choose(
    planned: PlannedTask,
    metric: str,
    values: Sequence[Sequence[Any]],
    row: Mapping[str, Any],
    fields: ChoiceFields | None,
) -> int:
    """Return the original position of the most likely choice."""
    totals = [float(value[0]) for value in values]
    if metric in _LENGTHS:
        choices = planned.task.choices(row) or ()
        totals = totals[: len(choices)]
        totals = [
            total / (_LENGTHS[metric](choice) or 1) for total, choice in zip(totals, choices, strict=True)
        ]
    chosen = argmax([-math.inf if math.isnan(total) else total for total in totals])
    return chosen if fields is None else fields.to_original(row, chosen)


def _to_text(values: Sequence[Any], row: Mapping[str, Any], fields: ChoiceFields | None) -> str:
    answer = values[0] if len(values) == 1 else values
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return text if fields is None else fields.answer_to_original(row, text)
