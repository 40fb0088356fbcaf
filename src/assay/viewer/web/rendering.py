"""Templates, static files, and the formatting of numbers, times and figures in pages."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from assay.core.records.endings import ENDINGS
from assay.viewer.charts import CONFIG
from assay.viewer.number_format import format_age, format_dollars, format_duration
from assay.viewer.plots.records import PlotTable, format_cell
from assay.viewer.web.colours import build_colour_rules
from assay.viewer.web.pages.conversation import split_segments

__all__ = [
    "SITE",
    "STATIC_FILES",
    "THEME",
    "SiteOptions",
    "build_url",
    "compute_static_version",
    "dump_figures",
    "find_plotly_script",
    "format_score",
    "preload",
    "read_static_file",
    "render",
]

_FONTS = (
    "AMS-Regular", "Caligraphic-Bold", "Caligraphic-Regular", "Fraktur-Bold", "Fraktur-Regular", "Main-Bold",
    "Main-BoldItalic", "Main-Italic", "Main-Regular", "Math-BoldItalic", "Math-Italic", "SansSerif-Bold",
    "SansSerif-Italic", "SansSerif-Regular", "Script-Regular", "Size1-Regular", "Size2-Regular", "Size3-Regular",
    "Size4-Regular", "Typewriter-Regular",
)  # fmt: skip
STATIC_FILES = {
    "style.css": "text/css",
    "page.js": "text/javascript",
    "charts.js": "text/javascript",
    "chart_downloads.js": "text/javascript",
    "reader.js": "text/javascript",
    "reader.css": "text/css",
    "markdown.js": "text/javascript",
    "documents.js": "text/javascript",
    "documents.css": "text/css",
    "run.js": "text/javascript",
    "labels.js": "text/javascript",
    "site.js": "text/javascript",
    "watch.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "vendor/markdown-it.min.js": "text/javascript",
    "vendor/highlight.min.js": "text/javascript",
    "vendor/katex/katex.min.js": "text/javascript",
    "vendor/katex/katex.min.css": "text/css",
    **{f"vendor/katex/fonts/KaTeX_{name}.woff2": "font/woff2" for name in _FONTS},
}
"""Static file -> content type. Each script and font of another project is a file of its npm package (`vendor/versions.json`)."""

THEME: ContextVar[str] = ContextVar("theme", default="")
"""The theme of the current request: light, dark, or empty for the system's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOptions:
    """What a static site contains; pages leave out what needs a server."""

    has_media: bool = True
    max_documents: int | None = None
    """Maximum number of documents of each run; None for all."""

    has_filters: bool = True
    """Whether the rows of the tables are stored for filters in the browser."""


SITE: ContextVar[SiteOptions | None] = ContextVar("site", default=None)
"""The static site that is being written; None for pages of the server."""

_OUTCOME_MEANINGS: dict[str, str] = dict([*ENDINGS.items(), ("open", "not processed yet")])


@cache
def read_static_file(name: str) -> bytes:
    """Return a static file; the style sheet includes the colour variables."""
    if name == "chart_downloads.js":  # reports contain it, too
        return files("assay.viewer.charts").joinpath("downloads.js").read_bytes()
    content = files(__package__).joinpath("static", *name.split("/")).read_bytes()
    return build_colour_rules().encode() + content if name == "style.css" else content


@cache
def compute_static_version() -> str:
    """Return a digest of the static files for their URLs, so that browsers cache them until they change."""
    content = b"".join(read_static_file(name) for name in STATIC_FILES)
    return hashlib.sha256(content).hexdigest()[:12]


@cache
def _build_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("assay.viewer.web"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "number": format_score,
        "count": format_count,
        "age": _format_start,
        "moment": _format_moment,
        "duration": lambda seconds: "" if seconds is None else format_duration(seconds),
        "latency": lambda seconds: f"{1000 * seconds:.0f} ms" if seconds < 1 else format_duration(seconds),
        "dollars": format_dollars,
        "cell": format_cell,
        "percent": lambda share: f"{100 * share:.1f} %",
        "pretty": format_json,
        "segment": lambda text: quote(str(text), safe=""),
    }
    environment.filters.update(filters)
    known: dict[str, Any] = {
        "build_url": build_url,
        "meaning": lambda outcome: _OUTCOME_MEANINGS.get(outcome, ""),
        "outcomes": tuple(_OUTCOME_MEANINGS),
        "version": compute_static_version,
        "theme": THEME.get,
        "site": SITE.get,
        "plotly": _render_plotly_tags,
        "reader": _render_reader_tags,
        "split": split_segments,
    }
    environment.globals.update(known)
    return environment


