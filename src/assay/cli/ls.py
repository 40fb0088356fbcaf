"""`assay ls`: list tasks, groups, tags, registered components and options."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    from pathlib import Path

    from assay.tasks.files.index import IndexEntry, TaskIndex

__all__ = ["command"]

_KINDS = {
    "tasks": "what can be evaluated; lists of up to 500 tasks show output type, documents and modality",
    "groups": "sets of tasks with one score",
    "tags": "sets of tasks without a score of their own",
    "models": "what can answer; `assay ls models NAME` shows the arguments",
    "metrics": "scores of answers, for `metric_list`",
    "filters": "steps that extract the answer from a response, for `filter_list`",
    "judges": "prompts and reply formats of LLM judges",
    "aggregations": "how scores of documents become one number",
    "solvers": "loops of agents, for `solver`",
    "environments": "what the tools of agents act on, for `environment`",
    "agent_tools": "tools of plugins that an agent task can name, for `tools`",
    "sandboxes": "isolation for programs that models write",
    "sinks": "external trackers, for `--sink`",
    "options": "options of a run",
}

_MIN_ABOUT_WIDTH = 36
"""Descriptions that have less room beside the name are written below it."""

_MAX_DESCRIBED = 500
"""Longer lists of tasks are listed without reading their files: no output type, documents and modality."""

_HELP = """List tasks, groups, tags, registered components and options. Without arguments, shows what can be listed.

\b
KIND is one of: tasks, groups, tags, models, metrics, filters, judges, aggregations, solvers, environments,
agent_tools, sandboxes, sinks, options.
WORDS are a glob for names, or words that the name or the description contains.
With the name of a model, shows its arguments.

\b
Examples:
  assay ls
  assay ls tasks
  assay ls tasks 'quickstart_*' --json
  assay ls tasks math --type generate_until
  assay ls tasks --tag ai2_arc
  assay ls models hf
  assay ls metrics
"""


@click.command("ls", help=_HELP)
@click.argument("kind", default="")
@click.argument("words", nargs=-1)
@click.option("--tag", metavar="TAG", help="Only tasks with this tag.")
@click.option(
    "--type", "output_type", metavar="TYPE", help="Only tasks of this output type, such as `generate_until`."
)
@click.option(
    "--include_path", multiple=True, metavar="DIR", help="Additional folder with task files; repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    kind: str,
    words: tuple[str, ...],
    tag: str | None,
    output_type: str | None,
    include_path: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run the command; its help text is above."""
    from assay.core.errors import InvalidOption, UnknownName

    if not kind:
        _print_kinds(as_json=as_json)
        return
    if kind != "tasks" and (tag or output_type):
        raise InvalidOption("only tasks have tags and output types", where="--tag" if tag else "--type")
    if kind == "models" and len(words) == 1 and _print_model(words[0], as_json=as_json):
        return
    listings: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "tasks": lambda: _list_tasks(include_path, words, tag or "", output_type or ""),
        "groups": lambda: _list_sets(_build_index(include_path), "group"),
        "tags": lambda: _list_sets(_build_index(include_path), "tag"),
        "models": lambda: _list_registry("assay.engine", "MODELS"),
        "metrics": lambda: _list_registry("assay.scoring.metrics", "METRICS"),
        "filters": lambda: _list_registry("assay.scoring.filters", "FILTERS"),
        "judges": lambda: _list_registry("assay.scoring.judges", "JUDGES"),
        "aggregations": lambda: _list_registry("assay.stats.aggregations", "AGGREGATIONS"),
        "solvers": lambda: _list_registry("assay.agents.solvers", "SOLVERS"),
        "environments": lambda: _list_registry("assay.agents.environments", "ENVIRONMENTS"),
        "agent_tools": lambda: _list_registry("assay.agents.functions", "TOOLS"),
        "sandboxes": lambda: _list_registry("assay.sandboxes", "SANDBOXES"),
        "sinks": lambda: _list_registry("assay.viewer.sinks", "SINKS"),
        "options": _list_options,
    }
    if kind not in listings:
        from difflib import get_close_matches

        close = get_close_matches(kind, listings, n=1)
        guess = f"did you mean `{close[0]}`? " if close else ""
        if kind in ("run", "runs"):
            guess = "`assay runs` lists stored runs; "
        raise UnknownName(f"unknown kind `{kind}`", hint=f"{guess}one of: {', '.join(listings)}")
    listed = listings[kind]()
    if output_type and not listed:
        _check_output_type(output_type)
    rows = [row for row in listed if _matches(row, words)]
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    _print_rows(rows)
    singular = "sandbox" if kind == "sandboxes" else kind.removesuffix("s")
    click.echo(f"{len(rows)} {singular if len(rows) == 1 else kind}", err=True)
    if kind in ("models", "sinks"):
        _report_missing_plugins(kind)


