"""Draw the image in the README: the terminal output of a run of the embedded model.

.venv/bin/python scripts/picture.py docs/images/run.svg
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path

from rich.console import Console

import assay
from assay.viewer.terminal.results_table import build_results_table


def main() -> None:
    """Run the quickstart and write its output as SVG."""
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        run = assay.run(tasks=["quickstart"], output_path=folder, log_samples=False, no_cache=True)
        console = Console(record=True, width=136, file=io.StringIO())
        console.print("[bold green]$[/] assay run")
        documents = sum(facts["documents"] for facts in run.tasks.values())
        console.print(
            f"running {run.model} on {len(run.tasks)} tasks, {documents} documents  (assay-runs/{run.id})"
        )
        console.print(build_results_table(run))
        console.print(f"stored in assay-runs/{run.id}")
        target.parent.mkdir(parents=True, exist_ok=True)
        drawing = console.export_svg(title="assay")
        without_fonts = re.sub(r"@font-face \{.*?\}", "", drawing, flags=re.DOTALL)
        target.write_text(re.sub(r"<!--.*?-->", "", without_fonts), encoding="utf-8")


if __name__ == "__main__":
    main()
