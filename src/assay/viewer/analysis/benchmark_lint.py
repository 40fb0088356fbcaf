"""`lint-benchmark`: problems in the documents of a benchmark, found in the scores of several runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import UserError
from assay.stats.confidence_intervals import wilson_interval
from assay.stats.item_analysis import analyse_items, measure_position_bias
from assay.store.documents.score_tables import DocumentExcerpt, ScoreTable, ScoreTableSource
from assay.viewer.comparison.pairing import pair_documents, scores_from_column

__all__ = ["LintFinding", "lint_benchmark"]

Floats = NDArray[np.float64]

_MAX_INSPECTED = 2000
"""The number of documents whose prompts are read."""

_MAX_LISTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding:
    """One possible problem of a benchmark."""

    kind: str
    """never, always, negative, duplicates, leakage, position, blind"""

    task: str
    what: str
    count: int
    total: int
    documents: tuple[int, ...] = ()
    """The first or the most extreme documents."""

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


def lint_benchmark(
    sources: Sequence[ScoreTableSource], blind: ScoreTableSource | None = None
) -> list[LintFinding]:
    """Check every task that all runs share; `blind` is a run without the images.

    Raises:
        UserError: The runs share no task.
    """
    shared = [task for task in sources[0].tasks if all(task in source.tasks for source in sources)]
    if not shared:
        raise UserError("the runs have no task in common", hint="pass runs of the same benchmark")
    found: list[LintFinding] = []
    for task in shared:
        tables = [sources[0].read_score_table(task)]
        tables += [source.read_score_table(task, tables[0].kind) for source in sources[1:]]
        if any(table.kind != tables[0].kind for table in tables):
            tables = [source.read_score_table(task, "files") for source in sources]
        found += _find_duplicates(tables[0])
        if len(sources) > 1:
            found += _find_item_problems(tables)
        excerpts = list(sources[0].read_excerpts(task, tables[0].documents[:_MAX_INSPECTED]).values())
        found += _find_leakage(sources, tables)
        found += _find_position_bias(task, excerpts)
        if blind is not None and task in blind.tasks:
            found += _find_blind_answers(tables[0], blind.read_score_table(task, tables[0].kind))
    return found


def _find_duplicates(table: ScoreTable) -> Iterator[LintFinding]:
    """Find documents that occur more than once."""
    seen: dict[Any, list[int]] = {}
    for document, content in zip(table.documents, table.content_digests, strict=True):
        if content is not None:
            seen.setdefault(content, []).append(document)
    several = [documents for documents in seen.values() if len(documents) > 1]
    if several:
        extra = [document for documents in several for document in documents[1:]]
        yield LintFinding(
            kind="duplicates",
            task=table.task,
            what="documents are duplicates of others: they count twice and make the interval too narrow",
            count=len(extra),
            total=len(table.documents),
            documents=tuple(extra[:_MAX_LISTED]),
        )


def _find_item_problems(tables: Sequence[ScoreTable]) -> Iterator[LintFinding]:
    """Find documents that no run or every run gets right, and those on which weaker models score higher."""
    scores, rows = _build_score_matrix(tables)
    if scores.shape[1] < 2:
        return
    found, first = analyse_items(scores), tables[0]
    by_chance = round(0.05 * int(np.isfinite(found.discrimination).sum()))
    texts = {
        "never": "documents that no run gets right: too hard, or the target is wrong",
        "always": "documents that every run gets right: they do not distinguish the models",
        "negative": "documents on which weaker models score higher: the target may be wrong"
        f" (about {by_chance} expected by chance; the most extreme first)",
    }
    for kind, places in (("never", found.never), ("always", found.always), ("negative", found.negative)):
        if len(places):
            named = tuple(first.documents[rows[place]] for place in places[:_MAX_LISTED].tolist())
            yield LintFinding(
                kind=kind,
                task=first.task,
                what=texts[kind],
                count=len(places),
                total=scores.shape[1],
                documents=named,
            )


def _build_score_matrix(tables: Sequence[ScoreTable]) -> tuple[Floats, list[int]]:
    """Return scores with a row per run and a column per document scored in all; and their rows in the first run."""
    empty: tuple[Floats, list[int]] = (np.empty((len(tables), 0)), [])
    columns = [scores_from_column(next(iter(table.columns.values()))) for table in tables if table.columns]
    if len(columns) < len(tables):
        return empty
    size = len(tables[0].documents)
    scores = np.full((len(tables), size), np.nan)
    for index, (table, column) in enumerate(zip(tables, columns, strict=True)):
        if column is None:
            return empty
        pairing = pair_documents(tables[0], table)
        scores[index, pairing.first] = column[pairing.second]
    kept = np.flatnonzero(~np.isnan(scores).any(axis=0))
    return scores[:, kept], kept.tolist()


def _find_leakage(sources: Sequence[ScoreTableSource], tables: Sequence[ScoreTable]) -> Iterator[LintFinding]:
    """Find questions that occur in their own few-shot examples, in the first run that has examples."""
    both = zip(sources, tables, strict=True)
    found = next(((source, table) for source, table in both if table.facts.get("few-shot examples")), None)
    if found is None:
        return
    source, table = found
    excerpts = list(source.read_excerpts(table.task, table.documents[:_MAX_INSPECTED]).values())
    leaked = []
    for excerpt in excerpts:
        before, _, question = excerpt.prompt.rpartition("\n\n")
        if len(question.strip()) > 8 and question.strip() in before:
            leaked.append(excerpt.document)
    if leaked:
        yield LintFinding(
            kind="leakage",
            task=table.task,
            what="questions occur in their own few-shot examples, with the answer",
            count=len(leaked),
            total=len(excerpts),
            documents=tuple(leaked[:_MAX_LISTED]),
        )


def _find_position_bias(task: str, excerpts: Sequence[DocumentExcerpt]) -> Iterator[LintFinding]:
    """Find choice positions that the model or the targets prefer."""
    chosen, correct, counts = [], [], Counter[int]()
    for excerpt in excerpts:
        places = len(excerpt.responses)
        if places < 2 or not excerpt.target.isdigit() or int(excerpt.target) >= places:
            continue
        try:
            values = [float(text) for text in excerpt.responses]
        except ValueError:
            return  # texts, not likelihoods: the position of a choice is unknown
        counts[places] += 1
        chosen.append(int(np.argmax(values)))
        correct.append(int(excerpt.target))
    if not counts or len(chosen) < 20:
        return
    places = max(counts)
    shares, wanted, p_value = measure_position_bias(chosen, correct, places)
    if p_value < 0.01:
        preferred = int(np.argmax(shares - wanted))
        text = f"the first run chooses position {preferred + 1} in {100 * shares[preferred]:.0f} % of documents; it is the target in {100 * wanted[preferred]:.0f} %"
        yield LintFinding(
            kind="position", task=task, what=text, count=chosen.count(preferred), total=len(chosen)
        )
    even = 1 / places
    often = int(np.argmax(wanted))
    if len(counts) == 1 and wilson_interval(correct.count(often), len(correct), level=0.99).low > 1.2 * even:
        text = f"the target is at position {often + 1} in {100 * wanted[often]:.0f} % of documents instead of {100 * even:.0f} %"
        yield LintFinding(
            kind="position", task=task, what=text, count=correct.count(often), total=len(correct)
        )


def _find_blind_answers(table: ScoreTable, other: ScoreTable) -> Iterator[LintFinding]:
    """Compare the score with that of a run without the images."""
    pairing = pair_documents(table, other)
    columns = [scores_from_column(next(iter(one.columns.values()))) for one in (table, other) if one.columns]
    if len(columns) < 2 or columns[0] is None or columns[1] is None:
        return
    seen, unseen = columns[0][pairing.first], columns[1][pairing.second]
    kept = ~(np.isnan(seen) | np.isnan(unseen))
    if not kept.any():
        return
    right = kept & (unseen > 0)
    share = 100 * float(unseen[kept].mean()) / max(100 * float(seen[kept].mean()), 1e-9)
    text = (
        f"documents are answered correctly without the image: {float(unseen[kept].mean()):.4f} compared with {float(seen[kept].mean()):.4f}"
        f" with it, {100 * share:.0f} % of the score"
    )
    named = tuple(table.documents[pairing.first[row]] for row in np.flatnonzero(right)[:_MAX_LISTED].tolist())
    yield LintFinding(
        kind="blind",
        task=table.task,
        what=text,
        count=int(right.sum()),
        total=int(kept.sum()),
        documents=named,
    )
