"""Programs nobody trusts, and what became of them: the words between scoring, the engine and the sandboxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.core.errors import AssayError, BadOption

__all__ = ["Bounds", "Ending", "Execution", "Isolation", "NotExecuted", "Program"]

Ending = Literal["exited", "signal", "time", "memory", "output", "processes"]
"""Why a program is over: it ended itself, a signal ended it, or a bound it went past did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much one program may use. Past a bound it is ended, with everything it started."""

    time_s: float = 10.0
    """Seconds on the clock."""

    memory_bytes: int = 1 << 30
    """Memory of all its processes together, and address space of each."""

    output_bytes: int = 1 << 20
    """Standard output and standard error, each."""

    file_bytes: int = 64 << 20
    """One file; where its folder is a file system of its own, all files together."""

    processes: int = 64
    """Processes and threads alive at the same time."""

    open_files: int = 256
    """Open files of one process."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise BadOption(f"`{name}` must be more than 0, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run: files put into an empty folder, a command, its input, its bounds.

    >>> Program(source="print(6 * 7)").command[-1]
    'program.py'
    """

    source: str = ""
    """A Python program, kept as `program.py`. Without `arguments`, this is what is run."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    """Further files, by their path inside the folder."""

    arguments: tuple[str, ...] = ()
    """The command; `python` as its first word is the interpreter the sandbox has."""

    stdin: bytes = b""
    bounds: Bounds = Bounds()

    @property
    def command(self) -> tuple[str, ...]:
        """The command with its default: the source, away from the user's settings."""
        return self.arguments or ("python", "-I", "-X", "utf8", "program.py")

    @property
    def all_files(self) -> dict[str, bytes]:
        """Everything that is put into the folder."""
        own = {"program.py": self.source.encode("utf-8", "surrogatepass")} if self.source else {}
        return {**own, **self.files}


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """What a sandbox keeps a program from, as seen by a program that tried."""

    sandbox: str
    kept: tuple[str, ...] = ()
    """What is isolated or bounded."""

    open: tuple[str, ...] = ()
    """What is not, and should be known before strangers' code is run."""

    def facts(self) -> dict[str, Any]:
        """As the journal of a run keeps it."""
        return {"name": self.sandbox, "isolated": list(self.kept), "not_isolated": list(self.open)}

    def __str__(self) -> str:
        text = f"{self.sandbox}: {', '.join(self.kept)}"
        return f"{text}; NOT isolated: {', '.join(self.open)}" if self.open else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What became of a program. It has ended, and so has everything it started."""

    ending: Ending
    exit_code: int | None = None
    """What it exited with; None when something else ended it."""

    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    """What it wrote, at most `Bounds.output_bytes` of each."""

    seconds: float = 0.0
    sandbox: str = ""

    @property
    def succeeded(self) -> bool:
        return self.ending == "exited" and self.exit_code == 0


class NotExecuted(AssayError):
    """A sandbox could not run a program at all: says nothing about the program."""
