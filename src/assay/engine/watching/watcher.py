"""The loop of a watch: find finished checkpoints, evaluate each of them once, and notice deleted ones.

What is left to do is always the checkpoints on disk minus the finished runs, so a killed watch continues when its command is
repeated, and so does the run that it was executing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from assay.core.errors import (
    AssayError,
    ErrorGroup,
    InvalidOption,
    MissingPackage,
    TaskError,
    UnknownName,
    UnsupportedRequest,
)
from assay.engine.watching.checkpoints import Checkpoint, CheckpointFinder, compute_stamp, parse_step
from assay.engine.watching.queue import Order, choose_next
from assay.engine.watching.submissions import Submissions
from assay.store.database.locks import is_locked
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.run import Run
from assay.store.runs.watches import CheckpointOutcome, CheckpointRecord, Watch

__all__ = ["RunHandle", "RunLauncher", "WatchLimits", "Watcher"]

_LOG = logging.getLogger(__name__)
_TICK_S = 0.1
_CONFIGURATION_ERRORS = (InvalidOption, UnknownName, TaskError, UnsupportedRequest, MissingPackage)
"""Errors of a plan that another attempt does not change."""


class RunHandle(Protocol):
    """A run that was started."""

    def poll(self) -> int | None:
        """Return the exit code; None while it is running."""
        ...

    def read_error(self) -> str:
        """Return why it failed, in one line."""
        ...


class RunLauncher(Protocol):
    """Plans and starts runs."""

    def plan(self, checkpoint: Checkpoint, *, refresh: bool) -> Path:
        """Return the folder of a checkpoint's run.

        Raises:
            AssayError: The run cannot be planned.
        """
        ...

    def start(self, checkpoint: Checkpoint, *, refresh: bool) -> RunHandle:
        """Start the run of a checkpoint, or continue it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLimits:
    """How a watch proceeds and when it ends."""

    order: Order = "newest"
    jobs: int = 1
    poll_s: float = 10.0
    once: bool = False
    """End when everything that is there is evaluated."""

    until: float | None = None
    """End when the checkpoints up to this step are evaluated; later ones are ignored."""

    idle_timeout_s: float | None = None
    """End when there was no new checkpoint for this many seconds."""

    max_attempts: int = 3
    retry_s: float = 10.0
    """Pause before the second attempt; it doubles with every further one."""


@dataclass(slots=True)
class _RunningCheckpoint:
    checkpoint: Checkpoint
    folder: Path
    handle: RunHandle | None
    """None: another process executes the run."""


@dataclass(slots=True)
class _Attempts:
    count: int = 0
    not_before: float = 0.0
    """By the monotonic clock."""

    is_last: bool = False
    """Whether there is no further attempt."""


