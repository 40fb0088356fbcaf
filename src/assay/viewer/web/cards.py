"""A run in short, as the list of runs shows it. What takes a look at every row is kept until the journal changes."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.store.index.documents import index_folder, signature
from assay.store.journal import FILE_NAME
from assay.store.lock import is_held
from assay.store.runs import Run
from assay.store.tags import read_tags

__all__ = ["Card", "Cards", "Counts", "Shown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One number of a run: the first of a task or group that was asked for."""

    name: str
    metric: str
    value: Any
    low: float | None = None
    high: float | None = None
    higher_is_better: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What takes longer to find out: how documents ended, and what it cost."""

    outcomes: Mapping[str, int] = field(default_factory=dict)
    cost_usd: float | None = None
    tokens: int = 0

    @property
    def done(self) -> int:
        return sum(self.outcomes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One line of the list of runs."""

    key: str
    id: str
    folder: Path
    state: str
    """finished | running | unfinished | damaged"""

    model: str = ""
    tasks: Sequence[str] = ()
    top: Sequence[str] = ()
    documents: int = 0
    started: float | None = None
    seconds: float | None = None
    scores: Sequence[Shown] = ()
    tags: Sequence[str] = ()
    counts: Counts | None = None
    """None while nobody has counted yet."""

    why: str = ""
    """What is wrong with a damaged one."""

    def matches(self, words: Sequence[str]) -> bool:
        """Whether all the words occur in its names and tags."""
        text = " ".join((self.id, self.model, *self.tasks, *self.top, *self.tags, self.state)).lower()
        return all(word in text for word in words)


class Cards:
    """Cards by folder, remembered while their journals stay as they are."""

    def __init__(self) -> None:
        self._cards: dict[Path, tuple[list[int], Card]] = {}
        self._counts: dict[Path, tuple[list[int], Counts]] = {}
        self._lock = threading.Lock()

    def card(self, key: str, folder: Path, *, count: bool = False) -> Card:
        """A run in short; `count` also counts what is not known yet."""
        marks = signature(folder / FILE_NAME)
        held = is_held(folder)
        known = self._cards.get(folder)
        if known is None or known[0] != marks or known[1].key != key:
            known = (marks, self._read(key, folder))
            self._cards[folder] = known
        card = known[1]
        state = "running" if held and card.state != "damaged" else card.state
        counts = self._known_counts(folder, marks)
        if counts is None and count and card.state != "damaged":
            counts = self._count(folder, marks)
        return replace(card, state=state, tags=read_tags(folder), counts=counts)

    def _read(self, key: str, folder: Path) -> Card:
        run = Run(folder)
        try:
            facts = run.facts
            return Card(
                key=key,
                id=run.id,
                folder=folder,
                state="finished" if run.finished else "unfinished",
                model=run.model,
                tasks=tuple(run.tasks),
                top=tuple(facts.get("top", ())),
                documents=sum(int(task.get("documents") or 0) for task in run.tasks.values()),
                started=facts.get("started"),
                seconds=facts.get("seconds"),
                scores=tuple(_scores(run)),
            )
        except AssayError as error:
            return Card(key=key, id=folder.name, folder=folder, state="damaged", why=error.what)
        finally:
            run.close()

    def _known_counts(self, folder: Path, marks: list[int]) -> Counts | None:
        known = self._counts.get(folder)
        if known is None:
            with suppress(OSError, ValueError, KeyError, TypeError):
                kept = json.loads((index_folder(folder) / "counts.json").read_text("utf-8"))
                known = (kept["signature"], Counts(**kept["counts"]))
                self._counts[folder] = known
        return known[1] if known is not None and known[0] == marks else None

    def _count(self, folder: Path, marks: list[int]) -> Counts | None:
        with self._lock:
            if (known := self._known_counts(folder, marks)) is not None:
                return known
            run = Run(folder)
            try:
                outcomes = dict(run.journal.query("SELECT outcome, count(*) FROM judged GROUP BY outcome"))
                spent = run.spent
                judges = run.spent_by_judge.values()
            except AssayError:
                return None
            finally:
                run.close()
            costs = [one.cost_usd for one in (spent, *judges) if one.cost_usd is not None]
            counts = Counts(
                outcomes=outcomes,
                cost_usd=sum(costs) if costs else None,
                tokens=spent.input_tokens + spent.output_tokens,
            )
            self._counts[folder] = (marks, counts)
            if not is_held(folder):
                self._keep(folder, marks, counts)
            return counts

    def _keep(self, folder: Path, marks: list[int], counts: Counts) -> None:
        place = index_folder(folder)
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            waiting = place / "counts.new"
            waiting.write_text(json.dumps({"signature": marks, "counts": asdict(counts)}), "utf-8")
            waiting.replace(place / "counts.json")


def _scores(run: Run) -> list[Shown]:
    """The first number of everything that was asked for."""
    if not run.finished:
        return []
    found: dict[str, Shown] = {}
    wanted = set(run.facts.get("top", ()))
    numbered = {estimate.task for estimate in run.estimates}
    wanted = wanted if wanted & numbered else numbered  # a group without a number of its own
    for estimate in run.estimates:
        if estimate.task in wanted and estimate.task not in found:
            low, high = estimate.interval or (None, None)
            found[estimate.task] = Shown(
                name=estimate.task,
                metric=estimate.metric,
                value=estimate.value,
                low=low,
                high=high,
                higher_is_better=estimate.higher_is_better,
            )
    return list(found.values())
