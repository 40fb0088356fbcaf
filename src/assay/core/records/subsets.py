"""A weighted subset of a task's documents: which documents were drawn, from which strata, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.core.errors import InvalidOption

__all__ = ["SIMPLE", "STRATIFIED", "DocumentSubset"]

STRATIFIED = "stratified random sample"
SIMPLE = "simple random sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSubset:
    """The documents of a task that a run asks, drawn at random from strata."""

    method: str
    """`STRATIFIED` or `SIMPLE`."""

    sizes: tuple[int, ...]
    """Number of documents in each stratum."""

    members: tuple[tuple[int, ...], ...]
    """The documents drawn from each stratum."""

    content: str = ""
    """Digest of the contents of the drawn documents."""

    history: tuple[str, ...] = ()
    """The runs from which the strata were built."""

    gain: float | None = None
    worst_gain: float | None = None
    """Documents that simple random sampling needs for the same variance, divided by those of a stratified sample: median and
    worst over the models of the history, each held out in turn; None if unknown."""

    metric: str = ""
    """The metric whose scores the strata explain."""

    @property
    def documents(self) -> int:
        """Number of documents of the task."""
        return sum(self.sizes)

    @property
    def sampled(self) -> int:
        """Number of documents drawn."""
        return sum(len(drawn) for drawn in self.members)

    @property
    def indices(self) -> list[int]:
        """The documents drawn, ascending."""
        return sorted(index for drawn in self.members for index in drawn)

    @property
    def strata(self) -> dict[int, int]:
        """The stratum of each document drawn."""
        return {index: number for number, drawn in enumerate(self.members) for index in drawn}

    @property
    def weights(self) -> dict[int, float]:
        """The weight of each document drawn: the number of documents that it stands for."""
        return {
            index: size / len(drawn)
            for size, drawn in zip(self.sizes, self.members, strict=True)
            for index in drawn
        }

    def to_json(self) -> dict[str, Any]:
        """Return the subset as the options of a run store it."""
        return {
            "method": self.method,
            "strata": [
                {"documents": size, "drawn": list(drawn)}
                for size, drawn in zip(self.sizes, self.members, strict=True)
            ],
            "content": self.content,
            "history": list(self.history),
            "gain": self.gain,
            "worst_gain": self.worst_gain,
            "metric": self.metric,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any], where: str = "--subset") -> DocumentSubset:
        """Read a stored subset.

        Raises:
            InvalidOption: It is not a subset.
        """
        try:
            strata = [(int(one["documents"]), tuple(map(int, one["drawn"]))) for one in content["strata"]]
            gains = [
                None if content.get(key) is None else float(content[key]) for key in ("gain", "worst_gain")
            ]
            found = cls(
                method=str(content["method"]),
                sizes=tuple(size for size, _ in strata),
                members=tuple(drawn for _, drawn in strata),
                content=str(content.get("content", "")),
                history=tuple(map(str, content.get("history", ()))),
                gain=gains[0],
                worst_gain=gains[1],
                metric=str(content.get("metric", "")),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidOption(
                "the subset is malformed", where=where, hint="pass the results file of a run with --budget"
            ) from None
        listed = found.indices
        if (
            len(set(listed)) < len(listed)
            or not listed
            or any(not 0 < len(drawn) <= size for size, drawn in strata)
        ):
            raise InvalidOption("the subset is malformed: its documents do not fit its strata", where=where)
        return found