@dataclass(slots=True)
class Watcher:
    """Evaluates the checkpoints of a training run."""

    finder: CheckpointFinder
    watch: Watch
    launcher: RunLauncher
    limits: WatchLimits = field(default_factory=WatchLimits)
    submissions: Submissions = field(default_factory=Submissions)
    on_outcome: Callable[[CheckpointRecord], None] = lambda record: None
    """Called when a checkpoint is finished, failed or deleted."""

    on_problem: Callable[[str], None] = lambda text: None
    """Called with a warning."""

    wake: threading.Event = field(default_factory=threading.Event)
    """Set it to search for checkpoints at once."""

    _records: dict[str, CheckpointRecord] = field(default_factory=dict)
    _running: dict[str, _RunningCheckpoint] = field(default_factory=dict)
    _attempts: dict[str, _Attempts] = field(default_factory=dict)
    _refresh: set[str] = field(default_factory=set)
    _found: list[Checkpoint] = field(default_factory=list)
    _equal_steps: set[float] = field(default_factory=set)
    """Steps of several checkpoints that a warning named."""

    _last_change: float = 0.0
    _last_stamps: dict[str, str] = field(default_factory=dict)

    def run(self) -> dict[str, CheckpointRecord]:
        """Watch until a limit is reached; return the record of each checkpoint.

        Raises:
            AssayError: The folder does not exist, or the records cannot be written.
        """
        self._records = self.watch.read_records()
        self._last_change = time.monotonic()
        next_scan = 0.0
        while True:
            ended = self._collect_ended()
            if ended or self.wake.is_set() or time.monotonic() >= next_scan:
                self.wake.clear()
                self._scan()
                if not next_scan:
                    self._adopt_running()
                next_scan = time.monotonic() + self.limits.poll_s
            waiting = self._list_waiting()
            started = self._start_next(waiting)
            self.submissions.publish(self.describe())
            if not started and self._is_done():
                return dict(self._records)
            if not started:
                self.wake.wait(_TICK_S if self._running or self._attempts else min(self.limits.poll_s, 1.0))

    def describe(self) -> dict[str, Any]:
        """Return the state of every checkpoint, as the status of the HTTP API."""
        priorities = self.submissions.priorities
        rows = []
        on_disk = {one.name: one for one in self._found}
        waiting = {one.name for one in self._list_waiting(ready=False)}
        for name in [*on_disk, *(name for name in self._records if name not in on_disk)]:
            checkpoint, record = on_disk.get(name), self._records.get(name)
            step = checkpoint.step if checkpoint else record.step if record else None
            state = (
                "running" if name in self._running
                else "waiting" if name in waiting
                else record.outcome if record is not None and record.outcome != "started"
                else "incomplete" if checkpoint is not None and checkpoint.incomplete
                else "ignored"
            )  # fmt: skip
            reason = checkpoint.incomplete if checkpoint and checkpoint.incomplete else ""
            rows.append(
                {
                    "name": name,
                    "step": step,
                    "state": state,
                    "priority": priorities.get(name, 0.0),
                    "run": record.run if record else "",
                    "reason": reason or (record.reason if record else ""),
                }
            )
        return {"checkpoints": rows, "order": self.limits.order}

    # --- finding ----------------------------------------------------------------------------------

    def _scan(self) -> None:
        self._found = self.finder.find(self.submissions.priorities)
        stamps = {one.name: one.stamp for one in self._found}
        if stamps != self._last_stamps:
            self._last_change = time.monotonic()
        for name in self._last_stamps.keys() - stamps.keys():
            if name not in self._running:
                self._note_deletion(name, "it was deleted before it was evaluated")
        for name, record in list(self._records.items()):  # deleted while the watch was not running
            if record.outcome in ("started", "failed") and name not in stamps and name not in self._running:
                self._note_deletion(name, "it was deleted before its evaluation was finished")
        self._last_stamps = stamps
        self._warn_about_equal_steps()

    def _warn_about_equal_steps(self) -> None:
        """Warn once about each step that several checkpoints have: their points cannot be told apart on the curve."""
        names: dict[float, list[str]] = {}
        for one in self._found:
            if one.step is not None:
                names.setdefault(one.step, []).append(one.name)
        for step, same in names.items():
            if len(same) > 1 and step not in self._equal_steps:
                self._equal_steps.add(step)
                self.on_problem(f"{same[0]} and {same[1]} have the same step {step:.15g}")

    def _adopt_running(self) -> None:
        """Find runs that a killed watch left behind: they count as running, so that they do not compete with new ones."""
        for one in self._found:
            record = self._records.get(one.name)
            if record is None or record.outcome != "started" or not record.run:
                continue
            folder = self.watch.run_folder / record.run
            if folder.is_dir() and is_locked(folder):
                self._running[one.name] = _RunningCheckpoint(one, folder, None)

    def _note_deletion(self, name: str, reason: str) -> None:
        record = self._records.get(name)
        if record is None or record.outcome in ("started", "failed"):
            self._settle(name, parse_step(name), "deleted", reason=reason)

    def _list_waiting(self, *, ready: bool = True) -> list[Checkpoint]:
        """Return the checkpoints to evaluate. `ready`: without those whose next attempt is later."""
        now = time.monotonic()
        return [
            one
            for one in self._found
            if self._is_pending(one)
            and not (ready and one.name in self._attempts and now < self._attempts[one.name].not_before)
        ]

    def _is_pending(self, one: Checkpoint) -> bool:
        if one.incomplete or one.name in self._running:
            return False
        if self.limits.until is not None and one.step is not None and one.step > self.limits.until:
            return False
        record = self._records.get(one.name)
        if record is None or record.stamp != one.stamp or record.outcome in ("started", "deleted"):
            return True
        if record.outcome == "finished":
            return not (self.watch.run_folder / record.run / JOURNAL_FILE).is_file()
        return one.name not in self._attempts or not self._attempts[one.name].is_last

    def _is_done(self) -> bool:
        limits = self.limits
        if self._running or self._list_waiting(ready=False):
            return False
        if limits.once:
            return not any(one.settling for one in self._found)
        if limits.until is not None and self._has_reached(limits.until):
            return not any(one.settling for one in self._found if (one.step or 0.0) <= limits.until)
        idle_s = time.monotonic() - self._last_change
        return limits.idle_timeout_s is not None and idle_s >= limits.idle_timeout_s

    def _has_reached(self, until: float) -> bool:
        """Whether the training passed a step: a later checkpoint is there, even unfinished, or that of the step itself is evaluated."""
        if any(one.step is not None and one.step > until for one in self._found):
            return True
        return any(
            record.step is not None and record.step >= until and record.outcome != "started"
            for record in self._records.values()
        )

    # --- evaluating -------------------------------------------------------------------------------

    def _start_next(self, waiting: list[Checkpoint]) -> bool:
        """Start the next checkpoint if a run can be started; return whether anything changed."""
        if len(self._running) >= self.limits.jobs:
            return False
        covered = [
            record.step
            for record in self._records.values()
            if record.outcome == "finished" and record.step is not None
        ]
        covered += [one.checkpoint.step for one in self._running.values() if one.checkpoint.step is not None]
        chosen = choose_next(waiting, covered, self.limits.order, self.submissions.priorities)
        if chosen is None:
            return False
        refresh = chosen.name in self._refresh
        try:
            folder = self.launcher.plan(chosen, refresh=refresh)
        except (AssayError, OSError, ValueError) as error:
            self._note_failure(chosen, "", _describe_error(error), is_final=_is_configuration_error(error))
            return True
        record = self._records.get(chosen.name)
        if record is not None and record.run == folder.name and record.stamp != chosen.stamp:
            self._refresh.add(
                chosen.name
            )  # other files, but the model cannot tell: its responses are those of the old files
            refresh = True
        if not refresh and (ended_s := _find_end(folder)) is not None:
            self._settle(
                chosen.name, chosen.step, "finished", run=folder.name, stamp=chosen.stamp, ended_s=ended_s
            )
            return True
        self._write(chosen, "started", run=folder.name)
        if is_locked(folder):  # a watch that was killed left its run behind, or another command executes it
            self._running[chosen.name] = _RunningCheckpoint(chosen, folder, None)
            return True
        handle = self.launcher.start(chosen, refresh=refresh)
        self._running[chosen.name] = _RunningCheckpoint(chosen, folder, handle)
        return True

    def _collect_ended(self) -> bool:
        """Handle the runs that ended; return whether there were any."""
        ended = False
        for name, one in list(self._running.items()):
            if one.handle is None:
                if is_locked(one.folder):
                    continue
                del self._running[name]  # planned again: finished, or to be continued
                ended = True
                continue
            code = one.handle.poll()
            if code is None:
                continue
            ended = True
            del self._running[name]
            self._last_change = time.monotonic()
            ended_s = _find_end(one.folder, complete=False)
            if code or ended_s is None:
                reason = f"the run was killed by signal {-code}" if code < 0 else one.handle.read_error()
                reason = reason or f"the run ended with exit code {code}"
                self._note_failure(one.checkpoint, one.folder.name, reason)
            elif _has_changed(one.checkpoint):
                self._refresh.add(name)
                self.on_problem(f"{name} changed while it was evaluated; it is evaluated again")
            else:
                self._refresh.discard(name)
                self._settle(
                    name, one.checkpoint.step, "finished", run=one.folder.name, stamp=one.checkpoint.stamp,
                    ended_s=ended_s,
                )  # fmt: skip
        return ended

    def _note_failure(self, checkpoint: Checkpoint, run: str, reason: str, *, is_final: bool = False) -> None:
        """Record a failed attempt. `is_final`: no other attempt can succeed in this watch."""
        name = checkpoint.name
        if not checkpoint.path.exists():
            self._settle(
                name, checkpoint.step, "deleted", run=run, reason="it was deleted during its evaluation"
            )
            return
        attempts = self._attempts.setdefault(name, _Attempts())
        attempts.count += 1
        attempts.is_last = is_final or attempts.count >= self.limits.max_attempts
        attempts.not_before = time.monotonic() + self.limits.retry_s * 2 ** (attempts.count - 1)
        if not attempts.is_last:
            self.on_problem(
                f"{name}: attempt {attempts.count} of {self.limits.max_attempts} failed: {reason}"
            )
            self._write(checkpoint, "started", run=run, reason=reason)
            return
        self._settle(name, checkpoint.step, "failed", run=run, reason=reason, stamp=checkpoint.stamp)

    def _write(
        self, checkpoint: Checkpoint, outcome: CheckpointOutcome, *, run: str, reason: str = ""
    ) -> None:
        record = CheckpointRecord(
            name=checkpoint.name,
            step=checkpoint.step,
            outcome=outcome,
            stamp="" if checkpoint.name in self._refresh else checkpoint.stamp,
            run=run,
            reason=reason,
        )  # without a stamp, a watch that continues starts the run from the beginning, too
        self._records[record.name] = record
        self.watch.write_record(record)

    def _settle(self, name: str, step: float | None, outcome: CheckpointOutcome, **details: Any) -> None:
        """Store the outcome of a checkpoint and report it."""
        attempts = self._attempts.pop(name, None) if outcome != "failed" else self._attempts.get(name)
        record = CheckpointRecord(
            name=name, step=step, outcome=outcome, attempts=attempts.count if attempts else 0, **details
        )
        before = self._records.get(name)
        if before is not None and outcome == "deleted" and not record.run:
            record = replace(record, run=before.run)
        self._records[name] = record
        self.watch.write_record(record)
        self.on_outcome(record)