def _check_output_type(name: str) -> None:
    from assay.core.errors import InvalidOption
    from assay.core.output_types import OutputType

    known = [kind.value for kind in OutputType]
    if name not in known:
        raise InvalidOption(
            f"no output type is called `{name}`", where="--type", hint=f"use one of: {', '.join(known)}"
        )


def _print_kinds(*, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([{"name": name, "about": about} for name, about in _KINDS.items()], indent=2))
        return
    _print_described([(f"assay ls {name:<12}", about) for name, about in _KINDS.items()])


def _matches(row: dict[str, Any], words: tuple[str, ...]) -> bool:
    """Whether the name matches each glob, and the name or the description contains each other word."""
    if not words:
        return True
    text = " ".join(str(row.get(key) or "") for key in ("name", "about", "output_type", "modality")).lower()
    return all(
        fnmatchcase(row["name"], word)
        if any(character in word for character in "*?[")
        else word.lower() in text
        for word in words
    )


def _print_rows(rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    if "output_type" not in rows[0]:
        width = max(len(row["name"]) for row in rows)
        _print_described([(row["name"].ljust(width), row["about"]) for row in rows])
        return
    columns = [
        key for key in ("name", "output_type", "documents", "modality") if any(row[key] for row in rows)
    ]
    widths = {key: max(len(str(row[key] or "")) for row in rows) for key in columns}
    lines = []
    for row in rows:
        cells = [f"{row[key] or '':{'>' if key == 'documents' else '<'}{widths[key]}}" for key in columns]
        lines.append(("  ".join(cells), row["about"]))
    _print_described(lines)


def _print_described(lines: list[tuple[str, str]]) -> None:
    """Print names with their descriptions. On a terminal, descriptions wrap beside the names, or below them if these are wide."""
    width = 0
    if sys.stdout.isatty():
        from shutil import get_terminal_size
        from textwrap import wrap

        width = get_terminal_size((0, 0)).columns
    text = []
    for head, about in lines:
        line = f"{head}  {about}".rstrip()
        if not width or len(line) <= width:
            text.append(line)
            continue
        column = len(head) + 2 if width - len(head) - 2 >= _MIN_ABOUT_WIDTH else 4
        parts = wrap(about, max(width - column, _MIN_ABOUT_WIDTH), break_on_hyphens=False) or [""]
        if column == 4:
            text.append(head.rstrip())
        else:
            text.append(f"{head}  {parts.pop(0)}")
        text += [f"{'':{column}}{part}" for part in parts]
    # one write: 13,000 small writes take as long as indexing the tasks
    click.echo("\n".join(text))


def _print_model(name: str, *, as_json: bool) -> bool:
    """Print the arguments of a model; return whether there is such a model."""
    from assay.models import MODELS
    from assay.models.argument_listing import list_arguments

    if name not in MODELS:
        return False
    arguments = list_arguments(MODELS.get(name))
    if as_json:
        rows = [{"name": one.name, "default": one.default, "about": one.about} for one in arguments]
        listed = [{"name": name, "about": MODELS.about(name), "arguments": rows}]
        click.echo(json.dumps(listed, ensure_ascii=False, indent=2))
        return True
    click.echo(f"{name}: {MODELS.about(name)}")
    width = max((len(one.name) for one in arguments), default=0)
    lines = []
    for one in arguments:
        default = f"[default: {one.default}]" if one.default else ""
        about = " ".join(part for part in (one.about, default) if part)
        lines.append((f"  {one.name.ljust(width)}", about))
    if lines:
        _print_described(lines)
    example = next((one.name for one in arguments), "")
    click.echo(
        f"{len(arguments)} argument{'' if len(arguments) == 1 else 's'}"
        + (f", for `--model {name} --model_args {example}=…`" if example else ""),
        err=True,
    )
    return True


def _list_tasks(
    include_path: tuple[str, ...], words: tuple[str, ...], tag: str, output_type: str
) -> list[dict[str, Any]]:
    """List the tasks that the arguments select, with what their files say unless there are too many to read."""
    index = _build_index(include_path)
    tagged = _find_tagged(tag, index)
    entries = [index.entries[name] for name in index.names("task") if tagged is None or name in tagged]
    if output_type or len(entries) <= _MAX_DESCRIBED:
        rows = _describe_tasks(entries, index)
        return [row for row in rows if not output_type or row["output_type"] == output_type]
    abouts = _describe_harness_roots(index)
    rows = [_make_row(entry, _describe_entry(entry, abouts)) for entry in entries]
    rows = [row for row in rows if _matches(row, words)]
    if len(rows) > _MAX_DESCRIBED:
        return rows
    return _describe_tasks([index.entries[row["name"]] for row in rows], index)


def _describe_tasks(entries: list[IndexEntry], index: TaskIndex) -> list[dict[str, Any]]:
    """List tasks with output type, number of documents and modality, where they are known."""
    from assay.tasks.files.task_facts import describe_tasks

    by_root: dict[Any, list[str]] = {}
    for entry in entries:
        by_root.setdefault(entry.root, []).append(entry.file)
    facts = {
        file: one for root, files in by_root.items() for file, one in describe_tasks(root, files).items()
    }
    abouts = _describe_harness_roots(index)
    rows = []
    for entry in entries:
        headline, output_type, modality, documents = facts[entry.file]
        row = _make_row(entry, abouts.get(entry.root) or headline or str(entry.root))
        rows.append({**row, "output_type": output_type, "documents": documents, "modality": modality})
    return rows


def _list_sets(index: TaskIndex, kind: Literal["group", "tag"]) -> list[dict[str, Any]]:
    """List groups or tags with the number of their tasks."""
    inside = {root: index.view_from(root) for root in index.roots}
    abouts = _describe_harness_roots(index)
    rows = []
    for name in index.names(kind):
        entry = index.entries[name]
        count = len(_collect_tasks(entry, inside.get(entry.root, index) if entry.root else index, set()))
        about = f"{count} task{'' if count == 1 else 's'}  {_describe_entry(entry, abouts)}".rstrip()
        rows.append(_make_row(entry, about))
    return rows


def _make_row(entry: IndexEntry, about: str) -> dict[str, Any]:
    return {"name": entry.name, "about": about, "path": entry.file, "members": list(entry.members)}


def _describe_harness_roots(index: TaskIndex) -> dict[Path | None, str]:
    """Describe the thousands of task files of an installed harness by their folder, without opening them."""
    return {root: str(root) for label, root in index.labels.items() if label != "assay"}


def _describe_entry(entry: IndexEntry, abouts: dict[Path | None, str]) -> str:
    from assay.tasks.files.file_stamps import read_headline

    if entry.root is None:
        return ""
    return abouts.get(entry.root) or read_headline(entry.file) or str(entry.root)


def _build_index(include_path: tuple[str, ...]) -> TaskIndex:
    """Index the task files; report unreadable files and names defined twice."""
    from assay.tasks.files.index import TaskIndex, find_task_roots, pause_gc

    click.get_current_context().with_resource(pause_gc())  # until the rows are printed
    index = TaskIndex.build(find_task_roots(include_path))
    for path, error in index.broken:
        click.echo(f"warning: cannot read {path}: {error.what}", err=True)
    _report_shadowed_names(index)
    return index


def _find_tagged(tag: str, index: TaskIndex) -> set[str] | None:
    """Return the tasks with a tag; None without one."""
    from assay.core.errors import UnknownName

    if not tag:
        return None
    tags = index.names("tag")
    if tag not in tags:
        raise UnknownName.of("tag", tag, tags, where="--tag")
    return set(index.entries[tag].members)


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
