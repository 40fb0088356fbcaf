"""The comparison page: differences with intervals, documents with different scores, different settings."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from assay.core.errors import AssayError
from assay.store.documents.score_tables import DocumentExcerpt
from assay.store.index.document_index import compute_signature
from assay.store.runs.run import Run
from assay.viewer.charts import ScoreMark, build_scores_figure, build_themed_figures, group_by_scale
from assay.viewer.comparison.difference_charts import build_differences_figure, group_differences
from assay.viewer.comparison.records import CompareOptions, Comparison, ComparisonRow
from assay.viewer.comparison.run_comparison import compare_sources
from assay.viewer.comparison.sources import open_source
from assay.viewer.results.run_overview import is_share
from assay.viewer.web.rendering import dump_figures
from assay.viewer.web.run_catalog import RunCatalog

__all__ = [
    "RunComparisons",
    "build_comparison_context",
    "build_flips_context",
    "compare_runs",
    "mark_differences",
    "read_signatures",
]

FLIPS_PER_PAGE = 25
"""The number of documents on a page."""

_MAX_DIFF_LENGTH = 6000
_WORD = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparisons:
    """The comparisons of each run with the first."""

    keys: tuple[str, ...]
    comparisons: tuple[Comparison | None, ...]
    """One per further run; None if it cannot be compared."""

    why: tuple[str, ...]
    marks: tuple[ScoreMark, ...]
    settings: tuple[tuple[str, tuple[str, ...]], ...]
    """(name, value per run) of the settings that differ."""


def read_signatures(catalog: RunCatalog, keys: Sequence[str]) -> list[list[int]]:
    """Return the signatures of the runs' journals, which change when a run changes."""
    from assay.store.journal.journal import JOURNAL_FILE

    return [compute_signature(catalog.folder(key) / JOURNAL_FILE) for key in keys]


def compare_runs(catalog: RunCatalog, keys: Sequence[str], metric: str = "") -> RunComparisons:
    """Compare the runs; this reads every document."""
    sources = []
    try:
        for key in keys:
            sources.append(open_source(Run(catalog.folder(key))))
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
            mark
            for key, source in zip(keys, sources, strict=True)
            for mark in _build_marks(key, source.read_estimates())
        ]
    finally:
        for source in sources:
            source.close()
    return RunComparisons(
        keys=tuple(keys),
        comparisons=tuple(found),
        why=tuple(why),
        marks=tuple(marks),
        settings=tuple(_compare_settings(catalog, keys)),
    )


def _build_marks(key: str, numbers: Sequence[Any]) -> list[ScoreMark]:
    """Return the first score of every task for a chart."""
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


