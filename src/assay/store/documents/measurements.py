"""Measurements of all documents of a run as NumPy columns, for plots: scores, lengths, tokens, times, costs, confidences.

One pass over the responses and one over the documents: 500,000 documents take some seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.stats.reliability import compute_choice_confidence
from assay.store.index.row_reader import compute_document_value, parse_fingerprints
from assay.store.journal.rows import decode_verdict_value, parse_json
from assay.store.runs.run import Run

__all__ = ["TaskMeasurements", "read_measurements"]

Floats = NDArray[np.float64]

_BATCH_SIZE = 2000
_DETAILS = ("input_tokens", "output_tokens", "seconds", "cost_usd")
_SELECT_RESPONSES = (
    "SELECT fingerprint, text, source, details FROM main.answered WHERE source != 'judge' ORDER BY id"
)
_SELECT_DOCUMENTS = """
SELECT a.id - t.first, a.target, a.requests, j.answers, j.verdicts
FROM main.tasks t JOIN main.asked a ON a.id BETWEEN t.first AND t.last LEFT JOIN main.judged j ON j.id = a.id
WHERE t.name = ? ORDER BY a.id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMeasurements:
    """The documents of one task. NaN stands for a missing number."""

    task: str
    metrics: tuple[tuple[str, str], ...]
    """(pipeline, metric) of each row of `scores`, the main metric first."""

    documents: NDArray[np.int64]
    """Numbers of the documents in their task."""

    scores: Floats
    """One row per metric."""

    length: Floats
    """Characters of the responses of each document; NaN for log probabilities."""

    input_tokens: Floats
    output_tokens: Floats
    total_input_tokens: float
    """Input tokens of all responses of the task; a response that several documents share counts once, unlike in the column."""

    total_output_tokens: float
    cost_usd: Floats
    """Cost of each document in this run. Responses from the cache have no cost. A response that several documents of the
    task share was paid once: it counts for the first of them."""

    response_seconds: Floats
    """Time of each response of the model, without responses from the cache; a shared response counts once."""

    confidence: Floats
    """Share of the most likely choice in the probability of all choices."""

    is_right: Floats
    """1 if the most likely choice is the target, 0 if it is not."""


def read_measurements(run: Run, tasks: Sequence[str] | None = None) -> dict[str, TaskMeasurements]:
    """Read the measurements of some tasks, by default of all."""
    chosen = list(run.tasks) if tasks is None else [task for task in tasks if task in run.tasks]
    with run.journal.report_decode_errors():
        responses = _read_responses(run)
        return {task: _read_task(run, task, responses) for task in chosen}


