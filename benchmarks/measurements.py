"""The measurements of a benchmark, in one format for all scripts.

Every script prints tables. With `--json FILE` it also rewrites the file after each measurement, so an interrupted script
keeps the measurements it made.
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
    """A lower or upper limit for a measurement, or for its ratio to the peer."""

    of: Literal["ours", "ratio"] = "ours"
    least: float | None = None
    most: float | None = None

    def is_met_by(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measured value of Assay, with the value of a peer if there is one."""

    what: str
    ours: float
    unit: str
    peer: float | None = None
    against: str = ""
    """The name of the peer."""

    more_is_better: bool = False
    limit: float | None = None
    """The best possible value: what the hardware, the server or the libraries underneath allow."""

    limited_by: str = ""
    """What sets the limit."""

    goal: Goal | None = None
    details: dict[str, str | float] = field(default_factory=dict)
    """Additional columns, by heading."""

    @property
    def ratio(self) -> float | None:
        """How many times better Assay is than the peer; None without a peer or if either value is 0."""
        if not self.peer or not self.ours:
            return None
        return self.ours / self.peer if self.more_is_better else self.peer / self.ours

    @property
    def share_of_limit(self) -> float | None:
        """The share of the best possible value that Assay reaches; None without a limit."""
        if self.limit is None or not self.ours:
            return None
        return self.ours / self.limit if self.more_is_better else self.limit / self.ours

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal or without the value it applies to."""
        if self.goal is None:
            return None
        value = self.ours if self.goal.of == "ours" else self.ratio
        return None if value is None else self.goal.is_met_by(value)

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Measurement:
        """Build a measurement from a row that `Report` wrote."""
        goal = row.get("goal")
        known = {one.name for one in fields(cls)}
        return cls(
            **{key: row[key] for key in row if key in known} | {"goal": Goal(**goal) if goal else None}
        )


class Report:
    """Collects the measurements of one script and writes them to a file, if given."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._rows: list[dict[str, Any]] = []

    def add(self, one: Measurement) -> None:
        self._rows.append(asdict(one))
        if self._file is not None:
            temporary = self._file.with_suffix(".part")
            temporary.write_text(json.dumps({"measurements": self._rows}), "utf-8")
            temporary.replace(self._file)


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add the `--json` option that all scripts share."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements to this file")


def get_load() -> float:
    """Return the load average of the last minute."""
    return round(os.getloadavg()[0], 1)
