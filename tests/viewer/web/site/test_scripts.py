"""Modules become classic scripts; the browser runs them in `test_writer.py`."""

from __future__ import annotations

import re

from assay.viewer.web.rendering import STATIC_FILES, read_static_file
from assay.viewer.web.site.scripts import to_classic_script


def test_no_module_syntax_is_left() -> None:
    for name in STATIC_FILES:
        if name.endswith(".js"):
            text = to_classic_script(name, lambda one: read_static_file(one).decode())
            assert re.search(r"^(import|export)\b|import\.meta|\bexport\s*\{", text, re.MULTILINE) is None, (
                name
            )


def test_classic_scripts_of_other_projects_stay() -> None:
    assert to_classic_script("vendor/x.js", {"vendor/x.js": "var x;"}.__getitem__) == "var x;"
