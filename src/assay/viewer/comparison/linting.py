"""`lint-benchmark`: what several runs say about the documents of a benchmark, rather than about the models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import UserMistake
from assay.stats.intervals import wilson
from assay.stats.items import analyse_items, position_bias
from assay.store.sheets import Look, Sheet, SheetSource
from assay.viewer.comparison.pairing import numbers_in, pair

__all__ = ["Lint", "lint_benchmark"]

Floats = NDArray[np.float64]

_LOOKED_AT = 2000
"""Documents whose prompts are read."""

_LISTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """One thing that looks wrong with a benchmark, or is worth knowing."""

    kind: str
    """never, always, negative, duplicates, leakage, position, blind"""

    task: str
    what: str
    count: int
    total: int
    documents: tuple[int, ...] = ()
    """The first or the worst of them."""

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)


def lint_benchmark(sources: Sequence[SheetSource], blind: SheetSource | None = None) -> list[Lint]:
    """Look at every task that all runs share; `blind` is a run without the pictures.

    Raises:
        UserMistake: The runs share no task.
    """
    shared = [task for task in sources[0].tasks if all(task in source.tasks for source in sources)]
    if not shared:
        raise UserMistake("the runs have no task in common", hint="runs of the same benchmark are needed")
    found: list[Lint] = []
    for task in shared:
        sheets = [sources[0].sheet(task)]
        sheets += [source.sheet(task, sheets[0].kind) for source in sources[1:]]
        if any(sheet.kind != sheets[0].kind for sheet in sheets):
            sheets = [source.sheet(task, "files") for source in sources]
        found += _duplicates(sheets[0])
        if len(sources) > 1:
            found += _items(sheets)
        looks = list(sources[0].looks(task, sheets[0].documents[:_LOOKED_AT]).values())
        found += _leakage(sources, sheets)
        found += _positions(task, looks)
        if blind is not None and task in blind.tasks:
            found += _blind(sheets[0], blind.sheet(task, sheets[0].kind))
    return found


def _duplicates(sheet: Sheet) -> Iterator[Lint]:
    """Documents that occur more than once."""
    seen: dict[Any, list[int]] = {}
    for document, content in zip(sheet.documents, sheet.contents, strict=True):
        if content is not None:
            seen.setdefault(content, []).append(document)
    several = [documents for documents in seen.values() if len(documents) > 1]
    if several:
        extra = [document for documents in several for document in documents[1:]]
        yield Lint(
            kind="duplicates",
            task=sheet.task,
            what="documents repeat another one, so they count twice and the interval is too narrow",
            count=len(extra),
            total=len(sheet.documents),
            documents=tuple(extra[:_LISTED]),
        )


def _items(sheets: Sequence[Sheet]) -> Iterator[Lint]:
    """Documents nobody or everybody gets right, and those on which worse models do better."""
    table, rows = _table(sheets)
    if table.shape[1] < 2:
        return
    found, first = analyse_items(table), sheets[0]
    by_chance = round(0.05 * int(np.isfinite(found.discrimination).sum()))
    texts = {
        "never": "documents that no run gets right: too hard, or the key is wrong",
        "always": "documents that every run gets right: they tell nobody apart",
        "negative": "documents on which worse models do better: the key may be wrong"
        f" (chance alone makes about {by_chance}; the worst come first)",
    }
    for kind, places in (("never", found.never), ("always", found.always), ("negative", found.negative)):
        if len(places):
            named = tuple(first.documents[rows[place]] for place in places[:_LISTED].tolist())
            yield Lint(
                kind=kind,
                task=first.task,
                what=texts[kind],
                count=len(places),
                total=table.shape[1],
                documents=named,
            )


def _table(sheets: Sequence[Sheet]) -> tuple[Floats, list[int]]:
    """A row for each run, a column for each document that all have scored; and which rows of the first sheet those are."""
    empty: tuple[Floats, list[int]] = (np.empty((len(sheets), 0)), [])
    columns = [numbers_in(next(iter(sheet.columns.values()))) for sheet in sheets if sheet.columns]
    if len(columns) < len(sheets):
        return empty
    size = len(sheets[0].documents)
    table = np.full((len(sheets), size), np.nan)
    for at, (sheet, column) in enumerate(zip(sheets, columns, strict=True)):
        if column is None:
            return empty
        pairing = pair(sheets[0], sheet)
        table[at, pairing.first] = column[pairing.second]
    kept = np.flatnonzero(~np.isnan(table).any(axis=0))
    return table[:, kept], kept.tolist()


def _leakage(sources: Sequence[SheetSource], sheets: Sequence[Sheet]) -> Iterator[Lint]:
    """Questions that stand among their own few-shot examples, in the first run that has examples."""
    both = zip(sources, sheets, strict=True)
    found = next(((source, sheet) for source, sheet in both if sheet.facts.get("few-shot examples")), None)
    if found is None:
        return
    source, sheet = found
    looks = list(source.looks(sheet.task, sheet.documents[:_LOOKED_AT]).values())
    leaked = []
    for look in looks:
        before, _, question = look.prompt.rpartition("\n\n")
        if len(question.strip()) > 8 and question.strip() in before:
            leaked.append(look.document)
    if leaked:
        yield Lint(
            kind="leakage",
            task=sheet.task,
            what="questions stand among their own few-shot examples, with the answer",
            count=len(leaked),
            total=len(looks),
            documents=tuple(leaked[:_LISTED]),
        )


def _positions(task: str, looks: Sequence[Look]) -> Iterator[Lint]:
    """Of multiple choice: whether a model likes one place, or the key does."""
    chosen, correct, counts = [], [], Counter[int]()
    for look in looks:
        places = len(look.responses)
        if places < 2 or not look.target.isdigit() or int(look.target) >= places:
            continue
        try:
            values = [float(text) for text in look.responses]
        except ValueError:
            return  # texts, not likelihoods: no choice is told by its place
        counts[places] += 1
        chosen.append(int(np.argmax(values)))
        correct.append(int(look.target))
    if not counts or len(chosen) < 20:
        return
    places = max(counts)
    shares, wanted, p_value = position_bias(chosen, correct, places)
    if p_value < 0.01:
        most = int(np.argmax(shares - wanted))
        text = f"the first run chooses place {most + 1} in {100 * shares[most]:.0f} % of documents; it is right in {100 * wanted[most]:.0f} %"
        yield Lint(kind="position", task=task, what=text, count=chosen.count(most), total=len(chosen))
    even = 1 / places
    often = int(np.argmax(wanted))
    if len(counts) == 1 and wilson(correct.count(often), len(correct), level=0.99).low > 1.2 * even:
        text = f"the right choice is at place {often + 1} in {100 * wanted[often]:.0f} % of documents, not {100 * even:.0f} %"
        yield Lint(kind="position", task=task, what=text, count=correct.count(often), total=len(correct))


def _blind(sheet: Sheet, other: Sheet) -> Iterator[Lint]:
    """What is left of the score without the pictures."""
    pairing = pair(sheet, other)
    columns = [numbers_in(next(iter(one.columns.values()))) for one in (sheet, other) if one.columns]
    if len(columns) < 2 or columns[0] is None or columns[1] is None:
        return
    seen, unseen = columns[0][pairing.first], columns[1][pairing.second]
    kept = ~(np.isnan(seen) | np.isnan(unseen))
    if not kept.any():
        return
    right = kept & (unseen > 0)
    share = 100 * float(unseen[kept].mean()) / max(100 * float(seen[kept].mean()), 1e-9)
    text = (
        f"documents are right without the picture: {float(unseen[kept].mean()):.4f} against {float(seen[kept].mean()):.4f}"
        f" with it, {100 * share:.0f} % of the score"
    )
    named = tuple(sheet.documents[pairing.first[row]] for row in np.flatnonzero(right)[:_LISTED].tolist())
    yield Lint(
        kind="blind",
        task=sheet.task,
        what=text,
        count=int(right.sum()),
        total=int(kept.sum()),
        documents=named,
    )
