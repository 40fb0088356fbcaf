"""`assay verify`: show what changed since a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from assay.cli.arguments import find_run_folder, in_option
from assay.core.errors import InvalidOption
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.engine.planning.manifests.manifest_diff import ManifestChange
    from assay.engine.results.verify import Verification

__all__ = ["command", "print_changes"]

_HELP = """Show what changed since a run: scores, data, prompts, task files, code, settings, template, model, versions.

Verifies the checksum of every record, reads the tasks again, renders every document of the run and scores its stored
responses again; sends no request and loads no weights. Exits with code 3 if something changed. RUN is a run id, the start of one, a path, or `latest`.

\b
Examples:
  assay verify latest
  assay verify results/my-run --ignore versions --ignore code
  assay verify latest --json
"""


@click.command("verify", help=_HELP)
@click.argument("run")
@click.option(
    "--ignore",
    multiple=True,
    metavar="KIND",
    help="Ignore changes of this kind: versions, code, …; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@in_option
def command(run: str, ignore: tuple[str, ...], as_json: bool, folders: tuple[str, ...]) -> int:
    """Run the command; its help text is above."""
    from assay import api
    from assay.engine.planning.manifests.manifest_diff import KINDS

    ignored = {word for words in ignore for word in words.split(",") if word}
    if unknown := sorted(ignored - set(KINDS)):
        raise InvalidOption(
            f"unknown kind of change `{unknown[0]}`", where="--ignore", hint=f"one of: {', '.join(KINDS)}"
        )
    verification = api.verify(find_run_folder(run, folders))
    drifts = [drift for drift in verification.changes if drift.kind not in ignored]
    if verification.lock is not None:
        kept = tuple(change for change in verification.lock.changes if change.kind not in ignored)
        verification = replace(verification, lock=replace(verification.lock, changes=kept))
    drifts.sort(key=lambda drift: KINDS.index(drift.kind))
    if as_json:
        click.echo(json.dumps(_to_json(verification, drifts), ensure_ascii=False, indent=2))
    else:
        _print(verification, drifts)
    return 3 if drifts or (verification.lock is not None and verification.lock.changes) else 0


def _to_json(verification: Verification, drifts: list[ManifestChange]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "drifted": bool(drifts),
        "documents": verification.documents,
        "requests": verification.requests,
        "drifts": [asdict(drift) for drift in drifts],
        "unchecked": list(verification.unchecked),
        "warnings": list(verification.warnings),
        **({} if verification.lock is None else {"lock": asdict(verification.lock)}),
    }


def _print(verification: Verification, drifts: list[ManifestChange]) -> None:
    print_changes(drifts, verification.unchecked)
    for what in verification.warnings:
        click.secho("warning: ", fg="yellow", nl=False)
        click.echo(escape_control_characters(what))
    if lock := verification.lock:
        click.secho("lockfile: ", fg="cyan", nl=False)
        count = len(lock.changes)
        state = f"{count} item{'' if count == 1 else 's'} differ now:" if count else "no differences"
        click.echo(escape_control_characters(f"{lock.file} (digest {lock.digest}): {state}"))
        print_changes(lock.changes)
    rendered = f"{verification.documents} documents, {verification.requests} requests rendered"
    found = f"{len(drifts)} change{'' if len(drifts) == 1 else 's'}" if drifts else "no changes"
    click.echo(f"{rendered}: {found}")


def print_changes(
    changes: Sequence[ManifestChange], unchecked: Sequence[str] = (), *, err: bool = False
) -> None:
    """Print changes with their examples, and what could not be checked."""
    for drift in changes:
        share = f"  ({drift.count} of {drift.total} documents)" if drift.total is not None else ""
        click.secho(f"{drift.kind}: ", fg="yellow", bold=True, nl=False, err=err)
        click.echo(escape_control_characters(f"{drift.what}{share}"), err=err)
        for example in drift.examples:
            click.echo(f"  document {example['document']}", err=err)
            click.echo(escape_control_characters(f"    before  {example['then']!r}"), err=err)
            click.echo(escape_control_characters(f"    now     {example['now']!r}"), err=err)
    for what in unchecked:
        click.secho("not checked: ", fg="cyan", nl=False, err=err)
        click.echo(escape_control_characters(what), err=err)
