"""A report as one HTML file: style, script, charts and plotly inside; a policy that lets nothing else in or out."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.core.errors import MissingPackage
from assay.core.printable import printable
from assay.viewer.charts import CONFIG
from assay.viewer.report.content import Report

__all__ = ["plotly_script", "render_page"]

_LINES = str.maketrans(
    {"\u2028": "\\u2028", "\u2029": "\\u2029", "<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
)


def render_page(report: Report, *, packed: bool = True) -> str:
    """The whole file. `packed`: plotly is compressed, which makes the file a third as large; a browser from before 2023
    shows the tables only.

    Raises:
        MissingPackage: plotly is not installed.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    plotly = plotly_script()
    script = _file("page.js")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["printable"] = lambda value: printable(str(value))
    return environment.from_string(_file("page.html")).render(
        report=report,
        policy=_policy(plotly, script),
        style=Markup(_file("style.css")),
        script=Markup(script),
        plotly=Markup("" if packed else plotly),
        packed=Markup(_packed() if packed else ""),
        figures=Markup(json_text(report.figures)),
        config=Markup(json_text(CONFIG)),
    )


def json_text(value: Any) -> str:
    """JSON that can stand inside a script element: nothing in it ends the element or begins a comment.

    >>> json_text({"a": "</script>"})
    '{"a":"\\\\u003c/script\\\\u003e"}'
    """
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(_LINES)


def plotly_script() -> str:
    """plotly's own script, from the installed package.

    Raises:
        MissingPackage: It is not installed.
    """
    return _plotly()


@cache
def _plotly() -> str:
    found = find_spec("plotly")
    if found is None or found.origin is None:
        raise MissingPackage.of("plotly", "a report with charts", extra="viewer")
    path = Path(found.origin).parent / "package_data" / "plotly.min.js"
    try:
        text = path.read_text("utf-8")
    except OSError:
        raise MissingPackage.of(
            "plotly", "a report with charts (its script is missing)", extra="viewer"
        ) from None
    return text.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


@cache
def _packed() -> str:
    return base64.b64encode(gzip.compress(_plotly().encode(), 6, mtime=0)).decode()


def _policy(*scripts: str) -> str:
    """Nothing is loaded from anywhere; only these very scripts run."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; media-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _file(name: str) -> str:
    return files("assay.viewer.report").joinpath("page", name).read_text("utf-8")