def _render_plotly_tags() -> Markup:
    """Return the script elements of a page with charts."""
    marks = Markup("").join(Markup('<meta id="{}">').format(mark) for mark in _find_style_ids())
    scripts = Markup(
        '<script defer src="/plotly/{}.js"></script><script type="module" src="/static/{}/charts.js"></script>'
    )
    return marks + scripts.format(_find_plotly_version(), compute_static_version())


@cache
def _find_plotly_version() -> str:
    from importlib.metadata import version

    return version("plotly")


def _render_reader_tags() -> Markup:
    """Return the elements of a page that shows documents."""
    tags = Markup(
        '<link rel="stylesheet" href="/static/{0}/reader.css"><script type="module" src="/static/{0}/reader.js"></script>'
        '<link rel="stylesheet" href="/static/{0}/documents.css">'
    )
    if SITE.get() is None:  # labels are stored by the server
        tags += Markup('<script type="module" src="/static/{0}/labels.js"></script>')
    return tags.format(compute_static_version())


def find_plotly_script() -> Path:
    """Return the path of the script in the package `plotly`."""
    import plotly

    return Path(str(plotly.__file__)).parent / "package_data" / "plotly.min.js"


@cache
def _find_style_ids() -> tuple[str, ...]:
    """Return the ids of style sheets that plotly would inject for parts that are not used here (maps).

    The content security policy forbids them; plotly skips an id that exists in the page.
    """
    text = find_plotly_script().read_text("utf-8", "replace")
    return tuple(dict.fromkeys(re.findall(r'getElementById\("([0-9a-f]{64})"\)', text)))


def preload() -> None:
    """Load what the first page would otherwise wait for."""
    environment = _build_environment()
    for name in environment.list_templates():
        environment.get_template(name)
    compute_static_version()
    _find_style_ids()


def render(name: str, **context: Any) -> str:
    """Render a template. Lone surrogates of dataset text, which UTF-8 cannot encode, become question marks."""
    return _build_environment().get_template(name).render(**context).encode("utf-8", "replace").decode()


def format_score(value: Any) -> str:
    """Format a score with three or four significant digits, aligned by the decimal point.

    >>> format_score(0.8666), format_score(12.5), format_score(None), format_score(3)
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


def format_count(value: int) -> str:
    """Format an integer with thin spaces between thousands.

    >>> format_count(1234567) == "1\u202f234\u202f567"
    True
    """
    return f"{value:,}".replace(",", "\u202f")


def format_json(value: Any) -> str:
    """Format a value as indented JSON; text stays as it is."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, indent=2, default=str)
    except (TypeError, ValueError):
        return str(value)


def _format_moment(seconds: float | None) -> str:
    if seconds is None:
        return ""
    moment = datetime.fromtimestamp(seconds, UTC)
    if SITE.get() is not None:  # a static copy is read in other time zones
        return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _format_start(seconds: float | None) -> str:
    """Format the time since a moment; in a static copy, which is read at any later time, the moment."""
    if seconds is None:
        return ""
    if SITE.get() is not None:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return format_age(max(0.0, time.time() - seconds))


def build_url(path: str, query: Mapping[str, Any] | None = None, **changes: Any) -> str:
    """Build a URL from a path and a query; empty values are omitted, lists repeat their key.

    >>> build_url("/runs", {"q": "a b", "page": 2}, page=None)
    '/runs?q=a+b'
    """
    wanted = {**(query or {}), **changes}
    kept = {key: value for key, value in wanted.items() if value is not None and value != "" and value != []}
    return f"{path}?{urlencode(kept, doseq=True)}" if kept else path


def dump_figures(figures: Mapping[str, Any], table: PlotTable | None = None) -> Markup:
    """Return the figures of both themes as JSON that is safe inside a script element, with the numbers to download."""
    more = {} if table is None else {"table": {"columns": table.columns, "rows": table.rows}}
    content = {**figures, "config": CONFIG, **more}
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, default=str)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
