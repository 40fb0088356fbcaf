"""Untrusted programs and the results of executing them: shared by scoring, the engine and the sandboxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.core.errors import AssayError, InvalidOption

__all__ = ["Execution", "ExitReason", "IsolationReport", "Program", "ResourceLimits", "SandboxError"]

ExitReason = Literal["exited", "signal", "time", "memory", "output", "processes"]
"""Why a program ended: it exited, a signal killed it, or it exceeded a resource limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """Resource limits of one program. A program that exceeds one is killed with all its child processes."""

    time_s: float = 10.0
    """Wall-clock time."""

    memory_bytes: int = 1 << 30
    """Total memory of all its processes, and address space of each."""

    output_bytes: int = 1 << 20
    """Size of standard output and of standard error, each."""

    file_bytes: int = 64 << 20
    """Size of one file; of all files together if the working folder is a separate file system."""

    processes: int = 64
    """Number of processes and threads at the same time."""

    open_files: int = 256
    """Open files of one process."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise InvalidOption(f"`{name}` must be more than 0, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to run: files for an empty folder, a command, standard input and resource limits.

    >>> Program(source="print(6 * 7)").command[-1]
    'program.py'
    """

    source: str = ""
    """A Python program, stored as `program.py`. It is run if there are no `arguments`."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    """Additional files by their path inside the folder."""

    arguments: tuple[str, ...] = ()
    """The command line. `python` as its first word is the interpreter of the sandbox."""

    stdin: bytes = b""
    limits: ResourceLimits = ResourceLimits()

    @property
    def command(self) -> tuple[str, ...]:
        """The command line; by default it runs the source, isolated from the user's Python settings."""
        return self.arguments or ("python", "-I", "-X", "utf8", "program.py")

    @property
    def files_with_source(self) -> dict[str, bytes]:
        """All files of the folder, `program.py` included."""
        source = {"program.py": self.source.encode("utf-8", "surrogatepass")} if self.source else {}
        return {**source, **self.files}


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationReport:
    """What a sandbox blocks and limits on this machine, as found by programs that test it."""

    sandbox: str
    tool: str = ""
    """What isolates the programs, with its version."""

    isolated: tuple[str, ...] = ()
    """What programs cannot reach or do."""

    limited: tuple[str, ...] = ()
    """The resource limits that programs cannot exceed."""

    not_isolated: tuple[str, ...] = ()
    """What is not blocked or limited, and matters before running untrusted code."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as stored in the journal of a run."""
        return {
            "name": self.sandbox,
            "tool": self.tool,
            "isolated": list(self.isolated),
            "limited": list(self.limited),
            "not_isolated": list(self.not_isolated),
        }

    def __str__(self) -> str:
        name = f"{self.sandbox} ({self.tool})" if self.tool else self.sandbox
        parts = (
            ("blocked", self.isolated),
            ("limited", self.limited),
            ("NOT BLOCKED", self.not_isolated),
        )
        return "; ".join([name, *(f"{what}: {', '.join(names)}" for what, names in parts if names)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The result of running a program. The program and all its child processes have ended."""

    exit_reason: ExitReason
    exit_code: int | None = None
    """The exit code; None if the program did not exit by itself."""

    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    """Output, at most `ResourceLimits.output_bytes` of each."""

    seconds: float = 0.0
    sandbox: str = ""

    @property
    def succeeded(self) -> bool:
        return self.exit_reason == "exited" and self.exit_code == 0


class SandboxError(AssayError):
    """A sandbox could not start a program. The program itself is not at fault."""
