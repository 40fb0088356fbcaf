"""The comparison page: differences with intervals, documents with different scores, different settings."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from assay.core.errors import AssayError
from assay.store.documents.score_tables import DocumentExcerpt
from assay.store.index.document_index import compute_signature
from assay.store.runs.run import Run
from assay.viewer.charts import ScoreMark, build_scores_figure, build_themed_figures, group_by_scale
from assay.viewer.comparison.comparison_table import format_p_value
from assay.viewer.comparison.conclusion import state_conclusion
from assay.viewer.comparison.difference_charts import build_differences_figure, group_differences
from assay.viewer.comparison.groups import list_grouped_tasks, order_rows
from assay.viewer.comparison.records import CompareOptions, Comparison, ComparisonRow, Flip
from assay.viewer.comparison.run_comparison import compare_sources
from assay.viewer.documents.prompts import preview_prompt
from assay.viewer.results.run_overview import is_share
from assay.viewer.web.rendering import dump_figures
from assay.viewer.web.run_catalog import RunCatalog

__all__ = [
    "RunComparisons",
    "build_comparison_context",
    "build_flips_context",
    "compare_runs",
    "find_flip_neighbours",
    "mark_differences",
    "read_signatures",
]

FLIPS_PER_PAGE = 25
"""The number of documents on a page."""

_MAX_OPEN_ROWS = 20
"""Groups of a longer table are collapsed."""

_MAX_DIFF_WORK = 2_500_000
"""The product of the numbers of words above which texts are compared line by line."""

_WORD = re.compile(r"\w+\s*|[^\w\s]\s*|\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparisons:
    """The comparisons of each run with the first."""

    keys: tuple[str, ...]
    labels: tuple[str, ...]
    """The models if they distinguish the runs, else the keys."""

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
    with ExitStack() as opened:
        sources = [opened.enter_context(catalog.score_tables(key)) for key in keys]
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
        models = [source.model for source in sources]
        labels = models if all(models) and len(set(models)) == len(models) else list(keys)
        marks = [
            mark
            for label, source in zip(labels, sources, strict=True)
            for mark in _build_marks(label, source.read_estimates())
        ]
    return RunComparisons(
        keys=tuple(keys),
        labels=tuple(labels),
        comparisons=tuple(found),
        why=tuple(why),
        marks=tuple(marks),
        settings=tuple(_compare_settings(catalog, keys)),
    )


def _build_marks(label: str, numbers: Sequence[Any]) -> list[ScoreMark]:
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
            run=label,
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
    parts = zip(compared.keys[1:], compared.labels[1:], compared.comparisons, compared.why, strict=True)
    for key, label, comparison, why in parts:
        charts = []
        if comparison is not None:
            groups = group_differences(comparison)
            charts = [
                dump_figures(build_themed_figures(partial(build_differences_figure, group, comparison.level)))
                for group in groups
                if len(group) > 1 or len(groups) == 1  # a single dot adds nothing to the table
            ]
        tables.append(
            {
                "key": key,
                "label": label,
                "comparison": comparison,
                "why": why,
                "charts": charts,
                "conclusion": "" if comparison is None else _start_sentence(state_conclusion(comparison)),
                "rows": [] if comparison is None else _build_rows(comparison),
                "has_filters": comparison is not None
                and any(row.pipeline not in ("", "none") for row in comparison.rows),
            }
        )
    several = [marks for marks in group_by_scale(_select_marks(compared)) if len(marks) > 1]
    if len(several) > 1:
        several = [marks for marks in several if len({mark.name for mark in marks}) > 1] or several
    return {
        "tables": tables,
        "labels": compared.labels,
        "score_charts": [
            dump_figures(build_themed_figures(partial(build_scores_figure, marks))) for marks in several
        ],
        "settings": compared.settings,
        "metrics": sorted({row.metric for one in compared.comparisons if one for row in one.rows}),
    }


def _build_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the rows of the table of differences with the groups around them; groups of a long table are collapsed."""
    ordered = order_rows(comparison)
    collapsed = bool(comparison.groups) and len(ordered) > _MAX_OPEN_ROWS
    names = {group.task: f"g{number}" for number, group in enumerate(comparison.groups)}
    return [
        {
            "row": row,
            "p": format_p_value(row.adjusted_p),
            "depth": len(around),
            "group": names[row.task] if row.members else "",
            "within": " ".join(names[name] for name in around),
            "hidden": collapsed and bool(around),
            "collapsed": collapsed,
        }
        for around, row in ordered
    ]


def _select_marks(compared: RunComparisons) -> list[ScoreMark]:
    """Return the marks of the chart of all runs; of many tasks, those outside of groups, and the groups."""
    comparisons = [one for one in compared.comparisons if one is not None]
    groups = {group.task for one in comparisons for group in one.groups}
    inside = {name for one in comparisons for name in list_grouped_tasks(one)} - groups
    if len({mark.name for mark in compared.marks}) <= _MAX_OPEN_ROWS:
        return list(compared.marks)
    return [mark for mark in compared.marks if mark.name not in inside]