@dataclass(slots=True)
class _Responses:
    """The measured responses, sorted by the hash of their fingerprints."""

    hashes: NDArray[np.int64]
    values: Floats
    """Rows: length, input tokens, output tokens, seconds, cost."""

    def find(self, hashes: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the columns of responses; -1 for missing ones."""
        if not len(self.hashes):
            return np.full(len(hashes), -1, dtype=np.intp)
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        found: NDArray[np.intp] = np.where(self.hashes[places] == hashes, places, -1)
        return found


def _read_responses(run: Run) -> _Responses:
    hashes: list[NDArray[np.int64]] = []
    parts: list[Floats] = []
    rows = run.journal.query(_SELECT_RESPONSES)
    while batch := list(islice(rows, _BATCH_SIZE)):
        hashes.append(np.fromiter((hash(row[0]) for row in batch), np.int64, len(batch)))
        part = np.full((5, len(batch)), np.nan)
        details = parse_json(f"[{','.join(row[3] or 'null' for row in batch)}]")
        for at, (row, known) in enumerate(zip(batch, details, strict=True)):
            text = row[1]
            if text is not None:
                part[0, at] = len(text if isinstance(text, str) else text.decode("utf-8", "replace"))
            if known:
                is_cached = row[2] == "cache"
                for place, name in enumerate(_DETAILS, 1):
                    number = known.get(name)
                    if number is not None and not (is_cached and place > 2):
                        part[place, at] = number
        parts.append(part)
    if not parts:
        return _Responses(np.empty(0, np.int64), np.empty((5, 0)))
    every = np.concatenate(hashes)
    order = np.argsort(every, kind="stable")
    return _Responses(every[order], np.concatenate(parts, axis=1)[:, order])


@dataclass(slots=True)
class _TaskReader:
    """Collects the columns of one task batch by batch."""

    metrics: list[tuple[str, str]]
    choices: bool
    half: bool
    """Whether the second half of the log probabilities is without the prompt (mutual information)."""

    documents: list[int] = field(default_factory=list)
    scores: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """NaN for documents without a score; shorter than `documents` if the last ones have none."""

    hashes: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    is_right: list[float] = field(default_factory=list)

    def add(self, batch: Sequence[tuple[Any, ...]]) -> None:
        verdicts = parse_json(f"[{','.join(row[4] or 'null' for row in batch)}]")
        answers = parse_json(f"[{','.join(row[3] or 'null' for row in batch)}]") if self.choices else ()
        for at, (row, judged) in enumerate(zip(batch, verdicts, strict=True)):
            place = len(self.documents)
            self.documents.append(row[0])
            names = parse_fingerprints(row[2])
            self.hashes += map(hash, names)
            self.owners += [place] * len(names)
            accuracy = self._add_scores(place, judged or ())
            if self.choices:
                confidence, right = self._measure_choices(row, answers[at], accuracy)
                self.confidence.append(confidence)
                self.is_right.append(right)

    def _add_scores(self, place: int, judged: Sequence[Sequence[Any]]) -> float | None:
        """Keep the scores of a document and return its accuracy (`acc`), if it has one."""
        accuracy = None
        for pipeline, metric, kind, value, _ in judged:
            if kind not in ("score", "evidence"):
                continue
            number = decode_verdict_value(value) if type(value) is str else value
            if kind == "evidence":
                number = compute_document_value(metric, number)
            if isinstance(number, (int, float)) and math.isfinite(number):
                column = self.scores.setdefault((pipeline, metric), [])
                column += [math.nan] * (place - len(column))
                column.append(float(number))
                if metric == "acc" and number in (0, 1):
                    accuracy = float(number)
        return accuracy

    def _measure_choices(
        self, row: tuple[Any, ...], answers: Mapping[str, Any] | None, accuracy: float | None
    ) -> tuple[float, float]:
        """Return the confidence in the most likely choice, and whether it is the target."""
        values = next(iter((answers or {}).values()), None)
        if not isinstance(values, list) or len(values) < 2:
            return math.nan, math.nan
        if not all(isinstance(one, list) and one and isinstance(one[0], (int, float)) for one in values):
            return math.nan, math.nan
        totals = [float(one[0]) for one in values]
        if self.half and len(totals) % 2 == 0:
            totals = totals[: len(totals) // 2]
        if accuracy is None:
            best = totals.index(max(totals))
            accuracy = _match_target(parse_json(row[1]).get("target"), best)
        return compute_choice_confidence(totals), accuracy

    def build(self, task: str, responses: _Responses) -> TaskMeasurements:
        count = len(self.documents)
        metrics = [*self.metrics, *(key for key in self.scores if key not in self.metrics)]
        metrics = [key for key in metrics if self.scores.get(key)]
        scores = np.full((len(metrics), count), np.nan)
        for place, key in enumerate(metrics):
            known = self.scores[key]
            scores[place, : len(known)] = known
        places = responses.find(np.array(self.hashes, dtype=np.int64))
        owners = np.array(self.owners, dtype=np.intp)[places >= 0]
        places = places[places >= 0]
        values = responses.values[:, places]
        sums = [_sum_known(values[row], owners, count) for row in (0, 1, 2)]
        _, first = np.unique(places, return_index=True)
        first.sort()
        seconds = values[3][first]
        nothing = np.full(count, np.nan)
        return TaskMeasurements(
            task=task,
            metrics=tuple(metrics),
            documents=np.array(self.documents, dtype=np.int64),
            scores=scores,
            length=sums[0],
            input_tokens=sums[1],
            output_tokens=sums[2],
            total_input_tokens=float(np.nansum(values[1][first])),
            total_output_tokens=float(np.nansum(values[2][first])),
            cost_usd=_sum_known(values[4][first], owners[first], count),
            response_seconds=seconds[~np.isnan(seconds)],
            confidence=np.array(self.confidence) if self.choices else nothing,
            is_right=np.array(self.is_right) if self.choices else nothing,
        )


def _read_task(run: Run, task: str, responses: _Responses) -> TaskMeasurements:
    facts = run.tasks[task]
    ordered = [(one.pipeline, one.metric) for one in run.estimates if one.task == task]
    named = [str(metric) for metric in facts.get("metrics") or ()]
    reader = _TaskReader(
        ordered, choices=facts.get("output_type") == "multiple_choice", half="acc_mutual_info" in named
    )
    for batch in _iterate_batches(run, task):
        reader.add(batch)
    return reader.build(task, responses)


def _iterate_batches(run: Run, task: str) -> Iterator[list[tuple[Any, ...]]]:
    rows = run.journal.query(_SELECT_DOCUMENTS, (task,))
    while batch := list(islice(rows, _BATCH_SIZE)):
        yield batch


def _match_target(target: Any, best: int) -> float:
    if isinstance(target, bool):
        return math.nan
    if isinstance(target, list):
        return float(best in target) if all(isinstance(one, int) for one in target) else math.nan
    if isinstance(target, str) and target.strip().isdecimal():
        target = int(target)
    return float(best == target) if isinstance(target, int) else math.nan


def _sum_known(values: Floats, owners: NDArray[np.intp], count: int) -> Floats:
    """Return the sum of each document; NaN for documents without any value."""
    known = ~np.isnan(values)
    sums = np.bincount(owners[known], weights=values[known], minlength=count)
    seen = np.bincount(owners[known], minlength=count)
    found: Floats = np.where(seen > 0, sums, np.nan)
    return found
