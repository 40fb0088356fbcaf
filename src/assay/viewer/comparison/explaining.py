"""`explain`: why two runs of the same benchmark differ.

Every document whose score differs is looked at from the end backwards: were the answers the same, so that extraction or the
metric made the difference? Was one cut off, or missing? Were the models asked the same, with the same settings? What is left
is the model itself. The shares add up to the gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from assay.core.errors import UserMistake
from assay.store.sheets import Look, Sheet, SheetSource
from assay.viewer.comparison.comparing import shared_columns
from assay.viewer.comparison.mismatches import run_mismatches, task_mismatches
from assay.viewer.comparison.models import speaker_of
from assay.viewer.comparison.pairing import Pairing, numbers_in, pair
from assay.viewer.comparison.records import Mismatch

__all__ = ["CAUSES", "Cause", "Example", "Explanation", "explain_sources"]

CAUSES = {
    "documents": "the runs do not have the same documents, or their contents or targets changed",
    "no answer": "one run has no score for the document",
    "extraction": "the model said the same; a filter made something else of it",
    "metric": "the answers are the same; they were scored differently",
    "truncated": "one answer hit the token limit",
    "chat template": "the prompt went through another chat template, or none",
    "few-shot": "other few-shot examples",
    "prompt": "other words were asked",
    "settings": "other generation settings",
    "tokens": "the same text was read as another number of tokens: a start token, a template, a cut",
    "model": "asked the same in the same way, the model said something else",
}
"""What a difference can come from, in the order in which it is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One document that shows a cause."""

    document: int
    first_score: float | None
    second_score: float | None
    first: str
    second: str
    """What is different, as it was in either run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason for the gap."""

    name: str
    documents: int
    """Whose scores differ for it."""

    gap: float
    """What they add to the difference of the two numbers."""

    examples: tuple[Example, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Where the gap between two runs of a task comes from."""

    task: str
    metric: str
    first: float
    second: float
    documents: int
    """That both have."""

    causes: tuple[Cause, ...]
    mismatches: tuple[Mismatch, ...] = ()
    same_model: bool = False

    @property
    def gap(self) -> float:
        """The second number minus the first."""
        return self.second - self.first

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**asdict(self), "gap": self.gap}


def explain_sources(
    first: SheetSource, second: SheetSource, tasks: Sequence[str] = (), metric: str = "", examples: int = 2
) -> list[Explanation]:
    """Why the tasks of two runs differ.

    Raises:
        UserMistake: They have nothing in common that can be looked at.
    """
    shared = [task for task in first.tasks if task in second.tasks and (not tasks or task in tasks)]
    found = [one for task in shared if (one := _explain(first, second, task, metric, examples)) is not None]
    if not found:
        raise UserMistake(
            "the runs have no task with scores of single documents in common",
            hint=f"the first has: {', '.join(first.tasks)}; the second: {', '.join(second.tasks)}",
        )
    return found


def _explain(
    first: SheetSource, second: SheetSource, task: str, metric: str, examples: int
) -> Explanation | None:
    first, second = speaker_of(first, task), speaker_of(second, task)
    one = first.sheet(task)
    other = second.sheet(task, one.kind)
    if other.kind != one.kind:
        one = first.sheet(task, other.kind)
    columns = [both for both in shared_columns(one, other) if metric in ("", both[0].metric)]
    if not columns:
        return None
    column = columns[0][0]
    before, after = (numbers_in(both) for both in columns[0])
    if before is None or after is None:
        return None
    if np.isnan(before).all() or np.isnan(after).all():
        return None
    pairing = pair(one, other)
    whole = float(np.nanmean(before)), float(np.nanmean(after))
    left, right = before[pairing.first], after[pairing.second]
    scored = ~(np.isnan(left) | np.isnan(right))
    facts = _facts(first, second, one, other)
    gaps: dict[str, list[tuple[int, float]]] = {}
    size = max(int(scored.sum()), 1)
    rows = np.flatnonzero(scored & (left != right)).tolist()
    looks = _looks(first, second, task, one, other, pairing, rows)
    for row in rows:
        cause = _cause(looks[row], pairing, row, column.pipeline, facts)
        gaps.setdefault(cause, []).append((row, float(right[row] - left[row]) / size))
    shared = (float(left[scored].mean()), float(right[scored].mean())) if scored.any() else whole
    rest = (whole[1] - shared[1]) - (whole[0] - shared[0])
    lost = int((~scored).sum())
    name = "no answer" if lost and not (pairing.only_first or pairing.only_second) else "documents"
    causes = []
    for cause in CAUSES:
        listed = gaps.get(cause, [])
        extra = rest if cause == name else 0.0
        count = len(listed) + (lost + pairing.only_first + pairing.only_second if extra else 0)
        if count:
            shown = tuple(
                _example(
                    cause,
                    looks[row],
                    one.documents[pairing.first[row]],
                    left[row],
                    right[row],
                    column.pipeline,
                )
                for row, _ in listed[:examples]
            )
            causes.append(
                Cause(
                    name=cause, documents=count, gap=sum(step for _, step in listed) + extra, examples=shown
                )
            )
    return Explanation(
        task=task,
        metric=column.metric,
        first=whole[0],
        second=whole[1],
        documents=size if scored.any() else 0,
        causes=tuple(causes),
        mismatches=(*run_mismatches(first, second), *task_mismatches(one, other, pairing)),
        same_model=first.model == second.model,
    )


