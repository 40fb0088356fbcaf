"""`assay import`: import results of other programs as runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.core.errors import AssayError, DatasetError, ErrorGroup, InvalidOption, UserError
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.engine.imports.importer import StoredImport

__all__ = ["command"]

_HELP = """Import results of other programs as runs that you can show, compare, export and view.

PLACES are files or folders that another evaluation program wrote. The format is detected (--list_formats shows all); a
folder with several runs gives several runs. Importing the same files again has no effect. Files that cannot be read are
reported at the end, with exit code 2, and the others are imported. Commands that read a run also take such a path
directly.

\b
Examples:
  assay import results/org__model
  assay import samples_gsm8k_2026-01-02T03-04-05.678901.jsonl
  assay import benchmark_output/runs/v1 --format helm
  assay import old/*/ -o runs && assay runs --in runs
  assay import logs/2026-01-02T03-04-05_gsm8k_abc.eval
  assay import --list_formats
"""


@click.command("import", help=_HELP)
@click.argument("places", nargs=-1, metavar="PLACES...")
@click.option(
    "--format", "format_name", default="", metavar="NAME", help="Format of the files. [default: detected]"
)
@click.option("--list_formats", is_flag=True, help="List the formats and exit.")
@click.option(
    "-o",
    "--output_path",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for the imported runs. [default: ./assay-runs]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the run folders as JSON.")
def command(
    places: tuple[str, ...], format_name: str, list_formats: bool, output_path: Path | None, as_json: bool
) -> None:
    """Run the command; its help text is above."""
    from assay.cli.tables import get_terminal_width
    from assay.engine.imports.importer import import_each
    from assay.store.runs.run import Run
    from assay.viewer.terminal.results_table import format_results

    if list_formats:
        _print_formats(as_json)
        return
    if not places:
        raise InvalidOption("missing argument: PLACES", hint="pass files or folders with results")
    rows: list[dict[str, Any]] = []
    errors: list[AssayError] = []
    for place in places:
        for stored in _collect_errors(import_each(place, output_path, format_name), errors):
            folder, new = stored.folder, stored.new
            rows.append({"from": place, "format": stored.program, "folder": str(folder), "new": new})
            if as_json:
                continue
            run = Run(folder)
            try:
                what = "imported" if new else "already imported"
                click.echo(escape_control_characters(f"{what}: {place}"))
                click.echo(format_results(run, width=get_terminal_width()))
                click.echo(escape_control_characters(f"stored in {folder}"))
            finally:
                run.close()
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
    if errors:
        raise errors[0] if len(errors) == 1 else ErrorGroup(errors, f"{len(errors)} imports failed")


def _collect_errors(
    found: Iterator[StoredImport | DatasetError], errors: list[AssayError]
) -> Iterator[StoredImport]:
    """Yield the imported runs, and add the errors of the other files to a list."""
    try:
        for one in found:
            if isinstance(one, UserError):
                errors.append(one)
            else:
                yield one
    except UserError as error:
        errors.append(error)


def _print_formats(as_json: bool) -> None:
    from assay.cli.tables import get_terminal_width, wrap_line
    from assay.engine.imports.formats import RESULT_FORMATS

    if as_json:
        rows = [{"format": one.name, "files": one.description} for one in RESULT_FORMATS.values()]
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for one in RESULT_FORMATS.values():
        click.echo(wrap_line(f"{one.name}: {one.description}", get_terminal_width()))
