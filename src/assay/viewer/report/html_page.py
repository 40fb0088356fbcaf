"""Rendering of a report as one HTML file with styles, scripts and plotly, and a policy that blocks everything else."""

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
from assay.core.terminal_text import escape_control_characters
from assay.viewer.charts import CONFIG
from assay.viewer.plots.records import format_cell
from assay.viewer.report.content import Report

__all__ = ["read_plotly_script", "render_page"]

_SCRIPT_ESCAPES = str.maketrans(
    {"\u2028": "\\u2028", "\u2029": "\\u2029", "<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
)


def render_page(report: Report, *, packed: bool = True) -> str:
    """Return the whole file. `packed` compresses plotly: the file is a third as large, but browsers from before 2023 show
    the tables only.

    Raises:
        MissingPackage: plotly is not installed.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    plotly = read_plotly_script()
    script = f"{_read_downloads_script()}\n{_read_template('page.js')}"
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["cell"] = lambda value: escape_control_characters(format_cell(value))
    environment.filters["printable"] = lambda value: escape_control_characters(str(value))
    return environment.from_string(_read_template("page.html")).render(
        report=report,
        policy=_build_policy(plotly, script),
        style=Markup(_read_template("style.css")),
        script=Markup(script),
        plotly=Markup("" if packed else plotly),
        packed=Markup(_compress_plotly() if packed else ""),
        figures=Markup(dump_script_json(report.figures)),
        tables=Markup(dump_script_json(report.tables)),
        config=Markup(dump_script_json(CONFIG)),
    )


def dump_script_json(value: Any) -> str:
    """Return JSON that is safe inside a script element.

    >>> dump_script_json({"a": "</script>"})
    '{"a":"\\\\u003c/script\\\\u003e"}'
    """
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(
        _SCRIPT_ESCAPES
    )


@cache
def read_plotly_script() -> str:
    """Return the script of the installed package `plotly`.

    Raises:
        MissingPackage: plotly is not installed.
    """
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
def _compress_plotly() -> str:
    return base64.b64encode(gzip.compress(read_plotly_script().encode(), 6, mtime=0)).decode()


def _build_policy(*scripts: str) -> str:
    """Return a content security policy that loads nothing and runs only these scripts."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; media-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _read_downloads_script() -> str:
    """Return the script of the downloads, which web pages import as a module, as a plain script."""
    script = files("assay.viewer.charts").joinpath("downloads.js").read_text("utf-8")
    return script.replace("export function", "function")


def _read_template(name: str) -> str:
    return files("assay.viewer.report").joinpath("templates", name).read_text("utf-8")
