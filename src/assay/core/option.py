"""One option of a run: what it means, and how a text becomes its value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Option", "option"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How one option looks to people."""

    help: str
    section: str
    parse: Callable[[str], Any] = str
    short: str = ""
    metavar: str = "TEXT"
    flag: bool = False
    """A switch without a value."""

    bare: Any = None
    """The value of the flag when it is given without one; None means it needs a value."""

    many: bool = False
    """May be given several times or with several values."""

    shapes_result: bool = True
    """False for options that cannot change a prompt, an answer or a score: they are not part of the run's id."""


def option(default: Any, help: str, section: str, **details: Any) -> Any:
    """A field of RunSpec. Mutable defaults are copied for each instance."""
    metadata = {"option": Option(help=help, section=section, **details)}
    if isinstance(default, (dict, list)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)
