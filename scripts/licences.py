"""Print the licences of Assay's dependencies as Markdown: licences.py [EXTRA…]

Covers the base installation and the named extras, as far as they are installed, and the scripts and fonts that the viewer
bundles.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

BUNDLED = Path(__file__).resolve().parents[1] / "src/assay/viewer/web/static/vendor/versions.json"


def main(extras: list[str]) -> None:
    """Print the table."""
    print("# Licences\n\n| package | version | licence |\n|---|---|---|")
    for package in sorted(
        _collect_dependencies("assay-harness", set(extras)), key=lambda one: one.metadata["Name"].lower()
    ):
        print(f"| {package.metadata['Name']} | {package.version} | {_read_licence(package)} |")
    for bundled in json.loads(BUNDLED.read_text("utf-8"))["packages"]:
        print(f"| {bundled['name']} (in the viewer) | {bundled['version']} | {bundled['licence']} |")


def _collect_dependencies(name: str, extras: set[str]) -> list[Distribution]:
    """Return the distribution of a package and of all its dependencies."""
    found: dict[str, Distribution] = {}
    waiting = [(name, extras)]
    while waiting:
        current, wanted = waiting.pop()
        key = re.sub(r"[-_.]+", "-", current).lower()
        try:
            package = distribution(current)
        except PackageNotFoundError:
            continue  # not required on this platform
        if key in found and not wanted:
            continue
        found[key] = package
        for line in package.requires or ():
            requirement, _, marker = line.partition(";")
            named = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", marker)
            if named and named[1] not in wanted:
                continue
            words = re.match(r"\s*([\w.-]+)\s*(?:\[([^\]]*)\])?", requirement)
            if words:
                inner = {one.strip() for one in (words[2] or "").split(",") if one.strip()}
                if re.sub(r"[-_.]+", "-", words[1]).lower() not in found or inner:
                    waiting.append((words[1], inner))
    return list(found.values())


def _read_licence(package: Distribution) -> str:
    metadata = package.metadata
    licence = next(iter(metadata.get_all("License-Expression") or ()), "")
    if not licence:
        classified = [
            line.split(" :: ")[-1]
            for line in metadata.get_all("Classifier") or ()
            if line.startswith("License ::")
        ]
        written = next(iter(metadata.get_all("License") or ()), "")
        licence = ", ".join(classified) or str(written).strip().partition("\n")[0]
    return licence or "not stated"


if __name__ == "__main__":
    main(sys.argv[1:])
