"""`assay ls`: list tasks, groups, tags, registered components and options."""

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
    from assay.tasks.files.index import IndexEntry, TaskIndex

__all__ = ["command"]

_HELP = """List tasks, groups, tags, registered components and options.

\b
KIND is one of: tasks, groups, tags, models, metrics, filters, judges, aggregations, sandboxes, sinks, options.
PATTERN is a glob or a part of a name.

\b
Examples:
  assay ls tasks
  assay ls tasks 'quickstart_*' --json
  assay ls metrics
"""


@click.command("ls", help=_HELP)
@click.argument("kind", default="tasks")
@click.argument("pattern", default="*")
@click.option(
    "--include_path", multiple=True, metavar="DIR", help="Additional folder with task files; repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(kind: str, pattern: str, include_path: tuple[str, ...], as_json: bool) -> None:
    """Run the command; its help text is above."""
    from assay.core.errors import UnknownName

    listings: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "tasks": lambda: _list_index("task", include_path),
        "groups": lambda: _list_index("group", include_path),
        "tags": lambda: _list_index("tag", include_path),
        "models": lambda: _list_registry("assay.engine", "MODELS"),
        "metrics": lambda: _list_registry("assay.scoring.metrics", "METRICS"),
        "filters": lambda: _list_registry("assay.scoring.filters", "FILTERS"),
        "judges": lambda: _list_registry("assay.scoring.judges", "JUDGES"),
        "aggregations": lambda: _list_registry("assay.stats.aggregations", "AGGREGATIONS"),
        "sandboxes": lambda: _list_registry("assay.sandboxes", "SANDBOXES"),
        "sinks": lambda: _list_registry("assay.viewer.sinks", "SINKS"),
        "options": _list_options,
    }
    if kind not in listings:
        close = get_close_matches(kind, listings, n=1)
        guess = f"did you mean `{close[0]}`? " if close else ""
        raise UnknownName(f"unknown kind `{kind}`", hint=f"{guess}one of: {', '.join(listings)}")
    name_pattern = pattern if any(character in pattern for character in "*?[") else f"*{pattern}*"
    rows = listings[kind]()
    if name_pattern != "*":
        rows = [row for row in rows if fnmatchcase(row["name"], name_pattern)]
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    width = max((len(row["name"]) for row in rows), default=0)
    if rows:  # one write: 13,000 small writes take as long as indexing the tasks
        max_width = get_terminal_size((0, 0)).columns if sys.stdout.isatty() else 0
        lines = [f"{row['name'].ljust(width)}  {row['about']}".rstrip() for row in rows]
        click.echo("\n".join(lines if not max_width else [_truncate(line, max_width) for line in lines]))
    singular = "sandbox" if kind == "sandboxes" else kind.removesuffix("s")
    click.echo(f"{len(rows)} {singular if len(rows) == 1 else kind}", err=True)
    if kind in ("models", "sinks"):
        _report_missing_plugins(kind)


def _truncate(line: str, max_width: int) -> str:
    return line if len(line) <= max_width else f"{line[: max_width - 1]}…"


def _list_index(kind: Any, include_path: tuple[str, ...]) -> list[dict[str, Any]]:
    from assay.tasks.files.index import TaskIndex, find_task_roots
    from assay.tasks.files.naming_keys import read_headline

    index = TaskIndex.build(find_task_roots(include_path))
    for path, error in index.broken:
        click.echo(f"warning: cannot read {path}: {error.what}", err=True)
    _report_shadowed_names(index)
    rows = []
    # do not open the thousands of task files of an installed harness: describe them by their folder
    abouts = {root: str(root) for label, root in index.labels.items() if label != "assay"}
    inside = {root: index.view_from(root) for root in index.roots}
    for name in index.names(kind):
        entry = index.entries[name]
        if entry.root is None:
            about = ""
        else:
            about = abouts.get(entry.root) or read_headline(entry.file) or str(entry.root)
        if kind != "task":
            count = len(_collect_tasks(entry, inside.get(entry.root, index) if entry.root else index, set()))
            about = f"{count} task{'' if count == 1 else 's'}  {about}".rstrip()
        rows.append({"name": name, "about": about, "path": entry.file, "members": list(entry.members)})
    return rows


def _collect_tasks(entry: IndexEntry, index: TaskIndex, seen: set[str]) -> set[str]:
    """Return the tasks of a group or tag, including those of nested groups; an inline definition counts as one."""
    found: set[str] = set()
    for name in entry.members:
        member = index.entries.get(name)
        if member is None or member.kind == "task":
            found.add(name)
        elif name not in seen:
            seen.add(name)
            found |= _collect_tasks(member, index, seen)
    return found


def _report_shadowed_names(index: TaskIndex) -> None:
    """Report names defined twice: one line for two task collections that share names, one line per name otherwise."""
    shared: Counter[tuple[str, str]] = Counter()
    for name, used, hidden in index.shadowed:
        pair = (index.find_label(used), index.find_label(hidden))
        if all(pair) and pair[0] != pair[1]:
            shared[pair] += 1
        else:
            click.echo(f"warning: `{name}` is defined twice: {used} is used, {hidden} is ignored", err=True)
    for (first, second), count in shared.items():
        names = "1 name is" if count == 1 else f"{count} names are"
        click.echo(
            f"note: {names} in both {first} and {second}: {first} takes precedence, `{second}/NAME` selects the other",
            err=True,
        )


def _list_registry(module: str, name: str) -> list[dict[str, Any]]:
    from importlib import import_module

    registry = getattr(import_module(module), name)
    return [{"name": key, "about": registry.about(key)} for key in registry.names()]


def _report_missing_plugins(kind: str) -> None:
    """Report the optional plugins that are not installed, with the command that installs each."""
    from assay.core.installation import format_plugin_install_command
    from assay.models import MODELS
    from assay.viewer.sinks import SINKS

    missing = MODELS.missing_plugins() if kind == "models" else SINKS.missing_plugins()
    for plugin, names in missing.items():
        click.echo(f"not installed: {', '.join(names)} ({format_plugin_install_command(plugin)})", err=True)


def _list_options() -> list[dict[str, Any]]:
    from assay.core.options.run_spec import list_options

    return [{"name": name, "about": details.help} for name, _, details in list_options()]
