"""A run in a format other programs read; `FORMATS` says which there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import BadOption, BadOutput, UnknownName
from assay.store.runs import Run
from assay.viewer.exports.html import write_html
from assay.viewer.exports.junit import write_junit
from assay.viewer.exports.lmms_eval import write_lmms_eval
from assay.viewer.exports.rows import write_csv, write_jsonl, write_parquet
from assay.viewer.lm_eval_files import write_files

__all__ = ["FORMATS", "Format", "export"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One way to write a run down."""

    about: str
    write: Callable[..., Any]
    """`write(run, tasks, stream)` for a text, `write(run, tasks, path)` for files."""

    into: str
    """`text`: a stream; `file`: a file of bytes; `folder`: several files."""


FORMATS: dict[str, Format] = {
    "lm-eval": Format(
        about="results and samples, as lm-evaluation-harness writes them",
        write=lambda run, tasks, folder: write_files(run, str(folder), tasks=tasks),
        into="folder",
    ),
    "lmms-eval": Format(
        about="results and samples, as lmms-eval writes them", write=write_lmms_eval, into="folder"
    ),
    "jsonl": Format(about="everything about each document, a line each", write=write_jsonl, into="text"),
    "csv": Format(about="a row per document and filter, a column per metric", write=write_csv, into="text"),
    "parquet": Format(about="the same rows as a parquet file", write=write_parquet, into="file"),
    "junit": Format(about="a test case per document, for CI", write=write_junit, into="text"),
    "html-table": Format(about="the table of results as a page", write=write_html, into="text"),
}


def export(
    run: Run, format_name: str, tasks: list[str], output: Path | None, stream: Any = None
) -> list[Path]:
    """Write some tasks of a run; returns the files. A text goes to `stream` when there is no `output`.

    Raises:
        UnknownName: There is no such format or task.
        BadOption: The format needs a place to write to.
        BadOutput: It cannot be written.
    """
    if format_name not in FORMATS:
        raise UnknownName(f"no format is called `{format_name}`", hint=f"one of: {', '.join(FORMATS)}")
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
        raise  # whoever read it has seen enough
    except OSError as error:
        raise BadOutput(
            f"cannot write the export: {error.strerror}", where=str(error.filename or output)
        ) from None


def _write(
    run: Run, chosen: Format, name: str, wanted: list[str], output: Path | None, stream: Any
) -> list[Path]:
    if output is None:
        if chosen.into != "text":
            place = "FILE" if chosen.into == "file" else "DIR"
            raise BadOption(f"`{name}` needs a place to write to", where="--output", hint=f"add -o {place}")
        chosen.write(run, wanted, stream)
        return []
    if chosen.into == "folder":
        if output.is_file():
            raise BadOutput(f"`{output}` is a file", where="--output", hint=f"`{name}` writes into a folder")
        written: list[Path] = chosen.write(run, wanted, output)
        return written
    if output.is_dir():
        raise BadOutput(f"`{output}` is a folder", where="--output", hint="name a file in it")
    output.parent.mkdir(parents=True, exist_ok=True)
    waiting = output.with_name(f"{output.name}.new")  # a half-written export must not look like a whole one
    try:
        if chosen.into == "file":
            chosen.write(run, wanted, waiting)
        else:
            with waiting.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
                chosen.write(run, wanted, file)
        waiting.replace(output)
    finally:
        waiting.unlink(missing_ok=True)
    return [output]
