"""What a benchmark found, in one form for all of them.

Every script prints tables for people; with `--json FILE` it also writes its measurements, after each of them, so that a
script that is ended half-way has told what it knew.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a number is to be at least or at most: the number itself, or its ratio to the peer's."""

    of: Literal["ours", "ratio"] = "ours"
    least: float | None = None
    most: float | None = None

    def met_by(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One number of Assay's, beside a peer's where there is one."""

    what: str
    ours: float
    unit: str
    peer: float | None = None
    against: str = ""
    """Whose number `peer` is."""

    more_is_better: bool = False
    goal: Goal | None = None
    details: dict[str, str | float] = field(default_factory=dict)
    """What else is worth a column: by its heading."""

    @property
    def ratio(self) -> float | None:
        """How many times better than the peer; None without one, or where one of the two is nothing."""
        if not self.peer or not self.ours:
            return None
        return self.ours / self.peer if self.more_is_better else self.peer / self.ours

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal, or without what it is about."""
        if self.goal is None:
            return None
        value = self.ours if self.goal.of == "ours" else self.ratio
        return None if value is None else self.goal.met_by(value)

    @classmethod
    def read(cls, row: dict[str, Any]) -> Measurement:
        """From what `Report` wrote."""
        goal = row.get("goal")
        known = {one.name for one in fields(cls)}
        return cls(
            **{key: row[key] for key in row if key in known} | {"goal": Goal(**goal) if goal else None}
        )


class Report:
    """The measurements of one script, in a file if one was named."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._rows: list[dict[str, Any]] = []

    def add(self, one: Measurement) -> None:
        self._rows.append(asdict(one))
        if self._file is not None:
            written = self._file.with_suffix(".part")
            written.write_text(json.dumps({"measurements": self._rows}), "utf-8")
            written.replace(self._file)


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """The option by which all scripts are asked for their measurements."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements there")


def load() -> float:
    """How many processes wanted a processor in the last minute."""
    return round(os.getloadavg()[0], 1)