def _is_configuration_error(error: Exception) -> bool:
    """Whether the options or the task files are wrong, so that another attempt fails in the same way."""
    if isinstance(error, ErrorGroup):
        return any(_is_configuration_error(one) for one in error.errors)
    return isinstance(error, _CONFIGURATION_ERRORS)


def _describe_error(error: Exception) -> str:
    """Return one line; of several errors the first, and the number of others."""
    if isinstance(error, ErrorGroup) and error.errors:
        others = len(error.errors) - 1
        return _describe_error(error.errors[0]) + (f" (and {others} more)" if others else "")
    return error.what if isinstance(error, AssayError) else str(error)


def _find_end(folder: Path, *, complete: bool = True) -> float | None:
    """Return when a run ended, in seconds since 1970; None if it is unfinished (or, with `complete`, has failed documents)."""
    if not (folder / JOURNAL_FILE).is_file() or is_locked(folder):
        return None
    run = Run(folder)
    try:
        if not run.finished or (complete and not run.complete):
            return None
        return float(run.facts["ended"])
    except AssayError as error:  # damaged: the next start repairs it
        _LOG.warning("%s: %s", folder, error.what)
        return None
    finally:
        run.close()


def _has_changed(checkpoint: Checkpoint) -> bool:
    """Whether the files differ from those that were planned; a checkpoint that was deleted after loading has not changed."""
    try:
        return compute_stamp(checkpoint.path) != checkpoint.stamp
    except (FileNotFoundError, NotADirectoryError):
        return False
