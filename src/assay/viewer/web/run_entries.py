"""The entries of the list of runs. Counts that read every row are cached until the journal changes."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.store.database.locks import is_locked
from assay.store.index.document_index import compute_signature, index_folder
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.run import Run
from assay.store.runs.tags import read_tags

__all__ = ["HeadlineScore", "RunCounts", "RunEntry", "RunEntryCache"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineScore:
    """The first score of a requested task or group."""

    name: str
    metric: str
    value: Any
    low: float | None = None
    high: float | None = None
    higher_is_better: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCounts:
    """Counts that take longer to compute: outcomes, cost and tokens."""

    outcomes: Mapping[str, int] = field(default_factory=dict)
    cost_usd: float | None = None
    tokens: int = 0

    @property
    def done(self) -> int:
        return sum(self.outcomes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """One row of the list of runs."""

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
    scores: Sequence[HeadlineScore] = ()
    tags: Sequence[str] = ()
    counts: RunCounts | None = None
    """None until they are counted."""

    why: str = ""
    """The problem of a damaged run."""

    def matches(self, words: Sequence[str]) -> bool:
        """Whether all words occur in its names, tags and state."""
        text = " ".join((self.id, self.model, *self.tasks, *self.top, *self.tags, self.state)).lower()
        return all(word in text for word in words)


class RunEntryCache:
    """Entries by folder, cached until their journals change."""

    def __init__(self) -> None:
        self._entries: dict[Path, tuple[list[int], RunEntry]] = {}
        self._counts: dict[Path, tuple[list[int], RunCounts]] = {}
        self._lock = threading.Lock()

    def get(self, key: str, folder: Path, *, count: bool = False) -> RunEntry:
        """Return the entry of a run; `count` computes the counts if they are not cached."""
        signature = compute_signature(folder / JOURNAL_FILE)
        held = is_locked(folder)
        known = self._entries.get(folder)
        if known is None or known[0] != signature or known[1].key != key:
            known = (signature, self._read(key, folder))
            self._entries[folder] = known
        entry = known[1]
        state = "running" if held and entry.state != "damaged" else entry.state
        counts = self._find_counts(folder, signature)
        if counts is None and count and entry.state != "damaged":
            counts = self._count(folder, signature)
        return replace(entry, state=state, tags=read_tags(folder), counts=counts)

    def _read(self, key: str, folder: Path) -> RunEntry:
        run = Run(folder)
        try:
            facts = run.facts
            return RunEntry(
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
                scores=tuple(_find_headline_scores(run)),
            )
        except AssayError as error:
            return RunEntry(key=key, id=folder.name, folder=folder, state="damaged", why=error.what)
        finally:
            run.close()

    def _find_counts(self, folder: Path, signature: list[int]) -> RunCounts | None:
        known = self._counts.get(folder)
        if known is None:
            with suppress(OSError, ValueError, KeyError, TypeError):
                kept = json.loads((index_folder(folder) / "counts.json").read_text("utf-8"))
                known = (kept["signature"], RunCounts(**kept["counts"]))
                self._counts[folder] = known
        return known[1] if known is not None and known[0] == signature else None

    def _count(self, folder: Path, signature: list[int]) -> RunCounts | None:
        with self._lock:
            if (known := self._find_counts(folder, signature)) is not None:
                return known
            run = Run(folder)
            try:
                outcomes = run.journal.count_all_outcomes()
                spent = run.spent
                judges = run.spent_by_judge.values()
            except AssayError:
                return None
            finally:
                run.close()
            costs = [one.cost_usd for one in (spent, *judges) if one.cost_usd is not None]
            counts = RunCounts(
                outcomes=outcomes,
                cost_usd=sum(costs) if costs else None,
                tokens=spent.input_tokens + spent.output_tokens,
            )
            self._counts[folder] = (signature, counts)
            if not is_locked(folder):
                self._save_counts(folder, signature, counts)
            return counts

    def _save_counts(self, folder: Path, signature: list[int], counts: RunCounts) -> None:
        place = index_folder(folder)
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            waiting = place / "counts.new"
            waiting.write_text(json.dumps({"signature": signature, "counts": asdict(counts)}), "utf-8")
            waiting.replace(place / "counts.json")


def _find_headline_scores(run: Run) -> list[HeadlineScore]:
    """Return the first score of each requested task or group."""
    if not run.finished:
        return []
    found: dict[str, HeadlineScore] = {}
    wanted = set(run.facts.get("top", ()))
    numbered = {estimate.task for estimate in run.estimates}
    wanted = wanted if wanted & numbered else numbered  # a group without an aggregate
    for estimate in run.estimates:
        if estimate.task in wanted and estimate.task not in found:
            low, high = estimate.interval or (None, None)
            found[estimate.task] = HeadlineScore(
                name=estimate.task,
                metric=estimate.metric,
                value=estimate.value,
                low=low,
                high=high,
                higher_is_better=estimate.higher_is_better,
            )
    return list(found.values())
