"""Differences between two runs other than the model: documents, prompts, settings, scoring, judges, dtype.

Some of them leave open what causes a difference in scores (`Mismatch.blocks`): no run is called better then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from assay.store.documents.score_tables import ScoreTable, ScoreTableSource
from assay.viewer.comparison.pairing import Pairing
from assay.viewer.comparison.records import Mismatch

__all__ = [
    "excerpt_difference",
    "excerpt_facts",
    "find_blocking_kinds",
    "find_run_mismatches",
    "find_task_mismatches",
    "format_pair",
]

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
    "judges": "judge",
    "agent tools": "tools",
}
_BLOCKS = {
    "template": "prompts",
    "prompts": "prompts",
    "few-shot": "prompts",
    "scoring": "scoring",
    "judge": "judge",
}
_IDENTITY = ("dtype", "revision", "quantisation", "backend")
_MAX_LENGTH = 60
_MAX_COMMON_PREFIX = 20


def find_run_mismatches(first: ScoreTableSource, second: ScoreTableSource) -> Iterator[Mismatch]:
    """Yield the options of the runs that differ."""
    same_model = first.model == second.model
    yield from _compare_facts("", first.facts, second.facts, same_model=same_model)
    for name in _IDENTITY if same_model else ("dtype", "quantisation"):
        one, other = first.facts.get(name), second.facts.get(name)
        if one is None or other is None or _is_equal(one, other):
            continue
        yield Mismatch(
            kind="identity",
            task="",
            what=f"{name}: {format_pair(one, other)}",
            # another model has a dtype of its own, and a backend computes the same model
            blocks="identity" if same_model and name != "backend" else "",
        )


def find_task_mismatches(
    first: ScoreTable, second: ScoreTable, pairing: Pairing, *, same_model: bool = False
) -> Iterator[Mismatch]:
    """Yield what differs in one task: documents, prompts, settings, scoring, judges."""
    task, shared = first.task, len(pairing.first)
    if pairing.only_first or pairing.only_second:
        what = f"{shared} documents are in both runs, {pairing.only_first} only in the first, {pairing.only_second} only in the second"
        yield Mismatch(kind="documents", task=task, what=what)
    if pairing.by_number:
        yield Mismatch(
            kind="pairing",
            task=task,
            what="one of the runs stores no contents of documents; documents were paired by number",
            blocks="pairing",
        )
    if differ := int(pairing.prompts_differ.sum()):
        yield Mismatch(
            kind="prompts",
            task=task,
            what="the prompts differ",
            count=differ,
            total=shared,
            blocks="prompts",
        )
    yield from _compare_facts(task, first.facts, second.facts, same_model=same_model)
    endings = (_count_unscored(first), _count_unscored(second))
    if endings[0] != endings[1] and "" not in (*first.endings[:1], *second.endings[:1]):
        what = f"not scored in the first run: {endings[0] or 'none'}; in the second: {endings[1] or 'none'}"
        yield Mismatch(kind="endings", task=task, what=what)


def find_blocking_kinds(
    mismatches: Iterable[Mismatch], *, metric: str, pipeline: str, allow: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the kinds of mismatches because of which neither run can be called better in a metric."""
    allowed = set(allow)
    if "all" in allowed:
        return ()
    found = [
        one.blocks
        for one in mismatches
        if one.blocks and (not one.names or {metric, metric.rpartition(".")[0], pipeline} & {*one.names})
    ]
    return tuple(kind for kind in dict.fromkeys(found) if kind not in allowed)


