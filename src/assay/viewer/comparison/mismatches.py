"""Differences between two runs other than the model: documents, prompts, settings, scoring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assay.store.documents.score_tables import ScoreTable, ScoreTableSource
from assay.viewer.comparison.pairing import Pairing
from assay.viewer.comparison.records import Mismatch

__all__ = ["find_run_mismatches", "find_task_mismatches"]

_MISMATCH_KINDS = {
    "chat template": "template",
    "system instruction": "prompts",
    "few-shot as turns": "few-shot",
    "few-shot examples": "few-shot",
    "gen_kwargs": "sampling",
    "generation settings": "sampling",
    "seed": "settings",
    "limit": "documents",
    "dataset": "documents",
    "task version": "scoring",
    "filters": "scoring",
    "metrics": "scoring",
}
_MAX_LENGTH = 60


def find_run_mismatches(first: ScoreTableSource, second: ScoreTableSource) -> Iterator[Mismatch]:
    """Yield the options of the runs that differ."""
    yield from _compare_facts("", first.facts, second.facts)


def find_task_mismatches(first: ScoreTable, second: ScoreTable, pairing: Pairing) -> Iterator[Mismatch]:
    """Yield what differs in one task: documents, prompts, settings, scoring."""
    task, shared = first.task, len(pairing.first)
    if pairing.only_first or pairing.only_second:
        what = f"{shared} documents are in both runs, {pairing.only_first} only in the first, {pairing.only_second} only in the second"
        yield Mismatch(kind="documents", task=task, what=what)
    if pairing.changed:
        yield Mismatch(
            kind="documents",
            task=task,
            what="documents with the same number have different contents; they were paired by number",
            count=pairing.changed,
            total=shared,
        )
    if differ := int(pairing.prompts_differ.sum()):
        yield Mismatch(kind="prompts", task=task, what="the prompts differ", count=differ, total=shared)
    yield from _compare_facts(task, first.facts, second.facts)
    endings = (_count_unscored(first), _count_unscored(second))
    if endings[0] != endings[1] and "" not in (*first.endings[:1], *second.endings[:1]):
        what = f"not scored in the first run: {endings[0] or 'none'}; in the second: {endings[1] or 'none'}"
        yield Mismatch(kind="endings", task=task, what=what)


def _compare_facts(task: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Mismatch]:
    """Yield the facts that both sides know and that differ."""
    for name, kind in _MISMATCH_KINDS.items():
        if name not in first or name not in second or _is_equal(first[name], second[name]):
            continue
        if task and (first[name] is None or second[name] is None):
            continue  # unknown on one side
        if kind == "scoring" and isinstance(first[name], Mapping) and isinstance(second[name], Mapping):
            changed = [
                key for key in {*first[name], *second[name]} if first[name].get(key) != second[name].get(key)
            ]
            yield Mismatch(kind=kind, task=task, what=f"{name} changed: {', '.join(sorted(changed))}")
        elif isinstance(first[name], Mapping) and isinstance(second[name], Mapping):
            for key in sorted({*map(str, first[name]), *map(str, second[name])}):
                one, other = first[name].get(key), second[name].get(key)
                if one != other:
                    yield Mismatch(
                        kind=kind,
                        task=task,
                        what=f"{name}: {key} is {_abbreviate(one)} and {_abbreviate(other)}",
                    )
        else:
            yield Mismatch(
                kind=kind,
                task=task,
                what=f"{name}: {_abbreviate(first[name])} and {_abbreviate(second[name])}",
            )


def _is_equal(first: Any, second: Any) -> bool:
    """Whether two facts are equal; versions may be numbers or text."""
    return bool(first == second) or str(first) == str(second)


def _count_unscored(table: ScoreTable) -> str:
    """Count the documents that were not scored, by ending."""
    counts: dict[str, int] = {}
    for ending in table.endings:
        if ending != "scored":
            counts[ending] = counts.get(ending, 0) + 1
    return ", ".join(f"{count} {ending}" for ending, count in sorted(counts.items()))


def _abbreviate(value: Any) -> str:
    if value is None:
        return "none"
    text = str(value)
    return text if len(text) <= _MAX_LENGTH else f"{text[:28]}…{text[-28:]}"
