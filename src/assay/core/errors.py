"""The exception hierarchy.

    AssayError                  base class: what is wrong, where, and a hint
    ├── UserError               exit code 2: the user can fix it
    │   ├── UnknownName         no task, model, metric, filter, … has this name
    │   ├── InvalidOption       invalid flag, config key or argument
    │   ├── TaskError           a task file cannot be read or rendered
    │   ├── DatasetError        a dataset or column is missing or unreadable
    │   │   └── MediaError      an image, audio or video file cannot be read; fails its document only
    │   ├── UnsupportedRequest  the model does not support what the task requires
    │   ├── MissingPackage      an optional package is not installed
    │   ├── OutputError         a folder or file cannot be written
    │   ├── RunLocked           another process is writing to the same run
    │   ├── LockDrift           a run differs from its lockfile
    │   └── ErrorGroup          several errors, reported together
    ├── CorruptStore            exit code 1: a journal or cache is damaged
    ├── TooManyFailures         exit code 1: more requests failed than allowed
    ├── BudgetExceeded          exit code 4: the cost limit is reached; all responses are saved
    └── RunInterrupted          exit code 130: Ctrl-C; all responses are saved

Each error has a *what*, a *where* (file:line, key path) and a *hint*. The CLI prints them without a traceback.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = [
    "AssayError",
    "BudgetExceeded",
    "CorruptStore",
    "DatasetError",
    "ErrorGroup",
    "InvalidOption",
    "LockDrift",
    "MediaError",
    "MissingPackage",
    "OutputError",
    "RunInterrupted",
    "RunLocked",
    "TaskError",
    "TooManyFailures",
    "UnknownName",
    "UnsupportedRequest",
    "UserError",
]


class AssayError(Exception):
    """Base class of all errors with a message for the user."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  at {self.where}")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.hint))


def _rebuild(kind: type[AssayError], what: str, where: str, hint: str) -> AssayError:
    return kind(what, where=where, hint=hint)


class UserError(AssayError):
    """An error the user can fix."""

    exit_code = 2


class UnknownName(UserError):
    """No task, model, metric, filter, … has this name."""

    @classmethod
    def of(cls, kind: str, name: str, known: Sequence[str], *, where: str = "", ls: str = "") -> UnknownName:
        """Build the error for an unknown name, with the closest known name as a hint.

        >>> print(UnknownName.of("metric", "exact_macth", ["exact_match", "acc"], where="a.yaml:3"))
        no metric is called `exact_macth`
          at a.yaml:3
        hint: did you mean `exact_match`? `assay ls metrics` shows all 2
        """
        from difflib import get_close_matches

        close = get_close_matches(name, known, n=1)
        guess = f"did you mean `{close[0]}`? " if close else ""
        listing = ls or f"{kind}s"
        return cls(
            f"no {kind} is called `{name}`",
            where=where,
            hint=f"{guess}`assay ls {listing}` shows all {len(known)}",
        )


class InvalidOption(UserError):
    """Invalid flag, config key or argument."""


class TaskError(UserError):
    """A task file cannot be read or rendered."""


class DatasetError(UserError):
    """A dataset, column or media file is missing or unreadable."""


class MediaError(DatasetError):
    """An image, audio or video file cannot be read. Fails its document, not the run."""


class UnsupportedRequest(UserError):
    """The model does not support what the task requires."""


class MissingPackage(UserError):
    """An optional package is not installed."""

    others: Sequence[str] = ()
    """Commands that install further packages that task code imports."""

    @classmethod
    def of(cls, package: str, purpose: str, *, extra: str = "", where: str = "") -> MissingPackage:
        """Build the error for a package that `purpose` requires, with the install command as a hint."""
        from assay.core.installation import find_distribution_name, format_install_command

        install = format_install_command(extra) if extra else f"pip install {find_distribution_name(package)}"
        return cls(f"{purpose} needs the package `{package}`", where=where, hint=install)


class OutputError(UserError):
    """A folder or file cannot be written."""


class RunLocked(UserError):
    """Another process is writing to the same run."""


class LockDrift(UserError):
    """A run differs from its lockfile. `changes` are the differences, `ManifestChange` records."""

    changes: Sequence[object] = ()


class ErrorGroup(UserError):
    """Several errors, reported together; by default those found before the first request."""

    def __init__(self, problems: Iterable[AssayError], what: str = "") -> None:
        self.errors = tuple(problems)
        count = len(self.errors)
        super().__init__(what or f"{count} problem{'' if count == 1 else 's'} found before the first request")

    def __str__(self) -> str:
        return "\n\n".join(str(problem) for problem in self.errors)

    def __reduce__(self) -> tuple[object, ...]:
        return (ErrorGroup, (self.errors, self.what))


class CorruptStore(AssayError):
    """A journal or cache is damaged or has an unexpected format."""


class TooManyFailures(AssayError):
    """More requests failed than the user allows."""


class BudgetExceeded(AssayError):
    """The cost limit is reached. All responses are saved."""

    exit_code = 4


class RunInterrupted(AssayError):
    """Ctrl-C or a termination signal. All responses are saved."""

    exit_code = 130
