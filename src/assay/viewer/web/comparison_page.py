"""Two or more runs side by side: differences with intervals, documents that flipped, what else differs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from assay.core.errors import AssayError
from assay.store.index.documents import signature
from assay.store.runs import Run
from assay.store.sheets import Look
from assay.viewer.charts import ScoreMark, on_one_scale, scores_figure, themed
from assay.viewer.comparison.comparing import compare_sources
from assay.viewer.comparison.differences import differences, differences_figure
from assay.viewer.comparison.records import CompareOptions, Comparison, Row
from assay.viewer.comparison.sources import open_source
from assay.viewer.run_facts import is_share
from assay.viewer.web.library import Library
from assay.viewer.web.rendering import chart_json

__all__ = ["Compared", "compare_runs", "comparison_context", "flips_context", "marked_difference", "marks_of"]

FLIPS = 25
"""Flipped documents on a page."""

_LONGEST_DIFF = 6000
_WORD = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The first run against each other one."""

    keys: tuple[str, ...]
    comparisons: tuple[Comparison | None, ...]
    """One per further run; None where nothing can be compared."""

    why: tuple[str, ...]
    marks: tuple[ScoreMark, ...]
    settings: tuple[tuple[str, tuple[str, ...]], ...]
    """(name, value per run) of everything that differs."""


def marks_of(library: Library, keys: Sequence[str]) -> list[list[int]]:
    """What changes when one of the runs does."""
    from assay.store.journal import FILE_NAME

    return [signature(library.folder(key) / FILE_NAME) for key in keys]


def compare_runs(library: Library, keys: Sequence[str], metric: str = "") -> Compared:
    """Everything the page shows that takes a look at every document."""
    sources = []
    try:
        for key in keys:
            sources.append(open_source(Run(library.folder(key))))
        options = CompareOptions(metrics=[metric] if metric else [], flips=True)
        found: list[Comparison | None] = []
        why = []
        for other in sources[1:]:
            try:
                found.append(compare_sources(sources[0], other, options))
                why.append("")
            except AssayError as error:
                found.append(None)
                why.append(error.what)
        marks = [
            mark for key, source in zip(keys, sources, strict=True) for mark in _marks(key, source.numbers())
        ]
    finally:
        for source in sources:
            source.close()
    return Compared(
        keys=tuple(keys),
        comparisons=tuple(found),
        why=tuple(why),
        marks=tuple(marks),
        settings=tuple(_settings(library, keys)),
    )


def _marks(key: str, numbers: Sequence[Any]) -> list[ScoreMark]:
    """The first number of every task."""
    found: dict[str, ScoreMark] = {}
    for estimate in numbers:
        value = estimate.value
        if estimate.task in found or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        low, high = estimate.interval or (None, None)
        found[estimate.task] = ScoreMark(
            name=estimate.task,
            metric=estimate.metric,
            value=float(value),
            low=low,
            high=high,
            run=key,
            share=is_share(estimate),
            higher_is_better=estimate.higher_is_better,
        )
    return list(found.values())


