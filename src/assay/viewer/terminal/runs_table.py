"""The list of runs, and the description of one run."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from typing import Any

from assay.core.terminal_text import escape_control_characters
from assay.store.runs.lookup import RunSummary
from assay.viewer.number_format import format_age, format_bytes, format_duration, format_number
from assay.viewer.results.notes import format_lock
from assay.viewer.text_tables import Column, TextTable

__all__ = ["build_runs_table", "describe_run"]

_COLOURS = {
    "finished": "green",
    "with failures": "red",
    "unfinished": "yellow",
    "running": "cyan",
    "damaged": "red bold",
}


_COLUMNS = (
    Column(title="run", wrap=True),
    Column(title="state"),
    Column(title="documents", justify="right", fold=1, folded="{} documents"),
    Column(title="score", wrap=True),
    Column(title="started", justify="right", fold=2, folded="started {}"),
    Column(title="duration", justify="right", fold=3, folded="took {}"),
    Column(title="size", justify="right", fold=4),
    Column(fold=5),
)


def build_runs_table(summaries: Sequence[RunSummary], *, now: float | None = None) -> TextTable:
    """Build a table with a row for each run."""
    from rich.markup import escape

    moment = time.time() if now is None else now
    table = TextTable(columns=_COLUMNS)
    for summary in summaries:
        table.add_row(
            escape(escape_control_characters(summary.id)),
            f"[{_COLOURS[summary.state]}]{summary.state}[/]",
            _format_documents(summary),
            escape(escape_control_characters(_format_score(summary))),
            "" if summary.started is None else format_age(moment - summary.started),
            "" if summary.seconds is None else format_duration(summary.seconds),
            format_bytes(summary.bytes),
            escape(escape_control_characters(summary.why)),
        )
    return table


def _format_documents(summary: RunSummary) -> str:
    if summary.state == "damaged":
        return ""
    whole = summary.done == summary.documents
    return f"{summary.documents}" if whole else f"{summary.done} of {summary.documents}"


def _format_score(summary: RunSummary) -> str:
    first = [f"{metric} {format_number(value)}" for _, metric, value in summary.scores[:1]]
    more = len(summary.scores) - 1
    return "".join(first) + (f" (+{more})" if more > 0 else "")


def describe_run(summary: RunSummary, manifest: dict[str, Any] | None) -> Iterator[str]:
    """Yield the lines above a run's table of results: state, folder, model, command, versions, commits."""
    documents = f"{summary.done} of {summary.documents} documents"
    yield f"run      {summary.id}"
    yield (
        f"state    {summary.state}, {documents}" if summary.state != "damaged" else f"state    {summary.why}"
    )
    yield f"folder   {summary.folder}  ({format_bytes(summary.bytes)})"
    if manifest is None:
        return
    versions, hardware = manifest.get("versions", {}), manifest.get("hardware", {})
    took = f"  (took {format_duration(summary.seconds)})" if summary.seconds is not None else ""
    yield f"model    {manifest.get('model', {}).get('name', '')}"
    yield f"started  {manifest.get('created', '')}{took}"
    if manifest.get("command"):
        yield f"command  {shlex.join(manifest['command'])}"
    yield f"versions assay {versions.get('assay')}, Python {versions.get('python')}, {hardware.get('platform')}"
    if lock := format_lock(manifest.get("lock")):
        yield f"lock     {lock}"
    for checkout, about in manifest.get("commits", {}).items():
        changes = {True: ", with uncommitted changes", False: "", None: ", uncommitted changes unknown"}[
            about.get("dirty")
        ]
        yield f"commit   {about['commit'][:12]}{changes}  {checkout}"
    if manifest.get("continued"):
        count = len(manifest["continued"])
        yield f"resumed  {count} time{'' if count == 1 else 's'}, last at {manifest['continued'][-1]['at']}"
