"""Generate the pages of registered names (models, metrics, filters, …) and of errors."""

from __future__ import annotations

from importlib import import_module

from scripts.reference.messages import collect_messages

from assay.core import errors

KINDS = {
    "Models": ("assay.engine", "MODELS"),
    "Metrics": ("assay.scoring.metrics", "METRICS"),
    "Filters": ("assay.scoring.filters", "FILTERS"),
    "Aggregations": ("assay.stats.aggregations", "AGGREGATIONS"),
    "Judges": ("assay.scoring.judges", "JUDGES"),
    "Sandboxes": ("assay.sandboxes", "SANDBOXES"),
    "Sinks": ("assay.viewer.sinks", "SINKS"),
}

HEAD = """\
# Registered names

<!-- made by scripts/generate_reference.py: change the docstrings instead -->

These names are part of Assay. Installed packages can add more through entry points ([your model](../guides/your-model.md)).
`assay ls KIND` lists the names of an installation.
"""

ERRORS_HEAD = """\
# Errors

<!-- made by scripts/generate_reference.py: change src/assay/core/errors.py or the messages in src/assay instead -->

An error message says *what* is wrong, *where* (a file and line, a key, a flag) and gives a *hint*. The exit code shows the
cause to a script.
"""


def generate_names_page() -> str:
    """Return the page of registered names."""
    pieces = [HEAD]
    for title, (module, name) in KINDS.items():
        registry = getattr(import_module(module), name)
        pieces.append(f"\n## {title}\n\n| name | description |\n|---|---|\n")
        by_description: dict[str, list[str]] = {}
        for key in registry.names():
            about = registry.about(key).replace("|", "\\|").replace("<", "\\<")
            by_description.setdefault(about, []).append(key)
        for about, names in by_description.items():
            pieces.append(f"| {', '.join(f'`{one}`' for one in names)} | {about} |\n")
    return "".join(pieces)


def generate_errors_page() -> str:
    """Return the page of errors."""
    rows = []
    for name in errors.__all__:
        kind = getattr(errors, name)
        above = " > ".join(
            one.__name__ for one in reversed(kind.__mro__) if issubclass(one, errors.AssayError)
        )
        text = (kind.__doc__ or "").strip().partition("\n")[0]
        rows.append((above, f"| `{name}` | {kind.exit_code} | {text} |\n"))
    return (
        ERRORS_HEAD
        + "\n| error | exit code | meaning |\n|---|---|---|\n"
        + "".join(row for _, row in sorted(rows))
        + "\n## Messages\n\nEvery message of these errors, with the package that reports it. `…` stands for a value.\n"
        + "".join(map(_format_messages, collect_messages().items()))
    )


def _format_messages(entry: tuple[str, list[tuple[str, str]]]) -> str:
    name, messages = entry
    rows = "".join(f"| {_escape_cell(message)} | {package} |\n" for message, package in messages)
    return f"\n### {name}\n\n| message | package |\n|---|---|\n{rows}"


def _escape_cell(text: str) -> str:
    """Return a message as a table cell."""
    for character, replacement in (("|", "\\|"), ("<", "\\<"), ("*", "\\*"), ("\n", " ")):
        text = text.replace(character, replacement)
    return text
