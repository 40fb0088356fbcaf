"""`python -m assay.testing.oracle CORPUS --task_root DIR`: an alias of `python -m tools.oracle.replay`.

The replay of recorded corpora is part of the source tree, not of the wheel.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, MissingPackage

__all__ = ["find_source_tree", "load_replay"]

_SOURCE_TREE = Path(__file__).parents[3]


def find_source_tree(folder: Path = _SOURCE_TREE) -> Path:
    """Return the clone this package was installed from; raise `MissingPackage` when there is none."""
    if (folder / "tools" / "oracle" / "replay.py").is_file():
        return folder
    raise MissingPackage(
        "the oracle replay is not part of the installed package",
        hint="clone the repository, install it with `pip install -e .` and run `python -m tools.oracle.replay` there",
    )


def load_replay(folder: Path = _SOURCE_TREE) -> Any:
    """Import `tools.oracle.replay` from the clone."""
    sys.path.insert(0, str(find_source_tree(folder)))
    return import_module("tools.oracle.replay")


if __name__ == "__main__":
    try:
        replay = load_replay()
    except AssayError as problem:
        sys.stderr.write(f"error: {problem}\n")
        sys.exit(problem.exit_code)
    sys.exit(replay.run())
