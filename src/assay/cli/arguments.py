"""Arguments that several commands share: `--in`, `--json` and its output, run names, lists of names."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

__all__ = [
    "FOLDERS_KEY",
    "find_run_folder",
    "find_run_or_results",
    "in_option",
    "json_option",
    "print_json",
    "split_names",
]

FOLDERS_KEY = "assay.runs.in"
"""Where the click context keeps the folders of `assay runs --in DIR`."""


def in_option(function: Any) -> Any:
    """Add `--in DIR`, the folders to search for runs."""
    return click.option(
        "--in", "folders", multiple=True, metavar="DIR", help="Folder to search for runs; repeatable."
    )(function)


def json_option(function: Any) -> Any:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def find_run_folder(word: str, folders: tuple[str, ...]) -> Path:
    """Return the folder of a run given by id, start of an id, path or `latest`."""
    from assay.store.runs.lookup import find_run

    return find_run(word, folders or click.get_current_context().meta.get(FOLDERS_KEY, ()))


def find_run_or_results(word: str, folders: tuple[str, ...]) -> Path:
    """Return the folder of a run as `find_run_folder` does, or of the run imported from result files at a path."""
    from assay.engine.imports.run_cache import find_run_or_results

    return find_run_or_results(word, folders or click.get_current_context().meta.get(FOLDERS_KEY, ()))


def split_names(values: tuple[str, ...]) -> list[str]:
    """Split option values at commas and return one list of names."""
    return [name for value in values for name in value.split(",") if name]


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output. Infinite and undefined numbers become null: JSON has none."""
    click.echo(
        json.dumps(_replace_non_finite(value), ensure_ascii=False, indent=2, allow_nan=False, default=str)
    )


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
