"""`explain`: why two runs of the same benchmark have different scores.

Every document whose score differs is attributed to one cause. The causes are tested from the score backwards: equal responses
point to extraction or the metric; then come missing and truncated responses, prompts and settings; the rest is the model
itself. The contributions of the causes add up to the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from assay.core.errors import UserError
from assay.store.documents.score_tables import DocumentExcerpt, ScoreTable, ScoreTableSource
from assay.viewer.comparison.mismatches import (
    excerpt_difference,
    excerpt_facts,
    find_run_mismatches,
    find_task_mismatches,
    format_pair,
)
from assay.viewer.comparison.model_scores import find_source
from assay.viewer.comparison.name_selection import check_metric_names, select_shared_tasks
from assay.viewer.comparison.pairing import Pairing, pair_documents, scores_from_column
from assay.viewer.comparison.records import Mismatch
from assay.viewer.comparison.run_comparison import match_columns

__all__ = ["CAUSES", "Cause", "Example", "Explanation", "explain_difference"]

CAUSES = {
    "documents": "the runs have different documents, or targets changed",
    "no answer": "one run has no score for the document",
    "extraction": "the responses are equal; a filter extracted different answers",
    "judge": "the answers are equal; different judges scored them",
    "changed metric": "the answers are equal; the definition of the metric changed",
    "metric": "the answers are equal; they were scored differently",
    "truncated": "one response reached the token limit",
    "chat template": "the prompts use different chat templates, or one uses none",
    "few-shot seed": "the few-shot examples differ because they were sampled with another seed",
    "few-shot": "the few-shot examples differ",
    "prompt": "the prompts differ",
    "settings": "the generation settings differ",
    "tokens": "equal prompts have different token counts: a start token, a template, truncation",
    "quantisation": "prompts and settings are equal; the quantisation of the model differs",
    "dtype": "prompts and settings are equal; the dtype of the model differs",
    "revision": "prompts and settings are equal; the revision of the model differs",
    "backend": "prompts and settings are equal; different backends computed the model",
    "model": "prompts and settings are equal; the model responded differently",
}
"""Cause -> description, in the order of the tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One document that illustrates a cause."""

    document: int
    first_score: float | None
    second_score: float | None
    first: str
    second: str
    """The differing text of either run, from shortly before the place where they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause of the difference."""

    name: str
    documents: int
    """The number of documents with this cause."""

    gap: float
    """Their contribution to the difference of the two scores."""

    detail: str = ""
    """The two values of the setting that differs, such as `float32 and bfloat16`."""

    examples: tuple[Example, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The causes of the difference between two runs of a task."""

    task: str
    metric: str
    first: float
    second: float
    documents: int
    """The number of documents scored in both runs."""

    causes: tuple[Cause, ...]
    mismatches: tuple[Mismatch, ...] = ()
    same_model: bool = False

    @property
    def gap(self) -> float:
        """The second score minus the first."""
        return self.second - self.first

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {**asdict(self), "gap": self.gap}


def explain_difference(
    first: ScoreTableSource,
    second: ScoreTableSource,
    tasks: Sequence[str] = (),
    metric: str = "",
    examples: int = 2,
) -> list[Explanation]:
    """Explain the differences of each task that two runs share.

    Raises:
        UnknownName: The runs do not share a task or metric that is given by name.
        UserError: The runs share no task with document scores.
    """
    shared = select_shared_tasks((first, second), tasks)
    if metric:
        tables = (_read_score_tables(first, second, task) for task in shared)
        known = [column.metric for both in tables for column, _ in match_columns(*both)]
        if known:  # without any, the runs have no documents
            check_metric_names([metric], known)
    found = [
        one for task in shared if (one := _explain_task(first, second, task, metric, examples)) is not None
    ]
    if not found:
        raise UserError(
            "the runs share no task with document scores",
            hint=f"the first has: {', '.join(first.tasks)}; the second: {', '.join(second.tasks)}"
            + _name_sources_without_documents(first, second, shared),
        )
    return found


