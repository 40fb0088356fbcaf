"""Copy the scripts and fonts that the viewer bundles from their npm packages: vendor_web_assets.py

Needs npm. The versions are fixed here; `versions.json` in the target folder records them with their licences and checksums.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "src/assay/viewer/web/static/vendor"
PACKAGES = {"markdown-it": "14.1.0", "katex": "0.16.22", "@highlightjs/cdn-assets": "11.11.1"}
FILES = {
    "markdown-it/dist/markdown-it.min.js": "markdown-it.min.js",
    "katex/dist/katex.min.js": "katex/katex.min.js",
    "katex/dist/katex.min.css": "katex/katex.min.css",
    "@highlightjs/cdn-assets/es/highlight.min.js": "highlight.min.js",
}
BUNDLED = ("entities", "linkify-it", "mdurl", "punycode.js", "uc.micro")
"""Packages inside `markdown-it.min.js`."""


def main() -> None:
    """Install the packages in a temporary folder and copy the files."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
        subprocess.run(
            ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", *wanted], cwd=folder, check=True
        )
        modules = Path(folder) / "node_modules"
        shutil.rmtree(TARGET, ignore_errors=True)
        for source, name in FILES.items():
            _write(TARGET / name, (modules / source).read_bytes())
        sheet = TARGET / "katex/katex.min.css"
        sheet.write_text(
            re.sub(r",url\([^)]*\.(?:woff|ttf)\) format\(\"\w+\"\)", "", sheet.read_text("utf-8")), "utf-8"
        )
        for font in (modules / "katex/dist/fonts").glob("*.woff2"):
            _write(TARGET / "katex/fonts" / font.name, font.read_bytes())
        _write_versions(modules)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _write_versions(modules: Path) -> None:
    """Copy the licence of each package and write `versions.json`."""
    listed = []
    for name in sorted([*PACKAGES, *BUNDLED]):
        about = json.loads((modules / name / "package.json").read_text("utf-8"))
        licence = next(
            path for path in sorted((modules / name).iterdir()) if path.name.upper().startswith("LICEN")
        )
        copied = f"licences/{name.replace('@', '').replace('/', '-')}.txt"
        _write(TARGET / copied, licence.read_bytes())
        listed.append(
            {"name": name, "version": about["version"], "licence": about["license"], "file": copied}
        )
    checksums = {
        path.relative_to(TARGET).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(TARGET.rglob("*"))
        if path.is_file() and "licences" not in path.parts
    }
    text = json.dumps({"packages": listed, "sha256": checksums}, indent=2)
    (TARGET / "versions.json").write_text(f"{text}\n", "utf-8")


if __name__ == "__main__":
    main()