def build_flips_context(
    catalog: RunCatalog, compared: RunComparisons, *, against: str, task: str, side: str, page: int
) -> dict[str, Any]:
    """Build the template context of a page of documents with different scores."""
    position, comparison, rows, chosen, flips = select_flips(compared, against=against, task=task, side=side)
    pages = max(1, -(-len(flips) // FLIPS_PER_PAGE))
    page = min(max(1, page), pages)
    shown = flips[(page - 1) * FLIPS_PER_PAGE : page * FLIPS_PER_PAGE]
    keys = (compared.keys[0], compared.keys[1 + position])
    name = chosen.task if chosen else ""
    excerpts = _read_excerpts(catalog, keys, name, shown)
    with catalog.run(keys[0]) as run:
        questions = {one.document: _read_question(run, name, excerpts[0].get(one.document)) for one in shown}
    return {
        "pipeline": chosen.pipeline if chosen and chosen.pipeline not in ("", "none") else "",
        "comparable": comparison is not None,
        "against": keys[1],
        "names": (compared.labels[0], compared.labels[1 + position]),
        "tasks": [(row.task, len(row.flips)) for row in rows],
        "task": chosen.task if chosen else "",
        "metric": chosen.metric if chosen else "",
        "side": side,
        "flips": [
            {
                "flip": flip,
                "question": questions[flip.document],
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


def select_flips(
    compared: RunComparisons, *, against: str, task: str, side: str
) -> tuple[int, Comparison | None, list[ComparisonRow], ComparisonRow | None, list[Flip]]:
    """Return the run's place, its comparison, the rows with flips, the chosen row and its flips."""
    position = compared.keys.index(against) - 1 if against in compared.keys[1:] else 0
    comparison = compared.comparisons[position]
    rows = [row for row in (comparison.rows if comparison else ()) if row.flips]
    chosen = next((row for row in rows if row.task == task), rows[0] if rows else None)
    flips = list(chosen.flips) if chosen is not None else []
    if chosen is not None and side in ("better", "worse"):
        upward = (side == "better") == chosen.higher_is_better
        flips = [flip for flip in flips if (flip.second > flip.first) == upward]
    return position, comparison, rows, chosen, flips


def find_flip_neighbours(compared: RunComparisons, *, task: str, side: str, document: int) -> dict[str, Any]:
    """Return the flips before and after a document, and its place among them; of the first two runs."""
    *_, chosen, flips = select_flips(compared, against=compared.keys[1], task=task, side=side)
    if chosen is None or chosen.task != task:
        return {"before": None, "after": None, "place": None, "found": 0}
    place = next((index for index, flip in enumerate(flips) if flip.document == document), None)
    later = [flip for flip in flips if flip.document > document] if place is None else flips[place + 1 :]
    earlier = [flip for flip in flips if flip.document < document] if place is None else flips[:place]
    return {
        "before": earlier[-1] if earlier else None,
        "after": later[0] if later else None,
        "place": None if place is None else place + 1,
        "found": len(flips),
    }


def _read_question(run: Run, task: str, excerpt: DocumentExcerpt | None) -> str:
    """Return the document's own question in one line."""
    if excerpt is None:
        return ""
    facts = run.tasks.get(task, {})
    delimiter = str(facts.get("config", {}).get("fewshot_delimiter") or "\n\n")
    question, media = preview_prompt(excerpt.prompt, {}, facts.get("n_shot"), delimiter)
    return question or ", ".join(media)


def _read_excerpts(
    catalog: RunCatalog, keys: tuple[str, str], task: str, flips: Sequence[Any]
) -> tuple[dict[int, DocumentExcerpt], dict[int, DocumentExcerpt]]:
    if not flips:
        return {}, {}
    found = []
    for key, name in zip(keys, ("document", "other"), strict=True):
        with catalog.score_tables(key) as source:
            found.append(source.read_excerpts(task, [getattr(flip, name) for flip in flips]))
    return found[0], found[1]


def _format_answer(excerpt: DocumentExcerpt | None, row: ComparisonRow | None) -> str:
    if excerpt is None:
        return ""
    text = excerpt.answers.get(row.pipeline if row else "", "") or " | ".join(excerpt.responses)
    line = " ".join(text.split())
    return line if len(line) <= 240 else f"{line[:239]}…"


Pieces = list[tuple[str, bool]]
"""A text in pieces: (text, whether it differs from the other text)."""


def mark_differences(first: str, second: str) -> tuple[Pieces, Pieces]:
    """Split two texts into pieces, word by word; long texts with many differences line by line."""
    before, after = _WORD.findall(first), _WORD.findall(second)
    start = _count_equal(before, after)
    end = _count_equal(before[start:][::-1], after[start:][::-1])
    middle, other = before[start : len(before) - end], after[start : len(after) - end]
    if len(middle) * len(other) > _MAX_DIFF_WORK:
        middle, other = "".join(middle).splitlines(True), "".join(other).splitlines(True)
    lead, trail = "".join(before[:start]), "".join(before[len(before) - end :])
    pieces: tuple[Pieces, Pieces] = ([], [])
    if len(middle) * len(other) > _MAX_DIFF_WORK:
        steps: list[Any] = [("replace", 0, len(middle), 0, len(other))]
    else:
        steps = list(difflib.SequenceMatcher(None, middle, other, autojunk=False).get_opcodes())
    for kind, low, high, begin, stop in steps:
        _add_piece(pieces[0], "".join(middle[low:high]), differs=kind != "equal")
        _add_piece(pieces[1], "".join(other[begin:stop]), differs=kind != "equal")
    for listed in pieces:
        listed[:0] = [(lead, False)] if lead else []
        listed += [(trail, False)] if trail else []
    return pieces


def _count_equal(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the number of equal words at the start of two texts."""
    pairs = zip(first, second, strict=False)
    return next(
        (index for index, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second))
    )


def _add_piece(pieces: Pieces, text: str, *, differs: bool) -> None:
    """Add a piece; the space after a word that differs is not marked."""
    words = text.rstrip()
    if differs and words:
        pieces.append((words, True))
        text = text[len(words) :]
    if text:
        pieces.append((text, False))


def _start_sentence(text: str) -> str:
    """Return the text with a capital letter, unless it starts with the name of a model."""
    is_name = not text.startswith(("no difference", "identical scores", "not comparable"))
    return text if is_name else text[:1].upper() + text[1:]
