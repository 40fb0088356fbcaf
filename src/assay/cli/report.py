"""`assay report`: runs as one HTML file that can be mailed, or as PDF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from assay.cli.runs import found, in_option
from assay.core.printable import escape_control_characters

__all__ = ["command"]

_HELP = """Write runs as one HTML file: charts, tables, settings, and some documents.

The file needs no server and asks nobody for anything: it can be mailed, and opens in any browser, on a phone too. With
several runs the first is what the others are compared with. Needs the extra `viewer`.

\b
Examples:
  assay report latest
  assay report base tuned -o report.html --documents 30
  assay report latest --pdf -o report.pdf
"""


@click.command("report", help=_HELP)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="[default: report.html, or report.pdf]",
)
@click.option("--pdf", is_flag=True, help="Print it as PDF: needs Chromium, Chrome or Edge.")
@click.option("--documents", type=int, default=12, metavar="N", help="Show so many documents. [default: 12]")
@click.option("--seed", type=int, default=0, metavar="N", help="Which documents. [default: 0]")
@click.option("--title", default="", metavar="TEXT", help="[default: the models]")
@click.option("--by", "category", default="", metavar="FIELD", help="Take scores apart by this field.")
@in_option
def command(
    runs: tuple[str, ...],
    output: Path | None,
    pdf: bool,
    documents: int,
    seed: int,
    title: str,
    category: str,
    folders: tuple[str, ...],
) -> int:
    """The command; its help text is above."""
    from assay.core.installation import assay_version
    from assay.viewer.atomic_files import write_whole
    from assay.viewer.report import ReportOptions, find_browser, make_report, render_page, write_pdf
    from assay.viewer.report.html_page import plotly_script

    options = ReportOptions(documents=documents, seed=seed, title=title, category=category)
    path = output or Path("report.pdf" if pdf else "report.html")
    plotly_script()  # what is missing is said before anything is read
    browser = find_browser() if pdf else ""
    opened = [_scored(found(word, folders)) for word in runs]
    try:
        report = make_report(opened, options, version=assay_version())
    finally:
        for run in opened:
            run.close()
    if pdf:
        write_pdf(render_page(report, packed=False), path, browser=browser)
    else:
        write_whole(path, render_page(report))
    size = path.stat().st_size / 1e6
    click.echo(escape_control_characters(f"written {path} ({size:.1f} MB)"), err=True)
    return 0


def _scored(folder: Path) -> Any:
    """A run as it was scored the last time, if all of it was."""
    from assay.store.runs import Run

    run = Run(folder)
    last = run.scored(None)
    return last if last is run or set(last.tasks) >= set(run.tasks) else run
