"""The files of a run that trackers store as artifacts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.store.runs.run import Run
from assay.viewer.exports.lm_eval import write_lm_eval

__all__ = ["write_result_files"]


@contextmanager
def write_result_files(run_folder: str) -> Iterator[Path]:
    """Write the results and samples files of a run, with the names of lm-eval, into a temporary folder."""
    run = Run(Path(run_folder))
    try:
        with tempfile.TemporaryDirectory() as place:
            write_lm_eval(run, place)
            yield Path(place)
    finally:
        run.close()
