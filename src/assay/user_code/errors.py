"""Turn exceptions of a task author's code into errors with a place."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.core.errors import AssayError, TaskError
from assay.core.specs import TaskSpec

__all__ = ["wrap_user_errors"]


@contextmanager
def wrap_user_errors(spec: TaskSpec) -> Iterator[None]:
    """Raise `TaskError` with file, line and function for any exception of the task's own code."""
    try:
        yield
    except AssayError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if Path(frame.filename).parent == Path(spec.path).resolve().parent]
        frame = (own or frames)[-1]
        ending = isinstance(error, SystemExit)
        said = f"ends the program: exit {error}" if ending else f"fails: {type(error).__name__}: {error}"
        raise TaskError(
            f"the code of the task `{spec.name}` {said}",
            where=f"{frame.filename}:{frame.lineno}, {frame.name}",
            hint=f"the task is described in {spec.path}",
        ) from error
