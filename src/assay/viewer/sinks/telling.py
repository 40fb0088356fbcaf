"""Telling sinks what happens: from counters, beside the run, never in its way."""

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

from assay.core.errors import AssayError, BadOption, CostReached
from assay.core.parsing import parse_arguments
from assay.core.ports import Sink
from assay.core.progress import RunProgress, TaskProgress
from assay.core.secrets import redacted
from assay.store.runs import Run
from assay.viewer.lm_eval_files import results_document
from assay.viewer.sinks import SINKS

__all__ = ["Audience", "open_sinks"]

_LOG = logging.getLogger(__name__)
_EVERY_S = 2.0
_PATIENCE_S = 60.0
"""How long a run waits at its end for sinks that are still busy."""


def open_sinks(words: Sequence[str]) -> Audience:
    """The sinks some words name: `NAME` or `NAME,key=value`.

    Raises:
        BadOption: An argument a sink does not take.
        UnknownName: No sink is called that.
        MissingPackage: A sink's package is not installed.
    """
    heard = []
    for word in words:
        name, _, rest = word.partition(",")
        try:
            heard.append(_Heard(name, SINKS.get(name, where="--sink")(**parse_arguments(rest))))
        except TypeError as error:
            raise BadOption(f"the sink `{name}` cannot be made: {error}", where="--sink") from None
    return Audience(heard)


@dataclass(slots=True)
class _Heard:
    """One sink, and whether it still listens."""

    name: str
    sink: Sink
    deaf: bool = False


@dataclass(slots=True)
class Audience:
    """Every sink of a run, told in one thread."""

    sinks: list[_Heard]
    _events: queue.SimpleQueue[tuple[str, Mapping[str, Any]] | None] = field(
        default_factory=queue.SimpleQueue
    )
    _ended_tasks: set[str] = field(default_factory=set)

    @contextmanager
    def told(self, started: Mapping[str, Any], counters: RunProgress, folder: Path) -> Iterator[None]:
        """Tell of everything that happens in the block: the start, how it gets on, the end."""
        if not self.sinks:
            yield
            return
        speaker = threading.Thread(target=self._speak, name="assay-sinks", daemon=True)
        speaker.start()
        self._events.put(("run started", started))
        stop = threading.Event()
        watcher = threading.Thread(
            target=self._watch, args=(counters, stop), name="assay-sink-events", daemon=True
        )
        watcher.start()
        state, why = "failed", ""
        try:
            yield
            state = "finished"
        except CostReached as error:
            state, why = "stopped", error.what
            raise
        except AssayError as error:
            why = redacted(error.what)
            raise
        except BaseException as error:
            state, why = "stopped", type(error).__name__
            raise
        finally:
            stop.set()
            watcher.join()
            self._events.put(("run ended", {"state": state, "why": why, **_end(counters, folder)}))
            self._events.put(None)
            speaker.join(_PATIENCE_S)
            if speaker.is_alive():
                _LOG.warning("a sink is still busy %d s after the end; not waiting for it", _PATIENCE_S)

    def _watch(self, counters: RunProgress, stop: threading.Event) -> None:
        before: Any = None
        while True:
            last = stop.wait(_EVERY_S)
            facts = _progress(counters)
            if (facts["done"], facts["asked"]) != before and self._events.empty():
                self._events.put(("progress", facts))
                before = facts["done"], facts["asked"]
            for task in list(counters.tasks.values()):
                if task.done >= task.total and task.name not in self._ended_tasks:
                    self._ended_tasks.add(task.name)
                    self._events.put(("task ended", _task_end(task)))
            if last:
                return

    def _speak(self) -> None:
        while (event := self._events.get()) is not None:
            for heard in self.sinks:
                if not heard.deaf:
                    _tell(heard, *event)
        for heard in self.sinks:
            close = getattr(heard.sink, "close", None)
            if close is not None and not heard.deaf:
                _guarded(heard, close)


def _tell(heard: _Heard, event: str, facts: Mapping[str, Any]) -> None:
    _guarded(heard, lambda: heard.sink.emit(event, facts))


def _guarded(heard: _Heard, act: Any) -> None:
    """A sink that fails is not told any more; the run goes on."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - foreign code at the border: whatever it is, the run must not care
        heard.deaf = True
        _LOG.warning(
            "the sink `%s` failed and is told nothing more: %s",
            heard.name,
            redacted(f"{type(error).__name__}: {error}"),
        )


def _progress(counters: RunProgress) -> dict[str, Any]:
    tasks = {name: _task(task) for name, task in list(counters.tasks.items())}
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
        "tokens_read": counters.tokens.read,
        "tokens_written": counters.tokens.written,
        "cost_usd": counters.tokens.cost_usd if counters.tokens.priced else None,
        "tasks": tasks,
    }


def _task(task: TaskProgress) -> dict[str, Any]:
    return {
        "done": task.done,
        "total": task.total,
        "metric": task.metric,
        "score": task.mean,
        "stderr": task.stderr,
        "endings": dict(task.endings),
    }


def _task_end(task: TaskProgress) -> dict[str, Any]:
    return {"time": time.time(), "task": task.name, "documents": task.total, **_task(task)}


def _end(counters: RunProgress, folder: Path) -> dict[str, Any]:
    """The numbers, where there are some."""
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
        if run.finished:
            facts["results"] = results_document(run)
            facts["numbers"] = [
                {
                    "task": one.task,
                    "metric": one.metric,
                    "filter": one.pipeline,
                    "value": one.value,
                    "stderr": one.stderr,
                    "interval": one.interval,
                    "scored": one.scored,
                }
                for one in run.estimates
            ]
        facts["outcomes"] = {task: run.outcomes(task) for task in run.tasks}
    except AssayError as error:
        facts["unreadable"] = error.what
    finally:
        run.close()
    return facts