def _name_sources_without_documents(
    first: ScoreTableSource, second: ScoreTableSource, tasks: Sequence[str]
) -> str:
    names = [
        source.name
        for source in (first, second)
        if tasks and not any(source.read_score_table(task).documents for task in tasks)
    ]
    return "".join(f"; `{name}` has aggregate scores only, no documents" for name in dict.fromkeys(names))


def _read_score_tables(
    first: ScoreTableSource, second: ScoreTableSource, task: str
) -> tuple[ScoreTable, ScoreTable]:
    """Return the scores of a task in both runs, of the same kind."""
    one = first.read_score_table(task)
    other = second.read_score_table(task, one.kind)
    return (one if other.kind == one.kind else first.read_score_table(task, other.kind)), other


def _explain_task(
    first: ScoreTableSource, second: ScoreTableSource, task: str, metric: str, examples: int
) -> Explanation | None:
    first, second = find_source(first, task), find_source(second, task)
    one, other = _read_score_tables(first, second, task)
    columns = [both for both in match_columns(one, other) if metric in ("", both[0].metric)]
    if not columns:
        return None
    column = columns[0][0]
    before, after = (scores_from_column(both) for both in columns[0])
    if before is None or after is None:
        return None
    if np.isnan(before).all() or np.isnan(after).all():
        return None
    pairing = pair_documents(one, other)
    whole = float(np.nanmean(before)), float(np.nanmean(after))
    left, right = before[pairing.first], after[pairing.second]
    scored = ~(np.isnan(left) | np.isnan(right))
    facts = _compare_settings(first, second, one, other, column.metric)
    gaps: dict[str, list[tuple[int, float]]] = {}
    size = max(int(scored.sum()), 1)
    rows = np.flatnonzero(scored & (left != right)).tolist()
    excerpts = _read_excerpts(first, second, task, one, other, pairing, rows)
    for row in rows:
        cause = _find_cause(excerpts[row], pairing, row, column.pipeline, facts)
        gaps.setdefault(cause, []).append((row, float(right[row] - left[row]) / size))
    shared = (float(left[scored].mean()), float(right[scored].mean())) if scored.any() else (0.0, 0.0)
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
                _build_example(
                    cause,
                    excerpts[row],
                    one.documents[pairing.first[row]],
                    left[row],
                    right[row],
                    column.pipeline,
                    facts,
                )
                for row, _ in listed[:examples]
            )
            causes.append(
                Cause(
                    name=cause,
                    documents=count,
                    gap=sum(step for _, step in listed) + extra,
                    detail=_describe_values(cause, facts),
                    examples=shown,
                )
            )
    return Explanation(
        task=task,
        metric=column.metric,
        first=whole[0],
        second=whole[1],
        documents=size if scored.any() else 0,
        causes=tuple(causes),
        mismatches=(
            *find_run_mismatches(first, second),
            *find_task_mismatches(one, other, pairing, same_model=first.model == second.model),
        ),
        same_model=first.model == second.model,
    )


Facts = Mapping[str, tuple[Any, Any]]
"""Cause -> the two values of its setting, for the settings that differ."""


def _compare_settings(
    first: ScoreTableSource, second: ScoreTableSource, one: ScoreTable, other: ScoreTable, metric: str
) -> Facts:
    """Return the settings of the runs and the task that differ."""
    pairs: dict[str, tuple[Any, Any]] = {
        "chat template": (first.facts.get("chat template"), second.facts.get("chat template")),
        "few-shot seed": (first.facts.get("few-shot seed"), second.facts.get("few-shot seed")),
        "few-shot": (one.facts.get("few-shot examples"), other.facts.get("few-shot examples")),
        "settings": (one.facts.get("generation settings"), other.facts.get("generation settings")),
        "judge": (one.facts.get("judges"), other.facts.get("judges")),
        "changed metric": _find_definitions(one, other, metric),
        **{
            name: (first.facts.get(name), second.facts.get(name))
            for name in ("quantisation", "dtype", "revision", "backend")
            if first.model == second.model
        },
    }
    found = {
        name: both
        for name, both in pairs.items()
        if both[0] != both[1] and (None not in both or name == "chat template")
    }
    turns = (first.facts.get("few-shot as turns"), second.facts.get("few-shot as turns"))
    if "few-shot" not in found and None not in turns and turns[0] != turns[1]:
        found["few-shot"] = (f"as turns: {turns[0]}", f"as turns: {turns[1]}")
    if not (first.facts and second.facts):
        found.pop("chat template", None)  # unknown on one side
    return found


