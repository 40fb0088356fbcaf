"""`assay lock`: write, update and check lockfiles."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli.arguments import json_option, print_json, split_names
from assay.cli.options import OptionsCommand, add_run_options, build_run_spec, collect_options
from assay.core.errors import InvalidOption
from assay.core.options.run_spec import list_options
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.engine.lockfiles.lockfile import Lockfile

__all__ = ["command"]

_HELP = """Write a lockfile: everything that a score depends on, in a readable file.

A lockfile records task files and helpers, the content of the datasets, the prompts, the model and its chat template, metrics, filters, judges,
seeds and the versions of the packages they use. `assay run --locked FILE` evaluates exactly that, or lists what differs. Renders every
document; sends no request and loads no weights. --check exits with code 3 if something differs.

\b
Examples:
  assay lock -t quickstart --model embedded -o eval.lock
  assay run --locked eval.lock --output_path results
  assay lock --check eval.lock
  assay lock --check eval.lock --ignore versions --json
  assay lock --update eval.lock --limit 50
"""

_EXTRA_OPTIONS = (
    "allow_data_outside",
    "data_root",
    "device",
    "helper_timeout",
    "i_know",
    "include_path",
    "mirror",
    "sandbox",
    "sandbox_args",
)
"""Options that do not affect results, but are needed to read the tasks."""


@click.command("lock", cls=OptionsCommand, help=_HELP)
@click.argument("task_names", nargs=-1, metavar="[TASKS]...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The lockfile. [default: eval.lock]",
)
@click.option(
    "--check",
    "checked",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="List what differs from a lockfile now.",
)
@click.option(
    "--update",
    "updated",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a lockfile again with what its options give now; other options replace those of the file.",
)
@click.option(
    "--prompts",
    metavar="N|all",
    help="Documents whose prompts are readable in the file, per task. [default: the first ones, up to 8000 characters]",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="KIND",
    help="With --check: ignore changes of this kind: versions, code, …",
)
@json_option
def command(
    task_names: tuple[str, ...],
    output: Path | None,
    checked: Path | None,
    updated: Path | None,
    prompts: str | None,
    ignore: tuple[str, ...],
    as_json: bool,
    config: Path | None,
    **values: Any,
) -> int:
    """Run the command; its help text is above."""
    if checked is not None and updated is not None:
        raise InvalidOption("--check and --update cannot be used together", hint="check first, then update")
    if output is not None and (checked or updated) is not None:
        flag = "--check" if checked is not None else "--update"
        raise InvalidOption(
            f"-o cannot be used with {flag}", where="-o", hint=f"{flag} names the file itself"
        )
    if task_names:
        given = [name for word in task_names for name in word.split(",") if name]
        values["tasks"] = (*(values.get("tasks") or ()), given)
    if checked is not None:
        return _check(checked, collect_options(values, config), split_names(ignore), as_json)
    count = _parse_prompts(prompts)
    if updated is not None:
        return _update(updated, collect_options(values, config), count, as_json)
    from assay import api

    written, notes = api.lock(output or Path("eval.lock"), build_run_spec(values, config), prompts=count)
    _report(written, notes, as_json)
    return 0


for _parameter in command.params:
    _parameter.section = "Lockfile"  # type: ignore[attr-defined]
add_run_options(
    command, [name for name, _, option in list_options() if option.affects_results or name in _EXTRA_OPTIONS]
)


def _parse_prompts(text: str | None) -> int | None:
    if text is None:
        return None
    if text != "all" and not text.isdecimal():
        raise InvalidOption(
            f"`{text}` is not a number of documents", where="--prompts", hint="for example 20, or all"
        )
    return -1 if text == "all" else int(text)


def _report(written: Lockfile, notes: Sequence[str], as_json: bool) -> None:
    """Print what was locked. The notes go to standard error."""
    from assay.cli.tables import echo_wrapped

    tasks = {name: task["documents"] for name, task in written.content["tasks"].items()}
    if as_json:
        print_json(
            {"file": str(written.path), "digest": written.digest, "tasks": tasks, "notes": list(notes)}
        )
        return
    documents = sum(tasks.values())
    echo_wrapped(
        f"locked {len(tasks)} task{'' if len(tasks) == 1 else 's'}, {documents} document{'' if documents == 1 else 's'}"
        f" in {written.path} (digest {written.digest})"
    )
    for note in notes:
        echo_wrapped(escape_control_characters(f"note: {note}"), err=True)


def _check(path: Path, options: dict[str, Any], ignore: Sequence[str], as_json: bool) -> int:
    from assay import api
    from assay.cli.verify import print_changes
    from assay.engine.lockfiles.locked_runs import check_kinds

    ignored = check_kinds(ignore, "--ignore")
    status = api.check_lock(path, **options)
    changes = [change for change in status.changes if change.kind not in ignored]
    if as_json:
        print_json(
            {
                "file": str(path),
                "digest": status.digest,
                "drifted": bool(changes),
                "drifts": [asdict(change) for change in changes],
                "unchecked": list(status.unchecked),
            }
        )
    else:
        print_changes(changes, status.unchecked)
        count = (
            f"{len(changes)} difference{'' if len(changes) == 1 else 's'}" if changes else "no differences"
        )
        click.echo(f"{path} (digest {status.digest}): {count}")
    return 3 if changes else 0


def _update(path: Path, options: dict[str, Any], prompts: int | None, as_json: bool) -> int:
    from assay import api
    from assay.cli.verify import print_changes

    written, status, notes = api.update_lock(path, prompts=prompts, **options)
    if not as_json:
        print_changes(status.changes)
    _report(written, notes, as_json)
    return 0
