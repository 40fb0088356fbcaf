"""The result formats of other programs that Assay reads, and the detection of the format of a path.

To add a format, write a module with the functions of `ResultReader` and add a line to `RESULT_FORMATS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from assay.core.errors import DatasetError, UnknownName

if TYPE_CHECKING:
    from assay.store.runs.imported_runs import ImportedRun

__all__ = ["RESULT_FORMATS", "ResultFormat", "ResultReader", "detect_format", "get_format"]


class ResultReader(Protocol):
    """The functions of a module that reads one format. Nothing in the files is executed or unpickled."""

    def detect(self, path: Path) -> bool:
        """Whether a file or folder has this format. Looks at names and at the start of files only."""
        ...

    def read(self, path: Path) -> Iterable[ImportedRun | DatasetError]:
        """Read the runs in a file or folder, usually one. Documents are read when the run is written.

        An error in place of a run says which file is left out.

        Raises:
            DatasetError: A file is damaged or has an unexpected format.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFormat:
    """A result format of another program."""

    name: str
    """The value of `--format`."""

    description: str
    """The files, for help and errors."""

    module: str
    """The module that reads it, imported on first use."""

    def load_reader(self) -> ResultReader:
        return cast("ResultReader", import_module(self.module))


RESULT_FORMATS = {
    one.name: one
    for one in (
        ResultFormat(
            name="lm-eval",
            description="a folder of lm-eval or lmms-eval with samples files, a samples file, or a results file",
            module="assay.engine.imports.lm_eval",
        ),
        ResultFormat(
            name="helm",
            description="a run folder of HELM (run_spec.json, stats.json, …), a suite, or benchmark_output",
            module="assay.engine.imports.helm",
        ),
        ResultFormat(
            name="lighteval",
            description="results_<date>.json, details_<task>_<date>.parquet, or an output folder of lighteval",
            module="assay.engine.imports.lighteval",
        ),
        ResultFormat(
            name="opencompass",
            description="an output folder of OpenCompass (predictions, results, summary), or a file in it",
            module="assay.engine.imports.opencompass",
        ),
        ResultFormat(
            name="vlmevalkit",
            description="<model>_<dataset>.xlsx (tsv, json) of VLMEvalKit with its scores, or the folder of a model",
            module="assay.engine.imports.vlmevalkit",
        ),
        ResultFormat(
            name="inspect",
            description="a log of inspect_ai (.eval or .json), or a folder of logs",
            module="assay.engine.imports.inspect_log",
        ),
        ResultFormat(
            name="every-eval-ever",
            description="a record of Every Eval Ever, or a folder of records (instances are read if they are beside it)",
            module="assay.engine.imports.every_eval_ever",
        ),
        ResultFormat(
            name="hugging-face",
            description="a model repository of the Hugging Face Hub: .eval_results, or a card with a model-index",
            module="assay.engine.imports.hf_eval_results",
        ),
    )
}
"""By name, in the order of detection."""


def get_format(name: str) -> ResultFormat:
    """Return the format with a name.

    Raises:
        UnknownName: There is no such format.
    """
    if name not in RESULT_FORMATS:
        raise UnknownName(
            f"unknown result format `{name}`", where="--format", hint=f"one of: {', '.join(RESULT_FORMATS)}"
        )
    return RESULT_FORMATS[name]


def detect_format(path: Path) -> ResultFormat | None:
    """Return the format of a file or folder; None if no reader understands it."""
    return next((one for one in RESULT_FORMATS.values() if one.load_reader().detect(path)), None)
