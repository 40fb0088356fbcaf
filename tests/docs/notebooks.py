"""Execute a notebook in IPython as Jupyter does: cell by cell, while an event loop is running.

python notebooks.py NOTEBOOK        prints the results of its code cells as JSON
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["execute_notebook"]


def execute_notebook(path: Path) -> list[dict[str, str] | None]:
    """Return the result of each code cell by MIME type; None for a cell without a result.

    Raises:
        RuntimeError: A cell raises an error.
    """
    from IPython.core.interactiveshell import InteractiveShell

    shell: Any = InteractiveShell.instance()
    shell.colors = "NoColor"

    async def work() -> list[dict[str, str] | None]:
        results: list[dict[str, str] | None] = []
        for number, source in enumerate(read_code_cells(path), 1):
            done = await shell.run_cell_async(
                source, store_history=True, transformed_cell=shell.transform_cell(source)
            )
            if not done.success:
                raise RuntimeError(f"cell {number}: {done.error_before_exec or done.error_in_exec}\n{source}")
            results.append(None if done.result is None else _format(shell, done.result))
        return results

    return asyncio.run(work())


def read_code_cells(path: Path) -> list[str]:
    """Return the source of each code cell."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def _format(shell: Any, value: Any) -> dict[str, str]:
    found, _ = shell.display_formatter.format(value)
    return {kind: text for kind, text in found.items() if isinstance(text, str)}


if __name__ == "__main__":
    import contextlib

    with contextlib.redirect_stdout(sys.stderr):
        made = execute_notebook(Path(sys.argv[1]).resolve())
    print(json.dumps(made))
