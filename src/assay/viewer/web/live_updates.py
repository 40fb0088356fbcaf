"""Live updates of running runs: read from the lock and the journal, sent as server-sent events."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import numpy as np

from assay.core.errors import AssayError
from assay.stats.intervals.confidence_intervals import wilson_interval
from assay.stats.numerics.distributions import t_quantile
from assay.store.database.locks import is_locked
from assay.store.documents.details import read_document_summaries
from assay.store.index.columns import OUTCOMES, Columns, is_perplexity
from assay.store.index.document_index import compute_signature
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.run import Run
from assay.viewer.documents.failure_reasons import summarise_reason
from assay.viewer.web.pages.runs import build_outcome_bar
from assay.viewer.web.run_catalog import RunCatalog

__all__ = ["compute_running_scores", "stream_events", "take_snapshot"]

_INTERVAL_S = 1.0
_MAX_TASKS = 60
_MAX_FAILURES = 5
_MAX_SUMMED_RESPONSES = 50_000
"""The cost of a larger run is summed only if its model has a price."""
_IDLE_RATIO = 20
"""The pause after reading is this many times as long as the reading took, so that large runs are read rarely."""

_MAX_INTERVAL_S = 5.0
"""The longest pause: on a loaded machine, one slow reading must not stop the updates for long."""


def take_snapshot(catalog: RunCatalog, key: str, *, detailed: bool = False) -> dict[str, Any]:
    """Return the progress of a run: documents done, outcomes, responses, elapsed time.

    `detailed`: also the outcomes of each task, the scores so far, the last failures and the cost.
    """
    folder = catalog.folder(key)
    held = is_locked(folder)
    details: dict[str, Any] = {}
    with catalog.run(key) as run:
        facts = run.facts
        documents = sum(int(task.get("documents") or 0) for task in run.tasks.values())
        finished = run.finished
        state = "running" if held else "finished" if finished else "unfinished"
        if detailed:
            by_task = {name: run.outcomes(name) for name in run.tasks}
            outcomes: dict[str, int] = {}
            for counts in by_task.values():  # the sum, so that tables and totals never contradict each other
                for ending, count in counts.items():
                    outcomes[ending] = outcomes.get(ending, 0) + count
            details = _describe_progress(catalog, key, run, by_task, state)
        else:
            outcomes = run.journal.count_all_outcomes()
        responses = run.journal.count_response_rows()
    done = sum(outcomes.values())
    started = facts.get("started")
    elapsed = time.time() - started if isinstance(started, (int, float)) else None
    cost = details.get("cost_usd")
    if cost is not None:
        details["cost_forecast_usd"] = cost * documents / done if done else None
    return {
        "key": key,
        "state": state,
        "documents": documents,
        "done": done,
        "responses": responses,
        "outcomes": outcomes,
        "bar": build_outcome_bar(outcomes, documents, state),
        "elapsed_s": elapsed if held else facts.get("seconds"),
        **details,
    }


def _describe_progress(
    catalog: RunCatalog, key: str, run: Run, by_task: Mapping[str, Mapping[str, int]], state: str
) -> dict[str, Any]:
    """Return what only the page of a run shows."""
    tasks = {
        name: build_outcome_bar(counts, int(run.tasks[name].get("documents") or 0), state)
        for name, counts in by_task.items()
    }
    index = catalog.index(key).index
    details: dict[str, Any] = {
        "tasks": tasks,
        "scores": [] if index is None else compute_running_scores(index.columns),
        "failures": [] if index is None else _read_last_failures(run, index.columns),
        "cost_usd": None,
    }
    if run.facts.get("billing") or run.journal.count_response_rows() <= _MAX_SUMMED_RESPONSES:
        costs = [
            one.cost_usd for one in (run.spent, *run.spent_by_judge.values()) if one.cost_usd is not None
        ]
        details["cost_usd"] = sum(costs) if costs else None
    return details


def compute_running_scores(columns: Columns) -> list[dict[str, Any]]:
    """Return the mean of the first metric of each task over the documents so far, with a 95 % interval."""
    found = []
    for number, task in enumerate(columns.tasks[:_MAX_TASKS]):
        values = columns.scores[0][columns.task == number]
        values = values[~np.isnan(values)]
        names = columns.metrics.get(task)
        if not names or not len(values):
            continue
        if is_perplexity(names[0][1]) or "error_rate" in names[0][1]:  # not a mean over documents
            continue
        mean = float(values.mean())
        low: float | None = None
        high: float | None = None
        if bool(((values == 0) | (values == 1)).all()):
            interval = wilson_interval(int(values.sum()), len(values))
            low, high = interval.low, interval.high
        elif len(values) > 1:
            half = t_quantile(0.975, len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
            low, high = mean - half, mean + half
        found.append(
            {
                "task": task,
                "metric": names[0][1],
                "value": mean,
                "low": low,
                "high": high,
                "count": len(values),
            }
        )
    return found


def _read_last_failures(run: Run, columns: Columns) -> list[dict[str, Any]]:
    """Return the last documents that failed, the newest first, with their reasons."""
    codes = [OUTCOMES.index(name) for name in ("failed", "judge-failed") if name in OUTCOMES]
    rows = np.flatnonzero(np.isin(columns.outcome, codes))[-_MAX_FAILURES:][::-1]
    lines = {line.id: line for line in read_document_summaries(run.journal, columns.ids[rows].tolist())}
    return [
        {
            "task": columns.tasks[columns.task[row]],
            "position": int(columns.position[row]),
            "why": summarise_reason(lines[int(columns.ids[row])].why)[:300],
        }
        for row in rows.tolist()
        if int(columns.ids[row]) in lines
    ]


async def stream_events(
    catalog: RunCatalog, only: str, is_disconnected: Callable[[], Awaitable[bool]]
) -> AsyncIterator[str]:
    """Yield an event `run` when a run progresses, and `runs` when one starts or ends; `only`: the key of one run."""
    sent: dict[str, Any] = {}
    signatures: dict[str, list[int]] = {}
    running: set[str] | None = None
    while not await is_disconnected():
        begin = time.monotonic()
        now = await asyncio.to_thread(_find_running, catalog)
        names = [only] if only else sorted(now | (running or set()))
        for key in names:
            state = await asyncio.to_thread(_read_change, catalog, key, signatures, detailed=bool(only))
            if state and state != sent.get(key):
                sent[key] = state
                yield f"event: run\ndata: {json.dumps(state)}\n\n"
        if running is not None and now != running and not only:
            yield f"event: runs\ndata: {json.dumps(sorted(now ^ running))}\n\n"
        running = now
        took = time.monotonic() - begin
        yield ": keep-alive\n\n"
        await asyncio.sleep(min(max(_INTERVAL_S, _IDLE_RATIO * took), _MAX_INTERVAL_S))


def _find_running(catalog: RunCatalog) -> set[str]:
    return {key for key, folder in catalog.folders().items() if is_locked(folder)}


def _read_change(
    catalog: RunCatalog, key: str, signatures: dict[str, list[int]], *, detailed: bool = False
) -> dict[str, Any] | None:
    """Return the state of a run; empty if its files are unchanged, None if it was removed."""
    try:
        folder = catalog.folder(key)
        found = [*compute_signature(folder / JOURNAL_FILE), int(is_locked(folder))]
        if detailed and (index := catalog.index(key).index) is not None:
            found.append(index.version)  # the scores follow the journal a little later
        if signatures.get(key) == found:
            return {}
        state = take_snapshot(catalog, key, detailed=detailed)
    except AssayError:
        return None
    signatures[key] = found
    return state