def _compare_settings(catalog: RunCatalog, keys: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the differences between the manifests: options, model, versions, hardware, tasks."""
    flat = []
    for key in keys:
        with catalog.run(key) as run:
            manifest = run.facts.get("manifest")
            flat.append(_flatten(manifest if isinstance(manifest, dict) else {}))
    found: list[tuple[str, tuple[str, ...]]] = []
    of_tasks: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name in sorted(
        {name for one in flat for name in one},
        key=lambda name: (_COMPARED_SECTIONS.index(name.partition(".")[0]), name),
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


_COMPARED_SECTIONS = (
    "options",
    "model",
    "judges",
    "seeds",
    "versions",
    "hardware",
    "code",
    "commits",
    "tasks",
)
_IGNORED_SETTINGS = ("options.output_path", "options.use_cache", "options.log_samples")


def _flatten(manifest: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}

    def walk(name: str, value: Any, depth: int) -> None:
        if isinstance(value, Mapping) and depth < 5:
            for key, part in value.items():
                walk(f"{name}.{key}", part, depth + 1)
        elif name not in _IGNORED_SETTINGS and not (name.startswith("tasks.") and name.endswith(".digest")):
            text = str(value)
            found[name] = text if len(text) <= 200 else f"{text[:199]}…"

    for part in _COMPARED_SECTIONS:
        if part == "tasks":
            for task, about in dict(manifest.get(part, {})).items():
                walk(f"tasks.{str(task).replace('.', '·')}", about, 1)
        elif part in manifest:
            walk(part, manifest[part], 0)
    return found


def build_comparison_context(compared: RunComparisons) -> dict[str, Any]:
    """Build the template context of the charts and tables."""
    tables = []
    for key, comparison, why in zip(compared.keys[1:], compared.comparisons, compared.why, strict=True):
        charts = []
        if comparison is not None:
            charts = [
                dump_figures(build_themed_figures(partial(build_differences_figure, group, comparison.level)))
                for group in group_differences(comparison)
            ]
        tables.append({"key": key, "comparison": comparison, "why": why, "charts": charts})
    several = [marks for marks in group_by_scale(compared.marks) if len(marks) > 1]
    return {
        "tables": tables,
        "score_charts": [
            dump_figures(build_themed_figures(partial(build_scores_figure, marks))) for marks in several
        ],
        "settings": compared.settings,
        "metrics": sorted({row.metric for one in compared.comparisons if one for row in one.rows}),
    }


def build_flips_context(
    catalog: RunCatalog, compared: RunComparisons, *, against: str, task: str, side: str, page: int
) -> dict[str, Any]:
    """Build the template context of a page of documents with different scores."""
    position = compared.keys.index(against) - 1 if against in compared.keys[1:] else 0
    comparison = compared.comparisons[position]
    rows = [row for row in (comparison.rows if comparison else ()) if row.flips]
    chosen = next((row for row in rows if row.task == task), rows[0] if rows else None)
    flips = list(chosen.flips) if chosen is not None else []
    if chosen is not None and side in ("better", "worse"):
        upward = (side == "better") == chosen.higher_is_better
        flips = [flip for flip in flips if (flip.second > flip.first) == upward]
    pages = max(1, -(-len(flips) // FLIPS_PER_PAGE))
    page = min(max(1, page), pages)
    shown = flips[(page - 1) * FLIPS_PER_PAGE : page * FLIPS_PER_PAGE]
    keys = (compared.keys[0], compared.keys[1 + position])
    excerpts = _read_excerpts(catalog, keys, chosen.task if chosen else "", shown)
    return {
        "comparable": comparison is not None,
        "against": keys[1],
        "tasks": [(row.task, len(row.flips)) for row in rows],
        "task": chosen.task if chosen else "",
        "metric": chosen.metric if chosen else "",
        "side": side,
        "flips": [
            {
                "flip": flip,
                "first": _format_answer(excerpts[0].get(flip.document), chosen),
                "second": _format_answer(excerpts[1].get(flip.other), chosen),
                "target": (excerpts[0].get(flip.document) or DocumentExcerpt(document=0)).target,
                "better": chosen is not None and (flip.second > flip.first) == chosen.higher_is_better,
            }
            for flip in shown
        ],
        "found": len(flips),
        "page": page,
        "pages": pages,
    }


def _read_excerpts(
    catalog: RunCatalog, keys: tuple[str, str], task: str, flips: Sequence[Any]
) -> tuple[dict[int, DocumentExcerpt], dict[int, DocumentExcerpt]]:
    if not flips:
        return {}, {}
    found = []
    for key, name in zip(keys, ("document", "other"), strict=True):
        source = open_source(Run(catalog.folder(key)))
        try:
            found.append(source.read_excerpts(task, [getattr(flip, name) for flip in flips]))
        finally:
            source.close()
    return found[0], found[1]


def _format_answer(excerpt: DocumentExcerpt | None, row: ComparisonRow | None) -> str:
    if excerpt is None:
        return ""
    text = excerpt.answers.get(row.pipeline if row else "", "") or " | ".join(excerpt.responses)
    line = " ".join(text.split())
    return line if len(line) <= 240 else f"{line[:239]}…"


def mark_differences(first: str, second: str) -> list[tuple[str, bool]]:
    """Split the second text into (piece, whether it differs from the first text), word by word."""
    if len(first) + len(second) > _MAX_DIFF_LENGTH:
        return [(second, False)]
    before, after = _WORD.findall(first), _WORD.findall(second)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    pieces = []
    for kind, _, _, begin, end in matcher.get_opcodes():
        if end > begin:
            pieces.append(("".join(after[begin:end]), kind != "equal"))
    return pieces
