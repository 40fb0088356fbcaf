"""Draw the images of the terminal: a run for the README, and results and comparison at several widths for the docs.

.venv/bin/python scripts/picture.py docs/images
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

import assay
from assay.viewer.comparison.comparison_table import build_comparison_table
from assay.viewer.terminal.results_table import build_results_table

WIDTHS = (80, 100, 120, 160)


def main() -> None:
    """Run the quickstart and write its output as SVG."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        run = assay.run(tasks=["quickstart"], output_path=folder, log_samples=False, no_cache=True)
        documents = sum(facts["documents"] for facts in run.tasks.values())
        start = f"running {run.model} on {len(run.tasks)} tasks, {documents} documents  (assay-runs/{run.id})"
        draw(
            target / "run.svg",
            136,
            "assay run",
            start,
            build_results_table(run),
            f"stored in assay-runs/{run.id}",
        )
        other = assay.run(
            tasks=["quickstart"], output_path=folder, log_samples=False, no_cache=True, num_fewshot=1
        )
        comparison = assay.compare(run, other, allow=["prompts"])
        for width in WIDTHS:
            draw(target / f"results-{width}.svg", width, "assay run", build_results_table(run))
            table = build_comparison_table(comparison, comparison.rows)
            draw(target / f"compare-{width}.svg", width, f"assay compare {run.id} {other.id}", table)


def draw(path: Path, width: int, command: str, *parts: Any) -> None:
    """Write what a terminal of this width shows after a command."""
    console = Console(record=True, width=width, file=io.StringIO(), highlight=False)
    console.print(f"[bold green]$[/] {command}", soft_wrap=True, crop=True)
    for part in parts:
        console.print(part)
    drawing = console.export_svg(title=f"{width} columns")
    without_fonts = re.sub(r"@font-face \{.*?\}", "", drawing, flags=re.DOTALL)
    path.write_text(re.sub(r"<!--.*?-->", "", without_fonts), encoding="utf-8")


if __name__ == "__main__":
    main()
