"""`assay verify`: is what a run was asked still what it would be asked?"""

from __future__ import annotations

import json
from typing import Any

import click

from assay.cli.runs import found, in_option
from assay.core.errors import BadOption
from assay.core.printable import printable

__all__ = ["command"]

_HELP = """Say what changed since a run: data, prompts, task files, code, settings, template, model, versions.

Reads the tasks again and renders every document the run asked; asks nothing and loads no weights. Exits 3 when
something drifted. RUN is an id, the start of one, a path, or `latest`.

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
    help="Do not mind this: versions, code, … May be given several times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@in_option
def command(run: str, ignore: tuple[str, ...], as_json: bool, folders: tuple[str, ...]) -> int:
    """The command; its help text is above."""
    from assay import api
    from assay.engine.planning.manifest_diff import KINDS

    ignored = {word for words in ignore for word in words.split(",") if word}
    if unknown := sorted(ignored - set(KINDS)):
        raise BadOption(
            f"nothing is called `{unknown[0]}`", where="--ignore", hint=f"one of: {', '.join(KINDS)}"
        )
    verification = api.verify(found(run, folders))
    drifts = [drift for drift in verification.drifts if drift.kind not in ignored]
    drifts.sort(key=lambda drift: KINDS.index(drift.kind))
    if as_json:
        click.echo(json.dumps(_document(verification, drifts), ensure_ascii=False, indent=2))
    else:
        _print(verification, drifts)
    return 3 if drifts else 0


def _document(verification: Any, drifts: list[Any]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "drifted": bool(drifts),
        "documents": verification.documents,
        "requests": verification.requests,
        "drifts": [asdict(drift) for drift in drifts],
        "unchecked": list(verification.unchecked),
        "warnings": list(verification.warnings),
    }


def _print(verification: Any, drifts: list[Any]) -> None:
    for drift in drifts:
        share = f"  ({drift.count} of {drift.total} documents)" if drift.total is not None else ""
        click.secho(f"{drift.kind}: ", fg="yellow", bold=True, nl=False)
        click.echo(printable(f"{drift.what}{share}"))
        for example in drift.examples:
            click.echo(f"  document {example['document']}")
            click.echo(printable(f"    then  {example['then']!r}"))
            click.echo(printable(f"    now   {example['now']!r}"))
    for what in verification.unchecked:
        click.secho("not checked: ", fg="cyan", nl=False)
        click.echo(printable(what))
    for what in verification.warnings:
        click.secho("warning: ", fg="yellow", nl=False)
        click.echo(printable(what))
    looked = f"{verification.documents} documents, {verification.requests} requests rendered"
    click.echo(f"{looked}: {'nothing drifted' if not drifts else f'{len(drifts)} differences'}")
