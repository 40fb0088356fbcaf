"""What Assay asks of a compatibility layer: to make foreign imports work, and to name modules of foreign trees."""

from __future__ import annotations

import sys
from pathlib import Path

from assay_compat.finder import ForeignFinder

__all__ = ["install", "module_name"]

_FINDER = ForeignFinder(Path(__file__).parent / "foreign", ("lm_eval",))


def install() -> None:
    """Answer imports of foreign names from here on. Harmless when repeated."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def module_name(path: Path) -> str | None:
    """The name a helper file has in its own harness: `…/lm_eval/tasks/a/b.py` is `lm_eval.tasks.a.b`."""
    parts = path.parts
    for package in _FINDER.packages:
        for at in range(len(parts) - 2):
            if parts[at] == package and parts[at + 1] == "tasks":
                _FINDER.add_tasks(package, Path(*parts[: at + 2]))
                return ".".join((package, "tasks", *parts[at + 2 : -1], path.stem))
    return None
