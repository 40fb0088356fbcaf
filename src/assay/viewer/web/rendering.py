"""Templates, and how numbers, times and figures are written into pages."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from assay.core.endings import ENDINGS
from assay.viewer.charts import CONFIG
from assay.viewer.run_tables import age, duration
from assay.viewer.tables import dollars
from assay.viewer.web.colours import colour_sheet

__all__ = [
    "STATIC",
    "THEME",
    "address",
    "chart_json",
    "plotly_script",
    "render",
    "score_text",
    "static_file",
    "static_version",
    "warm_up",
]

STATIC = {
    "style.css": "text/css",
    "page.js": "text/javascript",
    "charts.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
"""Our own files, and what they are."""

THEME: ContextVar[str] = ContextVar("theme", default="")
"""What the one who asks has chosen: light, dark, or nothing."""

_MEANINGS: dict[str, str] = dict([*ENDINGS.items(), ("open", "asked, not ended yet")])


@cache
def static_file(name: str) -> bytes:
    """One of our own files; the style sheet with the colours it speaks of."""
    content = files(__package__).joinpath("static", name).read_bytes()
    return colour_sheet().encode() + content if name == "style.css" else content


@cache
def static_version() -> str:
    """A mark of our own files, so that a browser keeps them until they change."""
    content = b"".join(static_file(name) for name in STATIC)
    return hashlib.sha256(content).hexdigest()[:12]


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("assay.viewer.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "number": score_text,
        "count": count_text,
        "age": lambda moment: "" if moment is None else age(max(0.0, time.time() - moment)),
        "moment": _moment,
        "duration": lambda seconds: "" if seconds is None else duration(seconds),
        "latency": lambda seconds: f"{1000 * seconds:.0f} ms" if seconds < 1 else duration(seconds),
        "dollars": dollars,
        "percent": lambda share: f"{100 * share:.1f} %",
        "pretty": pretty,
        "segment": lambda text: quote(str(text), safe=""),
    }
    environment.filters.update(filters)
    known: dict[str, Any] = {
        "address": address,
        "meaning": lambda outcome: _MEANINGS.get(outcome, ""),
        "outcomes": tuple(_MEANINGS),
        "version": static_version,
        "theme": THEME.get,
        "plotly": _plotly_tags,
    }
    environment.globals.update(known)
    return environment


def _plotly_tags() -> Markup:
    """The scripts of a page with charts."""
    from importlib.metadata import version

    marks = Markup("").join(Markup('<meta id="{}">').format(mark) for mark in _style_marks())
    scripts = Markup(
        '<script defer src="/plotly/{}.js"></script><script type="module" src="/static/{}/charts.js"></script>'
    )
    return marks + scripts.format(version("plotly"), static_version())


def plotly_script() -> Path:
    """Where the package `plotly` keeps its script."""
    import plotly

    return Path(str(plotly.__file__)).parent / "package_data" / "plotly.min.js"


@cache
def _style_marks() -> tuple[str, ...]:
    """Names under which parts of plotly that are not used here (maps) would put style sheets into the page, which its
    policy forbids, unless something of that name is there."""
    text = plotly_script().read_text("utf-8", "replace")
    return tuple(dict.fromkeys(re.findall(r'getElementById\("([0-9a-f]{64})"\)', text)))


def warm_up() -> None:
    """Make everything that the first page would have to wait for."""
    environment = _environment()
    for name in environment.list_templates():
        environment.get_template(name)
    static_version()
    _style_marks()


def render(name: str, **context: Any) -> str:
    """A page."""
    return _environment().get_template(name).render(**context)


def score_text(value: Any) -> str:
    """A score in a table: three or four digits that count, aligned by the point.

    >>> score_text(0.8666), score_text(12.5), score_text(None), score_text(3)
    ('0.8666', '12.50', '–', '3')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "–"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        size = abs(value)
        return f"{value:.4f}" if size < 10 else f"{value:.2f}" if size < 1e6 else f"{value:.3g}"
    return "…" if isinstance(value, (dict, list)) else str(value)


def count_text(value: int) -> str:
    """A whole number with thin spaces between its thousands.

    >>> count_text(1234567) == "1\u202f234\u202f567"
    True
    """
    return f"{value:,}".replace(",", "\u202f")


def pretty(value: Any) -> str:
    """A JSON-like value for people; a text as it is."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, indent=2, default=str)
    except (TypeError, ValueError):
        return str(value)


def _moment(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def address(path: str, query: Mapping[str, Any] | None = None, **changes: Any) -> str:
    """An address with everything that is not empty in its query; lists give a key several times.

    >>> address("/runs", {"q": "a b", "page": 2}, page=None)
    '/runs?q=a+b'
    """
    wanted = {**(query or {}), **changes}
    kept = {key: value for key, value in wanted.items() if value is not None and value != "" and value != []}
    return f"{path}?{urlencode(kept, doseq=True)}" if kept else path


def chart_json(figures: Mapping[str, Any]) -> Markup:
    """Figures for both kinds of page, as JSON that cannot end the element it stands in."""
    text = json.dumps({**figures, "config": CONFIG}, ensure_ascii=True, allow_nan=False, default=str)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