def _facts(first: SheetSource, second: SheetSource, one: Sheet, other: Sheet) -> dict[str, bool]:
    """Which settings of the runs and the task differ."""

    def differs(name: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
        return name in left and name in right and left[name] != right[name]

    return {
        "chat template": differs("chat template", first.facts, second.facts),
        "few-shot": differs("few-shot examples", one.facts, other.facts)
        or differs("few-shot as turns", first.facts, second.facts),
        "settings": differs("generation settings", one.facts, other.facts)
        and None not in (one.facts["generation settings"], other.facts["generation settings"]),
    }


def _looks(
    first: SheetSource,
    second: SheetSource,
    task: str,
    one: Sheet,
    other: Sheet,
    pairing: Pairing,
    rows: Sequence[int],
) -> dict[int, tuple[Look, Look]]:
    before = {row: one.documents[pairing.first[row]] for row in rows}
    after = {row: other.documents[pairing.second[row]] for row in rows}
    left, right = first.looks(task, list(before.values())), second.looks(task, list(after.values()))
    return {
        row: (
            left.get(before[row], Look(document=before[row])),
            right.get(after[row], Look(document=after[row])),
        )
        for row in rows
    }


def _cause(
    looks: tuple[Look, Look], pairing: Pairing, row: int, pipeline: str, facts: Mapping[str, bool]
) -> str:
    """The nearest thing to the score that is different."""
    one, other = looks
    if one.target != other.target or pairing.changed:
        return "documents"
    if one.responses == other.responses and any(one.responses):
        same = one.answers.get(pipeline) == other.answers.get(pipeline)
        return "metric" if same else "extraction"
    if any(one.responses) != any(other.responses):
        return "no answer"
    if (one.finish == "length") != (other.finish == "length"):
        return "truncated"
    if pairing.prompts_differ[row]:
        return next((name for name in ("chat template", "few-shot") if facts[name]), "prompt")
    if facts["chat template"]:
        return "chat template"
    if (one.settings and other.settings and one.settings != other.settings) or facts["settings"]:
        return "settings"
    if None not in (one.input_tokens, other.input_tokens) and one.input_tokens != other.input_tokens:
        return "tokens"
    return "model"


def _example(
    cause: str, looks: tuple[Look, Look], document: int, first: float, second: float, pipeline: str
) -> Example:
    one, other = looks
    match cause:
        case "prompt" | "few-shot" | "chat template":
            texts = _where_different(one.prompt, other.prompt)
        case "settings":
            texts = one.settings, other.settings
        case "tokens":
            texts = f"{one.input_tokens} tokens", f"{other.input_tokens} tokens"
        case "documents":
            texts = one.target, other.target
        case "extraction":
            texts = one.answers.get(pipeline, ""), other.answers.get(pipeline, "")
        case _:
            texts = " | ".join(one.responses), " | ".join(other.responses)
    return Example(
        document=document,
        first_score=float(first),
        second_score=float(second),
        first=texts[0],
        second=texts[1],
    )


def _where_different(first: str, second: str) -> tuple[str, str]:
    """Two texts from a little before the place where they part."""
    at = next((at for at, both in enumerate(zip(first, second, strict=False)) if both[0] != both[1]), None)
    start = max(0, (min(len(first), len(second)) if at is None else at) - 20)
    before = "…" if start else ""
    return before + first[start : start + 120], before + second[start : start + 120]
