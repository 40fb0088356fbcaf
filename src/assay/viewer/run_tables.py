"""Runs as people look at them: a line for each, or everything about one."""

from __future__ import annotations

import io
import shlex
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from assay.core.printable import printable
from assay.store.finding import RunSummary
from assay.viewer.tables import number

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["age", "amount", "duration", "run_lines", "runs_table", "table_text"]

_COLOURS = {
    "finished": "green",
    "with failures": "red",
    "unfinished": "yellow",
    "running": "cyan",
    "damaged": "red bold",
}


def runs_table(summaries: Sequence[RunSummary], *, narrow: bool = False, now: float | None = None) -> Table:
    """A line for each run; `narrow` leaves out how long it took, how large it is, and documents that need no word."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    moment = time.time() if now is None else now
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("run", overflow="fold", no_wrap=not narrow)
    table.add_column("state", no_wrap=True)
    if not narrow:
        table.add_column("documents", justify="right", no_wrap=True)
    table.add_column("score", overflow="fold")
    table.add_column("started", justify="right", no_wrap=True)
    for title in () if narrow else ("took", "size"):
        table.add_column(title, justify="right", no_wrap=True)
    for summary in summaries:
        part = f" {_documents(summary)}" if narrow and summary.done != summary.documents else ""
        cells = [
            escape(printable(summary.id)),
            f"[{_COLOURS[summary.state]}]{summary.state}[/]{part}",
            *(() if narrow else (_documents(summary),)),
            escape(printable(_score(summary))),
            "" if summary.started is None else age(moment - summary.started),
        ]
        if not narrow:
            cells += ["" if summary.seconds is None else duration(summary.seconds), amount(summary.bytes)]
        table.add_row(*cells)
    return table


def _documents(summary: RunSummary) -> str:
    if summary.state == "damaged":
        return ""
    whole = summary.done == summary.documents
    return f"{summary.documents}" if whole else f"{summary.done} of {summary.documents}"


def _score(summary: RunSummary) -> str:
    if summary.why:
        return summary.why
    shown = [f"{metric} {number(value)}" for _, metric, value in summary.scores[:1]]
    more = len(summary.scores) - 1
    return "".join(shown) + (f" (+{more})" if more > 0 else "")


def table_text(table: Table, *, width: int = 10_000) -> str:
    """A table as plain text."""
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None, force_jupyter=False).print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def run_lines(summary: RunSummary, manifest: dict[str, Any] | None) -> Iterator[str]:
    """What there is to say about one run, a line for each thing, before its table of results."""
    documents = f"{summary.done} of {summary.documents} documents"
    yield f"run      {summary.id}"
    yield (
        f"state    {summary.state}, {documents}" if summary.state != "damaged" else f"state    {summary.why}"
    )
    yield f"folder   {summary.folder}  ({amount(summary.bytes)})"
    if manifest is None:
        return
    versions, hardware = manifest.get("versions", {}), manifest.get("hardware", {})
    took = f", took {duration(summary.seconds)}" if summary.seconds is not None else ""
    yield f"model    {manifest.get('model', {}).get('name', '')}"
    yield f"started  {manifest.get('created', '')}{took}"
    if manifest.get("command"):
        yield f"command  {shlex.join(manifest['command'])}"
    yield f"with     assay {versions.get('assay')}, Python {versions.get('python')}, {hardware.get('platform')}"
    for checkout, about in manifest.get("commits", {}).items():
        changes = {True: ", with changes", False: "", None: ", changes not known"}[about.get("dirty")]
        yield f"commit   {about['commit'][:12]}{changes}  {checkout}"
    if manifest.get("continued"):
        count = len(manifest["continued"])
        yield f"went on  {count} time{'' if count == 1 else 's'}, last {manifest['continued'][-1]['at']}"


def duration(seconds: float) -> str:
    """A length of time in two units.

    >>> duration(0.4), duration(75), duration(7260), duration(266400)
    ('0.4 s', '1 min 15 s', '2 h 1 min', '3 d 2 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, smaller, part in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {part}"
    return f"{whole} s"


def age(seconds: float) -> str:
    """How long ago, roughly.

    >>> age(3), age(130), age(7300), age(200000)
    ('just now', '2 min ago', '2 h ago', '2 d ago')
    """
    if seconds < 60:
        return "just now"
    size, unit = next(
        (size, unit) for size, unit in ((86400, "d"), (3600, "h"), (60, "min")) if seconds >= size
    )
    return f"{int(seconds // size)} {unit} ago"


def amount(size: float) -> str:
    """A number of bytes.

    >>> amount(512), amount(2048), amount(5 * 1024**3)
    ('512 B', '2.0 kB', '5.0 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"
