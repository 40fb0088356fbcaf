"""Exports of a run for other programs; `FORMATS` lists the formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption, OutputError, UnknownName
from assay.store.runs.run import Run
from assay.viewer.exports.html import write_html_table
from assay.viewer.exports.junit import write_junit
from assay.viewer.exports.lm_eval import write_lm_eval
from assay.viewer.exports.lmms_eval import write_lmms_eval
from assay.viewer.exports.rows import write_csv, write_jsonl, write_parquet

__all__ = ["FORMATS", "ExportFormat", "export"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFormat:
    """One export format."""

    description: str
    write: Callable[..., Any]
    """`write(run, tasks, stream)` for text, `write(run, tasks, path)` for files."""

    target: str
    """`text`: a stream; `file`: a binary file; `folder`: several files."""


FORMATS: dict[str, ExportFormat] = {
    "lm-eval": ExportFormat(
        description="results and samples files of lm-evaluation-harness",
        write=lambda run, tasks, folder: write_lm_eval(run, str(folder), tasks=tasks),
        target="folder",
    ),
    "lmms-eval": ExportFormat(
        description="results and samples files of lmms-eval", write=write_lmms_eval, target="folder"
    ),
    "jsonl": ExportFormat(
        description="one line per document with everything about it", write=write_jsonl, target="text"
    ),
    "csv": ExportFormat(
        description="one row per document and filter, one column per metric", write=write_csv, target="text"
    ),
    "parquet": ExportFormat(
        description="the rows of `csv` as a parquet file", write=write_parquet, target="file"
    ),
    "junit": ExportFormat(
        description="JUnit XML with a test case per document, for CI", write=write_junit, target="text"
    ),
    "html-table": ExportFormat(
        description="the table of results as an HTML page", write=write_html_table, target="text"
    ),
}


def export(
    run: Run, format_name: str, tasks: list[str], output: Path | None, stream: Any = None
) -> list[Path]:
    """Write some tasks of a run and return the files; text goes to `stream` if there is no `output`.

    Raises:
        UnknownName: There is no such format or task.
        InvalidOption: The format needs an output file or folder.
        OutputError: The output cannot be written.
    """
    if format_name not in FORMATS:
        raise UnknownName(f"unknown format `{format_name}`", hint=f"one of: {', '.join(FORMATS)}")
    for task in tasks:
        if task not in run.tasks:
            raise UnknownName(
                f"the run has no task `{task}`", where="--tasks", hint=f"it has: {', '.join(run.tasks)}"
            )
    chosen = FORMATS[format_name]
    wanted = tasks or list(run.tasks)
    try:
        return _write(run, chosen, format_name, wanted, output, stream)
    except BrokenPipeError:
        raise  # the reader closed the pipe
    except OSError as error:
        raise OutputError(
            f"cannot write the export: {error.strerror}", where=str(error.filename or output)
        ) from None


def _write(
    run: Run, chosen: ExportFormat, name: str, wanted: list[str], output: Path | None, stream: Any
) -> list[Path]:
    if output is None:
        if chosen.target != "text":
            argument = "FILE" if chosen.target == "file" else "DIR"
            raise InvalidOption(f"`{name}` needs an output path", where="--output", hint=f"add -o {argument}")
        chosen.write(run, wanted, stream)
        return []
    if chosen.target == "folder":
        if output.is_file():
            raise OutputError(
                f"`{output}` is a file", where="--output", hint=f"`{name}` writes into a folder"
            )
        written: list[Path] = chosen.write(run, wanted, output)
        return written
    if output.is_dir():
        raise OutputError(f"`{output}` is a folder", where="--output", hint="name a file in it")
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f"{output.name}.new")  # never leave a half-written export
    try:
        if chosen.target == "file":
            chosen.write(run, wanted, temporary)
        else:
            with temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
                chosen.write(run, wanted, file)
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)
    return [output]
