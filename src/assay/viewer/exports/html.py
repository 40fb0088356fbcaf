"""The table of results as an HTML page without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TextIO

from assay.core.terminal_text import escape_control_characters
from assay.store.runs.run import Run
from assay.viewer.number_format import DIRECTION_ARROWS, format_float, format_number
from assay.viewer.results.score_rows import iterate_score_rows

__all__ = ["write_html_table"]

_STYLE = """body { font: 15px/1.4 system-ui, sans-serif; margin: 2rem; color: #222; background: #fff; }
table { border-collapse: collapse; } th, td { padding: .25rem .75rem; border-bottom: 1px solid #ddd; }
th { text-align: left; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
tr.group { font-weight: 600; } .bad { color: #b00020; }
@media (prefers-color-scheme: dark) { body { color: #eee; background: #181818; } th, td { border-color: #444; } }"""


def write_html_table(run: Run, tasks: Sequence[str], stream: TextIO) -> None:
    """Write a row per score, groups before their tasks; all text is escaped."""
    title = _escape_text(f"{run.model}: {run.id}")
    stream.write(f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n')
    stream.write(
        f"<style>\n{_STYLE}\n</style>\n<h1>{_escape_text(run.model)}</h1>\n<p>{_escape_text(run.id)}</p>\n"
    )
    titles = ("task", "filter", "metric", "")
    numbers = ("n-shot", "value", "± stderr", "scored", "unscored", "failed")
    heads = "".join(f"<th>{title}</th>" for title in titles)
    heads += "".join(f'<th class="n">{title}</th>' for title in numbers)
    stream.write(f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n")
    for depth, name, facts, estimate in iterate_score_rows(run):
        if name not in tasks and name not in run.groups:
            continue
        label = f'<td style="padding-left:{0.75 + depth}rem">{_escape_text(facts.get("alias") or name)}</td>'
        row = ' class="group"' if name in run.groups else ""
        if estimate is None:
            stream.write(f'<tr{row}>{label}<td colspan="9"></td></tr>\n')
            continue
        texts = (estimate.pipeline, estimate.metric, DIRECTION_ARROWS[estimate.higher_is_better])
        n_shot = "" if facts.get("n_shot") is None else str(facts["n_shot"])
        error = "" if estimate.stderr is None else f"± {format_float(estimate.stderr)}"
        cells = "".join(f"<td>{_escape_text(text)}</td>" for text in texts)
        cells += "".join(
            f'<td class="n">{_escape_text(text)}</td>'
            for text in (n_shot, format_number(estimate.value), error, str(estimate.scored))
        )
        cells += "".join(
            f'<td class="n{" bad" if count else ""}">{count}</td>'
            for count in (estimate.unscored, estimate.failed)
        )
        stream.write(f"<tr{row}>{label}{cells}</tr>\n")
    stream.write("</tbody>\n</table>\n</html>\n")


def _escape_text(text: str) -> str:
    return escape(escape_control_characters(text))
