"""What two runs do not have in common besides the model: the first thing to look at before believing a difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assay.store.sheets import Sheet, SheetSource
from assay.viewer.comparison.pairing import Pairing
from assay.viewer.comparison.records import Mismatch

__all__ = ["run_mismatches", "task_mismatches"]

_KINDS = {
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
_LONGEST = 60


def run_mismatches(first: SheetSource, second: SheetSource) -> Iterator[Mismatch]:
    """Options of the whole runs that differ."""
    yield from _differing("", first.facts, second.facts)


def task_mismatches(first: Sheet, second: Sheet, pairing: Pairing) -> Iterator[Mismatch]:
    """What differs about one task: its documents, prompts, settings, scoring."""
    task, shared = first.task, len(pairing.first)
    if pairing.only_first or pairing.only_second:
        what = f"{shared} documents are in both runs, {pairing.only_first} only in the first, {pairing.only_second} only in the second"
        yield Mismatch(kind="documents", task=task, what=what)
    if pairing.changed:
        yield Mismatch(
            kind="documents",
            task=task,
            what="documents of the same number have other contents; they were paired by number",
            count=pairing.changed,
            total=shared,
        )
    if differ := int(pairing.prompts_differ.sum()):
        yield Mismatch(
            kind="prompts", task=task, what="the models were asked differently", count=differ, total=shared
        )
    yield from _differing(task, first.facts, second.facts)
    endings = (_unscored(first), _unscored(second))
    if endings[0] != endings[1] and "" not in (*first.endings[:1], *second.endings[:1]):
        what = f"not scored in the first: {endings[0] or 'none'}; in the second: {endings[1] or 'none'}"
        yield Mismatch(kind="endings", task=task, what=what)


def _differing(task: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Mismatch]:
    """Facts both sides know and do not agree about; what one side does not say is not held against it."""
    for name, kind in _KINDS.items():
        if name not in first or name not in second or _same(first[name], second[name]):
            continue
        if task and (first[name] is None or second[name] is None):
            continue  # one side does not say
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
                        kind=kind, task=task, what=f"{name}: {key} is {_shown(one)} and {_shown(other)}"
                    )
        else:
            yield Mismatch(
                kind=kind, task=task, what=f"{name}: {_shown(first[name])} and {_shown(second[name])}"
            )


def _same(first: Any, second: Any) -> bool:
    """Whether two facts agree; versions may be numbers or texts."""
    return bool(first == second) or str(first) == str(second)


def _unscored(sheet: Sheet) -> str:
    """How many documents ended otherwise than scored."""
    counts: dict[str, int] = {}
    for ending in sheet.endings:
        if ending != "scored":
            counts[ending] = counts.get(ending, 0) + 1
    return ", ".join(f"{count} {ending}" for ending, count in sorted(counts.items()))


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:28]}…{text[-28:]}"
