"""MkDocs hooks that add pages outside `docs/` to the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

OUTSIDE = (
    "benchmarks/RESULTS.md",
    "benchmarks/SOAK.md",
    "examples/README.md",
    "plugins/README.md",
    "tools/oracle/README.md",
    "CHANGELOG.md",
    "SECURITY.md",
)
_INSIDE = re.compile(r"\]\((?!https?:|#|plots/)[^)]+\)")
_LINK = re.compile(r"\]\((?:\.\./)+(" + "|".join(map(re.escape, OUTSIDE)) + r")(#[^)]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add them to the site under `project/`."""
    from mkdocs.structure.files import File

    root = Path(config["config_file_path"]).parent
    for name in OUTSIDE:
        text = (root / name).read_text("utf-8")
        text = _INSIDE.sub("]", text)  # links inside the repository do not exist on the site
        files.append(File.generated(config, f"project/{name}", content=text))
    for plot in sorted((root / "benchmarks" / "plots").glob("*.svg")):
        files.append(
            File.generated(config, f"project/benchmarks/plots/{plot.name}", content=plot.read_bytes())
        )
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links to them."""
    up = "../" * page.file.src_uri.count("/")
    return _LINK.sub(lambda found: f"]({up}project/{found[1]}{found[2] or ''})", markdown)
