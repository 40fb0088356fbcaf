"""The formats of exports, and the command that writes them: `FORMATS`, `export`."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption, OutputError, UnknownName
from assay.store.runs.run import Run
from assay.viewer.exports.every_eval_ever import write_every_eval_ever
from assay.viewer.exports.html import write_html_table
from assay.viewer.exports.hub_results import merge_into_card, write_eval_results, write_model_index
from assay.viewer.exports.inspect_log import write_inspect, write_inspect_json
from assay.viewer.exports.junit import write_junit
from assay.viewer.exports.lm_eval import write_lm_eval
from assay.viewer.exports.lmms_eval import write_lmms_eval
from assay.viewer.exports.rows import write_csv, write_jsonl, write_parquet
from assay.viewer.exports.trackers import write_mlflow, write_wandb

__all__ = ["FORMATS", "ExportFormat", "export"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFormat:
    """One export format."""

    description: str
    write: Callable[..., Any]
    """`write(run, tasks, stream)` for text, `write(run, tasks, path)` for files."""

    target: str
    """`text`: a stream; `file`: a binary file; `folder`: several files."""

    file_endings: tuple[str, ...] = ()
    """With `folder`: an output with such an ending is a single file."""

    merge: Callable[[str, str], str] | None = None
    """With `text`: `merge(file, text)` puts the text into a Markdown file that exists."""


FORMATS: dict[str, ExportFormat] = {
    "lm-eval": ExportFormat(
        description="results and samples files of lm-evaluation-harness",
        write=lambda run, tasks, folder: write_lm_eval(run, str(folder), tasks=tasks),
        target="folder",
    ),
    "lmms-eval": ExportFormat(
        description="results and samples files of lmms-eval", write=write_lmms_eval, target="folder"
    ),
    "every-eval-ever": ExportFormat(
        description="records of Every Eval Ever, with instances", write=write_every_eval_ever, target="folder"
    ),
    "inspect": ExportFormat(
        description="logs of inspect_ai (.eval), one per task",
        write=write_inspect,
        target="folder",
        file_endings=(".eval", ".json"),
    ),
    "inspect-json": ExportFormat(
        description="logs of inspect_ai as JSON, one per task",
        write=write_inspect_json,
        target="folder",
        file_endings=(".eval", ".json"),
    ),
    "hf-eval-results": ExportFormat(
        description=".eval_results/*.yaml of a model repository on the Hugging Face Hub",
        write=write_eval_results,
        target="folder",
    ),
    "model-index": ExportFormat(
        description="the model-index of a model card on the Hugging Face Hub",
        write=write_model_index,
        target="text",
        merge=merge_into_card,
    ),
    "mlflow": ExportFormat(
        description="a folder of MLflow with parameters, scores, results and samples (plugin trackers)",
        write=write_mlflow,
        target="folder",
    ),
    "wandb": ExportFormat(
        description="an offline run of Weights & Biases with scores, results and samples (plugin trackers)",
        write=write_wandb,
        target="folder",
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
        if output.is_file() and output.suffix not in chosen.file_endings:
            raise OutputError(
                f"`{output}` is a file", where="--output", hint=f"`{name}` writes into a folder"
            )
        written: list[Path] = chosen.write(run, wanted, output)
        return written
    if output.is_dir():
        raise OutputError(f"`{output}` is a folder", where="--output", hint="name a file in it")
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f"{output.name}.new")  # never leave a half-written export
    merged = None
    if chosen.merge is not None and output.suffix == ".md" and output.is_file():
        block = io.StringIO()
        chosen.write(run, wanted, block)
        merged = chosen.merge(_read_text(output), block.getvalue())
    try:
        if merged is not None:
            temporary.write_text(merged, "utf-8", newline="")
        elif chosen.target == "file":
            chosen.write(run, wanted, temporary)
        else:
            with temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
                chosen.write(run, wanted, file)
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)
    return [output]


def _read_text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except UnicodeDecodeError:
        raise OutputError(f"`{path}` is not a UTF-8 text file", where="--output") from None
