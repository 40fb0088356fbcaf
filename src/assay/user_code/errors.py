"""Turn exceptions and timeouts of a task author's code into errors with a place."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from assay.core.errors import AssayError, MissingPackage, TaskError
from assay.core.records.specs import TaskSpec
from assay.user_code.timeouts import UserCodeExit, UserCodeTimeout, current_timer

__all__ = ["wrap_user_errors"]


@contextmanager
def wrap_user_errors(spec: TaskSpec, *, timed: bool = True) -> Iterator[None]:
    """Raise `TaskError` with file, line and function for any exception of the task's code, `MissingPackage` for an import.

    Code that exceeds the time limit of `enforce_time_limit` is stopped; `timed=False` is for loading data, which may take long.
    """
    try:
        with current_timer() if timed else nullcontext():
            yield
    except (UserCodeExit, UserCodeTimeout) as error:
        stopped = error.__cause__ or error
        raise TaskError(error.what, where=_find_place(spec, stopped), hint=_describe(spec)) from error
    except AssayError:
        raise
    except ModuleNotFoundError as error:
        if not error.name:
            raise _make_task_error(spec, error) from error
        raise MissingPackage.of(
            error.name, f"the code of the task `{spec.name}`", where=_find_place(spec, error)
        ) from error
    except (Exception, SystemExit) as error:
        raise _make_task_error(spec, error) from error


def _make_task_error(spec: TaskSpec, error: BaseException) -> TaskError:
    exits = isinstance(error, SystemExit)
    what = f"exits the program: exit {error}" if exits else f"fails: {type(error).__name__}: {error}"
    return TaskError(
        f"the code of the task `{spec.name}` {what}", where=_find_place(spec, error), hint=_describe(spec)
    )


def _find_place(spec: TaskSpec, error: BaseException) -> str:
    """Return the last line in the task's own folder, or else the last line of the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return spec.path
    own = [frame for frame in frames if Path(frame.filename).parent == Path(spec.path).resolve().parent]
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno}, {frame.name}"


def _describe(spec: TaskSpec) -> str:
    return f"the task is defined in {spec.path}"
