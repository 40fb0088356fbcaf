"""Everything that can go wrong, in one tree.

    AssayError                 what happened, where, and a hint
    ├── UserError            exit 2: something the user can put right
    │   ├── UnknownName        no task, model, metric, filter, … is called that
    │   ├── InvalidOption          a flag, config key or argument that makes no sense
    │   ├── TaskError            a task file that cannot be read or rendered
    │   ├── DatasetError            a dataset or column that is not there
    │   │   └── MediaError       a picture, sound or video that cannot be read: that document's failure
    │   ├── UnsupportedRequest       the model cannot do what the task asks
    │   ├── MissingPackage     an optional package is needed and not installed
    │   ├── OutputError          a folder or file that cannot be written
    │   ├── RunLocked            another process is writing the same run
    │   └── Problems           several of the above, reported together
    ├── CorruptStore           exit 1: a journal that is not what it should be
    ├── TooManyFailures        exit 1: more requests failed than allowed
    ├── BudgetExceeded            exit 4: asking on would cost more than allowed; everything answered is saved
    └── Interrupted            exit 130: Ctrl-C; everything answered is saved

Each error says *what*, *where* (file:line, key path) and a *hint*; the CLI prints it without a traceback.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from assay.core.installation import format_install_command

__all__ = [
    "AssayError",
    "BudgetExceeded",
    "CorruptStore",
    "DatasetError",
    "ErrorGroup",
    "InvalidOption",
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
    """An error Assay can explain."""

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
    """Something the user can put right."""

    exit_code = 2


class UnknownName(UserError):
    """A task or a user asked for something nobody registered."""

    @classmethod
    def of(cls, kind: str, name: str, known: Sequence[str], *, where: str = "", ls: str = "") -> UnknownName:
        """Name the nearest match, so that a typo costs one look.

        >>> print(UnknownName.of("metric", "exact_macth", ["exact_match", "acc"], where="a.yaml:3"))
        no metric is called `exact_macth`
          at a.yaml:3
        hint: did you mean `exact_match`? `assay ls metrics` shows all 2
        """
        close = get_close_matches(name, known, n=1)
        guess = f"did you mean `{close[0]}`? " if close else ""
        listing = ls or f"{kind}s"
        return cls(
            f"no {kind} is called `{name}`",
            where=where,
            hint=f"{guess}`assay ls {listing}` shows all {len(known)}",
        )


class InvalidOption(UserError):
    """A flag, config key or argument that makes no sense."""


class TaskError(UserError):
    """A task file that cannot be read or rendered."""


class DatasetError(UserError):
    """A dataset, column or media file that is not there or not readable."""


class MediaError(DatasetError):
    """A picture, sound or video that cannot be read. Costs its document, never the run."""


class UnsupportedRequest(UserError):
    """The model cannot do what the task asks."""


class MissingPackage(UserError):
    """An optional package is needed and not installed."""

    @classmethod
    def of(cls, package: str, purpose: str, *, extra: str = "", where: str = "") -> MissingPackage:
        install = format_install_command(extra) if extra else f"pip install {package}"
        return cls(f"{purpose} needs the package `{package}`", where=where, hint=install)


class OutputError(UserError):
    """A folder or file that cannot be written."""


class RunLocked(UserError):
    """Another process is writing the same run."""


class ErrorGroup(UserError):
    """Several mistakes, found before the first request and reported together."""

    def __init__(self, problems: Iterable[AssayError]) -> None:
        self.errors = tuple(problems)
        count = len(self.errors)
        super().__init__(f"{count} problem{'' if count == 1 else 's'} found before the first request")

    def __str__(self) -> str:
        return "\n\n".join(str(problem) for problem in self.errors)

    def __reduce__(self) -> tuple[object, ...]:
        return (ErrorGroup, (self.errors,))


class CorruptStore(AssayError):
    """A journal that is not what it should be."""


class TooManyFailures(AssayError):
    """More requests failed than the user allows."""


class BudgetExceeded(AssayError):
    """What was asked for costs more than the user allows; everything answered is saved."""

    exit_code = 4


class RunInterrupted(AssayError):
    """Ctrl-C or a termination signal; everything answered is saved."""

    exit_code = 130