def _settings(library: Library, keys: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """What the manifests do not agree about: options, model, versions, hardware, tasks."""
    flat = []
    for key in keys:
        with library.run(key) as run:
            manifest = run.facts.get("manifest")
            flat.append(_flat(manifest if isinstance(manifest, dict) else {}))
    found: list[tuple[str, tuple[str, ...]]] = []
    of_tasks: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name in sorted(
        {name for one in flat for name in one}, key=lambda name: (_WANTED.index(name.partition(".")[0]), name)
    ):
        values = tuple(one.get(name, "–") for one in flat)
        if len(set(values)) == 1:
            continue
        if name.startswith("tasks."):
            _, task, what = name.split(".", 2)
            of_tasks.setdefault((what, values), []).append(task)
        else:
            found.append((name, values))
    for (what, values), tasks in of_tasks.items():
        named = ", ".join(tasks[:3]) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")
        found.append((f"{what} of {named}", values))
    return found


_WANTED = ("options", "model", "judges", "seeds", "versions", "hardware", "code", "commits", "tasks")
_PASSED_OVER = ("options.output_path", "options.use_cache", "options.log_samples")


def _flat(manifest: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}

    def walk(name: str, value: Any, depth: int) -> None:
        if isinstance(value, Mapping) and depth < 5:
            for key, part in value.items():
                walk(f"{name}.{key}", part, depth + 1)
        elif name not in _PASSED_OVER and not (name.startswith("tasks.") and name.endswith(".digest")):
            text = str(value)
            found[name] = text if len(text) <= 200 else f"{text[:199]}…"

    for part in _WANTED:
        if part == "tasks":
            for task, about in dict(manifest.get(part, {})).items():
                walk(f"tasks.{str(task).replace('.', '·')}", about, 1)
        elif part in manifest:
            walk(part, manifest[part], 0)
    return found


def comparison_context(compared: Compared) -> dict[str, Any]:
    """Charts and tables of a comparison."""
    tables = []
    for key, comparison, why in zip(compared.keys[1:], compared.comparisons, compared.why, strict=True):
        charts = []
        if comparison is not None:
            charts = [
                chart_json(themed(partial(differences_figure, together, comparison.level)))
                for together in differences(comparison)
            ]
        tables.append({"key": key, "comparison": comparison, "why": why, "charts": charts})
    several = [marks for marks in on_one_scale(compared.marks) if len(marks) > 1]
    return {
        "tables": tables,
        "score_charts": [chart_json(themed(partial(scores_figure, marks))) for marks in several],
        "settings": compared.settings,
        "metrics": sorted({row.metric for one in compared.comparisons if one for row in one.rows}),
    }


def flips_context(
    library: Library, compared: Compared, *, against: str, task: str, side: str, page: int
) -> dict[str, Any]:
    """A page of the documents on which two of the runs disagree."""
    at = compared.keys.index(against) - 1 if against in compared.keys[1:] else 0
    comparison = compared.comparisons[at]
    rows = [row for row in (comparison.rows if comparison else ()) if row.flips]
    chosen = next((row for row in rows if row.task == task), rows[0] if rows else None)
    flips = list(chosen.flips) if chosen is not None else []
    if chosen is not None and side in ("better", "worse"):
        upward = (side == "better") == chosen.higher_is_better
        flips = [flip for flip in flips if (flip.second > flip.first) == upward]
    pages = max(1, -(-len(flips) // FLIPS))
    page = min(max(1, page), pages)
    shown = flips[(page - 1) * FLIPS : page * FLIPS]
    keys = (compared.keys[0], compared.keys[1 + at])
    looks = _looks(library, keys, chosen.task if chosen else "", shown)
    return {
        "against": keys[1],
        "tasks": [(row.task, len(row.flips)) for row in rows],
        "task": chosen.task if chosen else "",
        "metric": chosen.metric if chosen else "",
        "side": side,
        "flips": [
            {
                "flip": flip,
                "first": _told(looks[0].get(flip.document), chosen),
                "second": _told(looks[1].get(flip.other), chosen),
                "target": (looks[0].get(flip.document) or Look(document=0)).target,
                "better": chosen is not None and (flip.second > flip.first) == chosen.higher_is_better,
            }
            for flip in shown
        ],
        "found": len(flips),
        "page": page,
        "pages": pages,
    }


def _looks(
    library: Library, keys: tuple[str, str], task: str, flips: Sequence[Any]
) -> tuple[dict[int, Look], dict[int, Look]]:
    if not flips:
        return {}, {}
    found = []
    for key, name in zip(keys, ("document", "other"), strict=True):
        source = open_source(Run(library.folder(key)))
        try:
            found.append(source.looks(task, [getattr(flip, name) for flip in flips]))
        finally:
            source.close()
    return found[0], found[1]


def _told(look: Look | None, row: Row | None) -> str:
    if look is None:
        return ""
    text = look.answers.get(row.pipeline if row else "", "") or " | ".join(look.responses)
    line = " ".join(text.split())
    return line if len(line) <= 240 else f"{line[:239]}…"


def marked_difference(first: str, second: str) -> list[tuple[str, bool]]:
    """A text cut into pieces: (piece, whether the first text has it otherwise), word by word."""
    if len(first) + len(second) > _LONGEST_DIFF:
        return [(second, False)]
    before, after = _WORD.findall(first), _WORD.findall(second)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    pieces = []
    for kind, _, _, begin, end in matcher.get_opcodes():
        if end > begin:
            pieces.append(("".join(after[begin:end]), kind != "equal"))
    return pieces
