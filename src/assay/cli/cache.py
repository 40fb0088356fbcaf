"""`assay cache`: the answers that runs share."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from assay.core.errors import BadOption
from assay.core.printable import printable

__all__ = ["command"]

_HELP = """Look after the response cache, which all runs share.

A request that any run has had answered is not asked again by another, as long as it is to the letter the same, to the
same model. `--no_cache` leaves the cache alone, `--refresh` asks again and replaces.

\b
Examples:
  assay cache ls
  assay cache prune --older_than 30d --dry_run
  assay cache prune --model 'llama-*'
  assay cache path
"""
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@click.group("cache", help=_HELP)
def command() -> None:
    """The command; its help text is above."""


def _file(given: Path | None) -> Path:
    from assay.store.cache import default_cache

    return default_cache() if given is None else given


_FILE = click.option(
    "--use_cache",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="This cache, not the shared one.",
)


@command.command("path")
def path_command() -> None:
    """Print where the shared cache is."""
    click.echo(_file(None))


@command.command("ls")
@_FILE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ls_command(file: Path | None, as_json: bool) -> None:
    """List models with the number, size and age of their answers."""
    from assay.store.cache_care import cached_models

    path = _file(file)
    models = cached_models(path)
    size = path.stat().st_size if path.exists() else 0
    if as_json:
        document = {"path": str(path), "bytes": size, "models": [asdict(model) for model in models]}
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
        return
    if models:
        _print(models)
    from assay.viewer.run_tables import amount

    count = sum(model.responses for model in models)
    click.echo(f"{count} answers, {amount(size)}  ({path})", err=True)


def _print(models: Sequence[Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from assay.viewer.run_tables import age, amount, table_text

    now = time.time()
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("model", overflow="fold")
    for title in ("answers", "size", "oldest", "newest"):
        table.add_column(title, justify="right", no_wrap=True)
    for model in models:
        table.add_row(
            escape(printable(model.model)),
            str(model.responses),
            amount(model.bytes),
            age(now - model.oldest),
            age(now - model.newest),
        )
    console = Console()
    if console.is_terminal:
        console.print(table)
    else:
        click.echo(table_text(table))


@command.command("prune")
@click.option("--older_than", metavar="AGE", help="Answers written longer ago than this: 90m, 12h, 30d, 8w.")
@click.option("--model", metavar="NAME", help="Answers of this model, or of all a glob matches.")
@click.option("--all", "everything", is_flag=True, help="Every answer.")
@click.option("--dry_run", is_flag=True, help="Say what would go, and take nothing out.")
@_FILE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def prune_command(
    older_than: str | None,
    model: str | None,
    everything: bool,
    dry_run: bool,
    file: Path | None,
    as_json: bool,
) -> None:
    """Take answers out. Runs may use the cache meanwhile; what is gone is asked again when it is needed."""
    from assay.store.cache_care import prune
    from assay.viewer.run_tables import amount

    if older_than is None and model is None and not everything:
        raise BadOption("nothing says what may go", hint="--older_than 30d, --model NAME or --all")
    before = None if older_than is None else time.time() - seconds_of(older_than)
    pruned = prune(_file(file), before=before, model=model, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps({**asdict(pruned), "dry_run": dry_run}, indent=2))
        return
    verb = "would go" if dry_run else "gone"
    freed = f", {amount(pruned.freed)} freed" if pruned.freed else ""
    click.echo(f"{pruned.responses} answers {verb}{freed}")


def seconds_of(text: str) -> float:
    """An age in seconds.

    >>> seconds_of("30d"), seconds_of("1.5h")
    (2592000.0, 5400.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([mhdw])", text.strip().lower())
    if found is None:
        raise BadOption(
            f"`{text}` is not an age", where="--older_than", hint="for instance 90m, 12h, 30d, 8w"
        )
    return float(found[1]) * _UNITS[found[2]]
