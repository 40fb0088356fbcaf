"""`assay cache`: list and prune the response cache."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.core.errors import InvalidOption
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.store.cache.maintenance import CachedModel

__all__ = ["command"]

_HELP = """List and prune the response cache, which all runs share.

A request is sent only once: a later run with an identical request to the same model uses the cached response.
`--no_cache` of `assay run` disables the cache; `--refresh` sends all requests again and replaces cached responses.

\b
Examples:
  assay cache ls
  assay cache prune --older_than 30d --dry_run
  assay cache prune --model 'llama-*'
  assay cache path
"""
_UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@click.group("cache", help=_HELP)
def command() -> None:
    """Run the command; its help text is above."""


def _resolve_cache_path(given: Path | None) -> Path:
    from assay.store.cache.response_cache import default_cache_path

    return default_cache_path() if given is None else given


_cache_file_option = click.option(
    "--use_cache",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Cache file to use instead of the shared cache.",
)


@command.command("path")
def path_command() -> None:
    """Print the path of the shared cache."""
    click.echo(_resolve_cache_path(None))


@command.command("ls")
@_cache_file_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ls_command(file: Path | None, as_json: bool) -> None:
    """List models with the number, size and age of their cached responses."""
    from assay.store.cache.maintenance import list_cached_models

    path = _resolve_cache_path(file)
    models = list_cached_models(path)
    size = path.stat().st_size if path.exists() else 0
    if as_json:
        document = {"path": str(path), "bytes": size, "models": [asdict(model) for model in models]}
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
        return
    if models:
        _print_models(models)
    from assay.viewer.number_format import format_bytes

    count = sum(model.responses for model in models)
    click.echo(f"{count} responses, {format_bytes(size)}  ({path})", err=True)


def _print_models(models: Sequence[CachedModel]) -> None:
    from rich.markup import escape

    from assay.cli.tables import print_table
    from assay.viewer.number_format import format_age, format_bytes
    from assay.viewer.text_tables import Column, TextTable

    now = time.time()
    table = TextTable(
        columns=[
            Column(title="model", wrap=True),
            Column(title="responses", justify="right"),
            Column(title="size", justify="right"),
            Column(title="oldest", justify="right", fold=2, folded="oldest {}"),
            Column(title="newest", justify="right", fold=1, folded="newest {}"),
        ]
    )
    for model in models:
        table.add_row(
            escape(escape_control_characters(model.model)),
            str(model.responses),
            format_bytes(model.bytes),
            format_age(now - model.oldest),
            format_age(now - model.newest),
        )
    print_table(table)


@command.command("prune")
@click.option("--older_than", metavar="AGE", help="Remove responses older than this: 90m, 12h, 30d, 8w.")
@click.option("--model", metavar="NAME", help="Remove responses of this model; accepts a glob.")
@click.option("--all", "everything", is_flag=True, help="Remove all responses.")
@click.option("--dry_run", is_flag=True, help="Show what would be removed, but remove nothing.")
@_cache_file_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def prune_command(
    older_than: str | None,
    model: str | None,
    everything: bool,
    dry_run: bool,
    file: Path | None,
    as_json: bool,
) -> None:
    """Remove responses from the cache. Runs may use the cache at the same time; they request removed responses again."""
    from assay.store.cache.maintenance import prune_cache
    from assay.viewer.number_format import format_bytes

    if older_than is None and model is None and not everything:
        raise InvalidOption(
            "nothing to prune: no selection given", hint="pass --older_than 30d, --model NAME or --all"
        )
    before = None if older_than is None else time.time() - parse_age(older_than)
    pruned = prune_cache(_resolve_cache_path(file), before=before, model=model, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps({**asdict(pruned), "dry_run": dry_run}, indent=2))
        return
    verb = "would be removed" if dry_run else "removed"
    freed = f", {format_bytes(pruned.freed)} freed" if pruned.freed else ""
    click.echo(f"{pruned.responses} responses {verb}{freed}")


def parse_age(text: str) -> float:
    """Parse an age and return it in seconds.

    >>> parse_age("30d"), parse_age("1.5h")
    (2592000.0, 5400.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([mhdw])", text.strip().lower())
    if found is None:
        raise InvalidOption(
            f"invalid age `{text}`", where="--older_than", hint="for example 90m, 12h, 30d, 8w"
        )
    return float(found[1]) * _UNIT_SECONDS[found[2]]
