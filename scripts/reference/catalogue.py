"""The page of everything that has a name: models, metrics, filters, aggregations, judges, sandboxes, sinks; and errors."""

from __future__ import annotations

from importlib import import_module

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
# Everything with a name

<!-- made by scripts/generate_reference.py: change the docstrings instead -->

What ships with Assay; installed packages may add to each kind through entry points ([your model](../guides/your-model.md)).
`assay ls KIND` lists what this installation has.
"""

ERRORS_HEAD = """\
# Errors

<!-- made by scripts/generate_reference.py: change src/assay/core/errors.py instead -->

Every error Assay explains says *what* happened, *where* (a file and line, a key, a flag) and a *hint*. The exit code tells a
script whose fault it was.
"""


def page() -> str:
    """The page of names."""
    pieces = [HEAD]
    for title, (module, name) in KINDS.items():
        registry = getattr(import_module(module), name)
        pieces.append(f"\n## {title}\n\n| name | what it is |\n|---|---|\n")
        together: dict[str, list[str]] = {}
        for key in registry.names():
            about = registry.about(key).replace("|", "\\|").replace("<", "\\<")
            together.setdefault(about, []).append(key)
        for about, names in together.items():
            pieces.append(f"| {', '.join(f'`{one}`' for one in names)} | {about} |\n")
    return "".join(pieces)


def errors_page() -> str:
    """The page of errors."""
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
        + "\n| error | exit code | what it means |\n|---|---|---|\n"
        + "".join(row for _, row in sorted(rows))
    )
