"""Deliver the events of a run to its sinks, in threads that never block the run."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, BudgetExceeded, InvalidOption
from assay.core.options.parsing import parse_arguments
from assay.core.ports import Sink
from assay.core.progress import RunProgress, TaskProgress
from assay.core.secrets import redact, redact_values
from assay.store.runs.run import Run
from assay.viewer.exports.event_facts import build_result_facts
from assay.viewer.sinks import SINKS

__all__ = ["SinkDispatcher", "open_sinks"]

_LOG = logging.getLogger(__name__)
PROGRESS_INTERVAL_S = 2.0
CLOSE_TIMEOUT_S = 60.0
"""How long a finished run waits for sinks that are still busy."""


def open_sinks(words: Sequence[str]) -> SinkDispatcher:
    """Create the sinks of `NAME` or `NAME,key=value` arguments.

    Raises:
        InvalidOption: A sink does not accept an argument.
        UnknownName: There is no sink with this name.
        MissingPackage: The package of a sink is not installed.
    """
    states = []
    for word in words:
        name, _, rest = word.partition(",")
        try:
            states.append(_SinkState(name, SINKS.get(name, where="--sink")(**parse_arguments(rest))))
        except TypeError as error:
            raise InvalidOption(f"invalid arguments for the sink `{name}`: {error}", where="--sink") from None
    return SinkDispatcher(states)


@dataclass(slots=True)
class _SinkState:
    """A sink, and whether it has failed."""

    name: str
    sink: Sink
    failed: bool = False


@dataclass(slots=True)
class SinkDispatcher:
    """Delivers events to all sinks of a run, in one thread."""

    sinks: list[_SinkState]
    _events: queue.SimpleQueue[tuple[str, Mapping[str, Any]] | None] = field(
        default_factory=queue.SimpleQueue
    )
    _ended_tasks: set[str] = field(default_factory=set)

    @contextmanager
    def report_run(self, started: Mapping[str, Any], counters: RunProgress, folder: Path) -> Iterator[None]:
        """Report the start, the progress and the end of the run in the `with` block."""
        if not self.sinks:
            yield
            return
        delivery = threading.Thread(target=self._deliver_events, name="assay-sinks", daemon=True)
        delivery.start()
        self._events.put(("run started", started))
        stop = threading.Event()
        watcher = threading.Thread(
            target=self._watch_progress, args=(counters, stop), name="assay-sink-events", daemon=True
        )
        watcher.start()
        state, why = "failed", ""
        try:
            yield
            state = "finished"
        except BudgetExceeded as error:
            state, why = "stopped", error.what
            raise
        except AssayError as error:
            why = redact(error.what)
            raise
        except BaseException as error:
            state, why = "stopped", type(error).__name__
            raise
        finally:
            stop.set()
            watcher.join()
            self._events.put(
                ("run ended", {"state": state, "why": why, **_build_end_facts(counters, folder)})
            )
            self._events.put(None)
            delivery.join(CLOSE_TIMEOUT_S)
            if delivery.is_alive():
                _LOG.warning(
                    "a sink is still busy %d s after the end of the run; continuing without it",
                    CLOSE_TIMEOUT_S,
                )

    def _watch_progress(self, counters: RunProgress, stop: threading.Event) -> None:
        before: Any = None
        while True:
            last = stop.wait(PROGRESS_INTERVAL_S)
            facts = _build_progress_facts(counters)
            if (facts["done"], facts["asked"]) != before and self._events.empty():
                self._events.put(("progress", facts))
                before = facts["done"], facts["asked"]
            for task in list(counters.tasks.values()):
                if task.done >= task.total and task.name not in self._ended_tasks:
                    self._ended_tasks.add(task.name)
                    self._events.put(("task ended", _build_task_end_facts(task)))
            if last:
                return

    def _deliver_events(self) -> None:
        while (event := self._events.get()) is not None:
            for state in self.sinks:
                if not state.failed:
                    _emit(state, *event)
        for state in self.sinks:
            close = getattr(state.sink, "close", None)
            if close is not None and not state.failed:
                _call_safely(state, close)


def _emit(state: _SinkState, event: str, facts: Mapping[str, Any]) -> None:
    _call_safely(state, lambda: state.sink.emit(event, redact_values(facts)))


def _call_safely(state: _SinkState, action: Any) -> None:
    """Call a sink; disable it if it raises an exception."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 - a failing sink must not stop the run
        state.failed = True
        _LOG.warning(
            "the sink `%s` failed and is disabled: %s",
            state.name,
            redact(f"{type(error).__name__}: {error}"),
        )


def _build_progress_facts(counters: RunProgress) -> dict[str, Any]:
    tasks = {name: _build_task_facts(task) for name, task in list(counters.tasks.items())}
    return {
        "time": time.time(),
        "stage": counters.stage,
        "seconds": counters.seconds,
        "done": counters.done,
        "total": counters.total,
        "rate": counters.rate,
        "asked": counters.asked,
        "cached": counters.cached,
        "failures": dict(counters.failures),
        "tokens_read": counters.tokens.input_tokens,
        "tokens_written": counters.tokens.output_tokens,
        "tokens_reasoning": counters.tokens.reasoning_tokens,
        "cost_usd": counters.tokens.cost_usd if counters.tokens.priced else None,
        "tasks": tasks,
    }


def _build_task_facts(task: TaskProgress) -> dict[str, Any]:
    return {
        "done": task.done,
        "total": task.total,
        "metric": task.metric,
        "score": task.mean,
        "stderr": task.stderr,
        "endings": dict(task.endings),
    }


def _build_task_end_facts(task: TaskProgress) -> dict[str, Any]:
    return {"time": time.time(), "task": task.name, "documents": task.total, **_build_task_facts(task)}


def _build_end_facts(counters: RunProgress, folder: Path) -> dict[str, Any]:
    """Return the facts of the `run ended` event, with the results of a finished run."""
    facts: dict[str, Any] = {
        "time": time.time(),
        "seconds": counters.seconds,
        "folder": str(folder),
        "results": {},
        "numbers": [],
    }
    try:
        run = Run(folder)
    except AssayError:
        return facts
    try:
        facts |= build_result_facts(run)
    except AssayError as error:
        facts["unreadable"] = error.what
    finally:
        run.close()
    return facts
