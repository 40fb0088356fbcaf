"""Background jobs whose results are cached until their input changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from assay.core.errors import AssayError

__all__ = ["BackgroundJobs", "Job"]

_MAX_JOBS = 24


@dataclass(slots=True)
class Job:
    """A running or finished job."""

    version: Any
    value: Any = None
    ready: bool = False
    error: AssayError | None = None
    thread: threading.Thread | None = None

    def result(self) -> Any:
        """Return the job's value, or raise its error."""
        if self.error is not None:
            raise self.error
        return self.value


class BackgroundJobs:
    """One job per name; the oldest are dropped."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[Hashable, Job] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self,
        name: Hashable,
        version: Any,
        function: Callable[[], Any],
        *,
        wait_s: float = 0.5,
        stale: bool = False,
    ) -> Job:
        """Return the job of a name for a version of its input; start it if needed and wait up to `wait_s`.

        `stale`: a finished job of an earlier version is acceptable while the new one runs.
        """
        with self._lock:
            known = self._jobs.get(name)
            if known is None or known.version != version:
                if known is not None and stale and not known.ready:
                    job = known  # a job is running already
                else:
                    job = self._start(name, version, function)
            else:
                job = known
            self._jobs.move_to_end(name)
        if not job.ready and job.thread is not None:
            job.thread.join(wait_s)
        if not job.ready and stale and known is not None and known.ready and known.error is None:
            return known
        return job

    def discard(self, name: Hashable, job: Job) -> None:
        """Forget a job, so that the next request starts it again."""
        with self._lock:
            if self._jobs.get(name) is job:
                del self._jobs[name]

    def _start(self, name: Hashable, version: Any, function: Callable[[], Any]) -> Job:
        job = Job(version)

        def run() -> None:
            try:
                job.value = function()
            except AssayError as error:
                job.error = error
            except Exception as error:  # noqa: BLE001 - worker boundary: the page shows the error
                job.error = AssayError(f"{type(error).__name__}: {error}")
            job.ready = True

        job.thread = threading.Thread(target=run, name="assay-view-job", daemon=True)
        self._jobs[name] = job
        while len(self._jobs) > _MAX_JOBS:
            self._jobs.popitem(last=False)
        job.thread.start()
        return job
