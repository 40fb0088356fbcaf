"""`assay import`: import results of lm-eval and lmms-eval as runs."""

from __future__ import annotations

import json
from pathlib import Path

import click

__all__ = ["command"]

_HELP = """Import results of lm-eval or lmms-eval as runs that you can show, compare, export and view.

PLACES are folders with results (the newest results of each task are used), results files, or samples files. The results
must include samples (--log_samples), because they contain the responses. Importing the same files again has no effect.

\b
Examples:
  assay import results/org__model
  assay import samples_gsm8k_2026-01-02T03-04-05.678901.jsonl
  assay import old/*/ -o runs && assay runs --in runs
"""


@click.command("import", help=_HELP)
@click.argument("places", nargs=-1, required=True, metavar="PLACES...")
@click.option(
    "-o",
    "--output_path",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for the imported runs. [default: ./assay-runs]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the run folders as JSON.")
def command(places: tuple[str, ...], output_path: Path | None, as_json: bool) -> None:
    """Run the command; its help text is above."""
    from assay.cli.tables import get_terminal_width
    from assay.engine.results.import_results import import_results
    from assay.store.runs.run import Run
    from assay.viewer.terminal.results_table import format_results

    rows = []
    for place in places:
        folder, new = import_results(place, output_path)
        rows.append({"from": place, "folder": str(folder), "new": new})
        if not as_json:
            run = Run(folder)
            try:
                click.echo(f"{'imported' if new else 'already imported'}: {place}")
                click.echo(format_results(run, width=get_terminal_width()))
                click.echo(f"stored in {folder}")
            finally:
                run.close()
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
