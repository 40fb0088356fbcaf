"""`assay ls`: what there is."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from assay.tasks.index import Entry, TaskIndex

__all__ = ["command"]

_HELP = """List what this installation knows.

\b
KIND is one of: tasks, groups, tags, models, metrics, filters, judges, aggregations, sandboxes, sinks, options.
PATTERN is a glob, or part of a name.

\b
Examples:
  assay ls tasks
  assay ls tasks 'quickstart_*' --json
  assay ls metrics
"""


@click.command("ls", help=_HELP)
@click.argument("kind", default="tasks")
@click.argument("pattern", default="*")
@click.option("--include_path", multiple=True, metavar="DIR", help="Further folders with task files.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(kind: str, pattern: str, include_path: tuple[str, ...], as_json: bool) -> None:
    """The command; its help text is above."""
    from assay.core.errors import UnknownName

    listings: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "tasks": lambda: _indexed("task", include_path),
        "groups": lambda: _indexed("group", include_path),
        "tags": lambda: _indexed("tag", include_path),
        "models": lambda: _registered("assay.models", "MODELS"),
        "metrics": lambda: _registered("assay.scoring.metrics", "METRICS"),
        "filters": lambda: _registered("assay.scoring.filters", "FILTERS"),
        "judges": lambda: _registered("assay.scoring.judges", "JUDGES"),
        "aggregations": lambda: _registered("assay.stats.aggregations", "AGGREGATIONS"),
        "sandboxes": lambda: _registered("assay.sandboxes", "SANDBOXES"),
        "sinks": lambda: _registered("assay.viewer.sinks", "SINKS"),
        "options": _options,
    }
    if kind not in listings:
        close = get_close_matches(kind, listings, n=1)
        guess = f"did you mean `{close[0]}`? " if close else ""
        raise UnknownName(f"nothing is listed as `{kind}`", hint=f"{guess}one of: {', '.join(listings)}")
    wanted = pattern if any(character in pattern for character in "*?[") else f"*{pattern}*"
    rows = listings[kind]()
    if wanted != "*":
        rows = [row for row in rows if fnmatchcase(row["name"], wanted)]
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    width = max((len(row["name"]) for row in rows), default=0)
    if rows:  # in one piece: thirteen thousand small writes take as long as finding the tasks
        most = get_terminal_size((0, 0)).columns if sys.stdout.isatty() else 0
        lines = [f"{row['name'].ljust(width)}  {row['about']}".rstrip() for row in rows]
        click.echo("\n".join(lines if not most else [_cut(line, most) for line in lines]))
    click.echo(f"{len(rows)} {kind}", err=True)


def _cut(line: str, most: int) -> str:
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _indexed(kind: Any, include_path: tuple[str, ...]) -> list[dict[str, Any]]:
    from assay.tasks.index import TaskIndex, default_roots
    from assay.tasks.naming import headline

    index = TaskIndex.build(default_roots(include_path))
    for path, error in index.broken:
        click.echo(f"warning: {path} cannot be read: {error.what}", err=True)
    _mention_hidden(index)
    rows = []
    # the thousands of files of an installed harness are not opened: they are told by where they lie
    abouts = {root: str(root) for label, root in index.labels.items() if label != "assay"}
    inside = {root: index.within(root) for root in index.roots}
    for name in index.names(kind):
        entry = index.entries[name]
        if entry.root is None:
            about = ""
        else:
            about = abouts.get(entry.root) or headline(entry.file) or str(entry.root)
        if kind != "task":
            count = len(_leaves(entry, inside.get(entry.root, index) if entry.root else index, set()))
            about = f"{count} task{'' if count == 1 else 's'}  {about}".rstrip()
        rows.append({"name": name, "about": about, "path": entry.file, "members": list(entry.members)})
    return rows


def _leaves(entry: Entry, index: TaskIndex, seen: set[str]) -> set[str]:
    """The tasks of a group or tag, those of groups inside it included; what is defined inline counts as one."""
    found: set[str] = set()
    for name in entry.members:
        member = index.entries.get(name)
        if member is None or member.kind == "task":
            found.add(name)
        elif name not in seen:
            seen.add(name)
            found |= _leaves(member, index, seen)
    return found


def _mention_hidden(index: Any) -> None:
    """Names defined twice: one line for two well-known folders, which share many; one each for mistakes."""
    shared: Counter[tuple[str, str]] = Counter()
    for name, used, hidden in index.shadowed:
        pair = (index.label(used), index.label(hidden))
        if all(pair) and pair[0] != pair[1]:
            shared[pair] += 1
        else:
            click.echo(f"warning: `{name}` is defined twice: {used} counts, {hidden} does not", err=True)
    for (used, hidden), count in shared.items():
        names = "1 name is" if count == 1 else f"{count} names are"
        click.echo(
            f"note: {names} in both {used} and {hidden}: those of {used} count, `{hidden}/NAME` asks for the others",
            err=True,
        )


def _registered(module: str, name: str) -> list[dict[str, Any]]:
    from importlib import import_module

    registry = getattr(import_module(module), name)
    return [{"name": key, "about": registry.about(key)} for key in registry.names()]


def _options() -> list[dict[str, Any]]:
    from assay.core.runspec import run_options

    return [{"name": name, "about": details.help} for name, _, details in run_options()]