def _compare_facts(
    task: str, first: Mapping[str, Any], second: Mapping[str, Any], *, same_model: bool
) -> Iterator[Mismatch]:
    """Yield the facts that both sides know and that differ."""
    for name, kind in _MISMATCH_KINDS.items():
        if name not in first or name not in second or _is_equal(first[name], second[name]):
            continue
        one, other = first[name], second[name]
        if task and (one is None or other is None):
            continue  # unknown on one side
        blocks = _BLOCKS.get(kind, "")
        if kind == "template" and not same_model and None not in (one, other):
            blocks = ""  # each model has a chat template of its own
        if kind == "scoring" and isinstance(one, Mapping) and isinstance(other, Mapping):
            # a metric that only one run has cannot be compared anyway
            changed = sorted(key for key in {*one, *other} if one.get(key) != other.get(key))
            what = f"{name} changed: {', '.join(changed)}"
            yield Mismatch(kind=kind, task=task, what=what, blocks=blocks, names=tuple(changed))
        elif kind == "judge":
            judged = [name for facts in (first, second) for name in facts.get("judged metrics") or ()]
            what = f"{name}: {format_pair(one, other)}"
            yield Mismatch(kind=kind, task=task, what=what, blocks=blocks, names=tuple(dict.fromkeys(judged)))
        elif isinstance(one, Mapping) and isinstance(other, Mapping):
            for key in sorted({*map(str, one), *map(str, other)}):
                if one.get(key) != other.get(key):
                    what = f"{name}: {key} is {format_pair(one.get(key), other.get(key))}"
                    yield Mismatch(kind=kind, task=task, what=what, blocks=blocks)
        else:
            yield Mismatch(kind=kind, task=task, what=f"{name}: {format_pair(one, other)}", blocks=blocks)


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


def format_pair(first: Any, second: Any) -> str:
    """Format two different values, long ones shortened to the place where they differ.

    >>> format_pair("float32", "bfloat16")
    'float32 and bfloat16'
    >>> format_pair("x" * 100 + "1", "x" * 100 + "2")
    '…xxxxxxxxxxxxxxxxxxxx1 and …xxxxxxxxxxxxxxxxxxxx2'

    Of two mappings, only the keys that differ are shown, and a nested mapping of one side by its key:

    >>> format_pair({"top_k": 3, "until": "x"}, {"top_k": 4, "until": "x"})
    'top_k=3 and top_k=4'
    >>> format_pair({"gpt": {"api": "chat"}}, {"claude": {"api": "chat"}})
    'gpt and claude'
    """
    return " and ".join(excerpt_facts(first, second, _MAX_LENGTH))


def excerpt_facts(first: Any, second: Any, length: int) -> tuple[str, str]:
    """Return two different values as texts of about `length` characters; of two mappings, only the keys that differ."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        first, second = _format_differing_keys(first, second), _format_differing_keys(second, first)
    return excerpt_difference(_format_fact(first), _format_fact(second), length)


def _format_differing_keys(value: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    parts = []
    for key, item in sorted(value.items(), key=str):
        rest = other.get(key)
        if key in other and rest == item:
            continue
        if not isinstance(item, Mapping):
            parts.append(f"{key}={item}")
        elif isinstance(rest, Mapping):
            parts.append(f"{key} ({_format_differing_keys(item, rest)})")
        else:
            parts.append(str(key))
    return ", ".join(parts) or "none"


def _format_fact(value: Any) -> str:
    """Format a setting as one text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in sorted(value.items(), key=str)) or "none"
    return "none" if value is None else str(value)


def excerpt_difference(first: str, second: str, length: int) -> tuple[str, str]:
    """Return both texts, or, if one is longer than `length`, excerpts that start shortly before they diverge.

    >>> excerpt_difference("one", "two", 10)
    ('one', 'two')
    >>> excerpt_difference("a" * 50 + "b", "a" * 50 + "c", 10)
    ('…aaaaab', '…aaaaac')
    """
    if max(len(first), len(second)) <= length:
        return first, second
    pairs = enumerate(zip(first, second, strict=False))
    index = next((index for index, both in pairs if both[0] != both[1]), min(len(first), len(second)))
    start = max(0, index - min(_MAX_COMMON_PREFIX, length // 2))
    found = []
    for text in (first, second):
        shown = text[start : start + length]
        found.append(f"{'…' if start else ''}{shown}{'…' if start + length < len(text) else ''}")
    return found[0], found[1]