def _find_definitions(one: ScoreTable, other: ScoreTable, metric: str) -> tuple[Any, Any]:
    """Return the definitions of a metric if its digest changed, else equal values."""
    digests = [(table.facts.get("metrics") or {}).get(metric) for table in (one, other)]
    if None in digests or digests[0] == digests[1]:
        return None, None
    texts = [(table.facts.get("metric definitions") or {}).get(metric, "") for table in (one, other)]
    return (texts[0], texts[1]) if texts[0] != texts[1] else (f"code {digests[0]}", f"code {digests[1]}")


def _describe_values(cause: str, facts: Facts) -> str:
    if cause not in facts:
        return ""
    return format_pair(*facts[cause])


def _read_excerpts(
    first: ScoreTableSource,
    second: ScoreTableSource,
    task: str,
    one: ScoreTable,
    other: ScoreTable,
    pairing: Pairing,
    rows: Sequence[int],
) -> dict[int, tuple[DocumentExcerpt, DocumentExcerpt]]:
    before = {row: one.documents[pairing.first[row]] for row in rows}
    after = {row: other.documents[pairing.second[row]] for row in rows}
    left, right = (
        first.read_excerpts(task, list(before.values())),
        second.read_excerpts(task, list(after.values())),
    )
    return {
        row: (
            left.get(before[row], DocumentExcerpt(document=before[row])),
            right.get(after[row], DocumentExcerpt(document=after[row])),
        )
        for row in rows
    }


def _find_cause(
    excerpts: tuple[DocumentExcerpt, DocumentExcerpt],
    pairing: Pairing,
    row: int,
    pipeline: str,
    facts: Facts,
) -> str:
    """Return the cause that is closest to the score."""
    one, other = excerpts
    if one.target != other.target:
        return "documents"
    if one.responses == other.responses and any(one.responses):
        if one.answers.get(pipeline) != other.answers.get(pipeline):
            return "extraction"
        return next((name for name in ("changed metric", "judge") if name in facts), "metric")
    if any(one.responses) != any(other.responses):
        return "no answer"
    if (one.finish == "length") != (other.finish == "length"):
        return "truncated"
    if pairing.prompts_differ[row]:
        return next(
            (name for name in ("chat template", "few-shot", "few-shot seed") if name in facts), "prompt"
        )
    if "chat template" in facts:
        return "chat template"
    if (one.settings and other.settings and one.settings != other.settings) or "settings" in facts:
        return "settings"
    if None not in (one.input_tokens, other.input_tokens) and one.input_tokens != other.input_tokens:
        return "tokens"
    return next((name for name in ("quantisation", "dtype", "revision", "backend") if name in facts), "model")


_EXAMPLE_LENGTH = 100


def _build_example(
    cause: str,
    excerpts: tuple[DocumentExcerpt, DocumentExcerpt],
    document: int,
    first: float,
    second: float,
    pipeline: str,
    facts: Facts,
) -> Example:
    one, other = excerpts
    match cause:
        case "prompt" | "few-shot" | "few-shot seed" | "chat template":
            texts = one.prompt, other.prompt
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
    if texts[0] == texts[1] and cause in facts:  # the same text: show what differs
        shown = excerpt_facts(*facts[cause], _EXAMPLE_LENGTH)
    else:
        shown = excerpt_difference(*texts, _EXAMPLE_LENGTH)
    return Example(
        document=document,
        first_score=float(first),
        second_score=float(second),
        first=shown[0],
        second=shown[1],
    )
