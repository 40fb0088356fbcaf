"""Converts the viewer's scripts from modules to classic scripts: browsers load no modules from a disk."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["to_classic_script"]

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.-]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function |const |let |class )", re.MULTILINE)
_DEFAULT_EXPORT = re.compile(r"export\s*\{\s*([\w$]+) as default\s*\};?\s*$")


def to_classic_script(name: str, read: Callable[[str], str]) -> str:
    """Return a script as a classic script with everything that it imports; `read` returns the source of a script.

    >>> scripts = {"a.js": 'import { b } from "./b.js";\\nb();', "b.js": "export function b() {}"}
    >>> print(to_classic_script("a.js", scripts.get), end="")
    (() => {
    "use strict";
    function b() {}
    b();
    })();
    """
    source = read(name)
    if name.startswith("vendor/") and _DEFAULT_EXPORT.search(source) is None:
        return source  # a classic script already
    source = _DEFAULT_EXPORT.sub(r"globalThis.assaySite.imported = { default: \1 };", source)
    return f'(() => {{\n"use strict";\n{_inline_imports(source, read)}\n}})();\n'


def _inline_imports(source: str, read: Callable[[str], str]) -> str:
    source = _IMPORT.sub(lambda found: _inline_imports(read(found[1]), read) + "\n", source)
    source = _EXPORT.sub("", source)
    source = source.replace("import.meta.url", "document.currentScript.src")
    return re.sub(r"(?<![\w.$])import\(", "globalThis.assaySite.load(", source)
