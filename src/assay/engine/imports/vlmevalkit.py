"""Results of VLMEvalKit: predictions `<model>_<dataset>.xlsx` (tsv, json), the same table with scores
(`…_<judge>_result.xlsx`, `…_score.xlsx`, …) and aggregate scores (`…_acc.csv`, `…_score.json`, …).

The files contain the questions, but not the prompts built from them, and no images. Pickle files are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Failure, Response
from assay.core.records.verdicts import Estimate
from assay.engine.imports.input_files import (
    build_identity,
    iterate_json_array,
    parse_number,
    read_json,
    read_start,
)
from assay.engine.imports.spreadsheets import iterate_rows, read_header
from assay.store.runs.imported_runs import ImportedDocument, ImportedRun, ImportedTask

__all__ = ["detect", "read"]

_TABLES = (".xlsx", ".tsv", ".json")
_AGGREGATES = ("_acc", "_score", "_rating", "_metrics", "_fine", "_result", "_scores")
_SCORE_COLUMNS = ("hit", "score", "eval_score", "eval_match", "correct", "match", "gpt4_score", "acc")
"""Columns with the score of a document, in order of preference."""

_OTHER_COLUMNS = frozenset(
    {
        "prediction",
        "thinking",
        "log",
        "res",
        "judge",
        "extracted",
        "raw_prediction",
        "image",
        "pred",
        "eval_pred",
        "eval_gt",
    }
)
"""Columns that are not part of the document."""

_FAILED = "Failed to obtain answer via API."
_NO_PROMPTS = "the files contain no prompts and no images; prompts show the question only"


def detect(path: Path) -> bool:
    """Whether a file is a table of predictions or scores of VLMEvalKit, or a folder contains such tables."""
    if path.is_file():
        return _has_predictions(path) or _is_aggregate(path)
    return any(_has_predictions(file) for file in _list_files(path))


def read(path: Path) -> Iterator[ImportedRun]:
    """Read the predictions at a path, one run per model.

    Raises:
        DatasetError: A file is damaged.
    """
    files = [path] if path.is_file() else _list_files(path)
    if path.is_file() and path.suffix in _TABLES and not detect(path):
        next(iter(_read_rows(path)), None)  # say what is wrong with the table
    models: dict[str, dict[str, _Predictions]] = {}
    for found in _find_predictions(files):
        known = models.setdefault(found.model, {}).get(found.dataset)
        if known is None or str(found.folder) > str(
            known.folder
        ):  # folders are named by date: the newest wins
            models[found.model][found.dataset] = found
    for model, datasets in models.items():
        yield _build_run(model, datasets)


def _list_files(path: Path) -> list[Path]:
    """Return the tables in a folder and two levels below it; links to the newest evaluation count once."""
    found: dict[Path, Path] = {}
    for depth in ("*", "*/*", "*/*/*") if path.is_dir() else ():
        for file in sorted(path.glob(depth)):
            if (
                file.suffix in (*_TABLES, ".csv")
                and (depth == "*" or _is_in_model_folder(file))
                and file.is_file()
            ):
                found.setdefault(file.resolve(), file)
    return list(found.values())


def _is_in_model_folder(file: Path) -> bool:
    return any(file.name.startswith(f"{folder.name}_") for folder in (file.parent, file.parent.parent))


def _read_columns(path: Path) -> list[str]:
    if path.suffix != ".json":
        return read_header(path) if path.suffix != ".xlsx" or read_start(path).startswith("PK") else []
    if not read_start(path).lstrip().startswith("["):
        return []
    try:
        first = next(iterate_json_array(path), None)
    except DatasetError:
        return []
    return [str(key) for key in first] if isinstance(first, dict) else []


def _has_predictions(path: Path) -> bool:
    if path.suffix not in _TABLES:
        return False
    columns = _read_columns(path)
    return "prediction" in columns and ("index" in columns or "question" in columns)


def _is_aggregate(path: Path) -> bool:
    return (
        path.suffix in (".csv", ".json")
        and path.stem.endswith(("_acc", "_score"))
        and (path.suffix == ".json" or "Overall" in read_start(path))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Predictions:
    model: str
    dataset: str
    table: Path | None
    """The table with the predictions, with scores where there are any; None if there are aggregate scores only."""

    column: str
    """The column with the scores; empty if there is none."""

    aggregates: Sequence[Path]

    @property
    def folder(self) -> Path:
        return (self.table or self.aggregates[0]).parent


def _find_predictions(files: Sequence[Path]) -> Iterator[_Predictions]:
    """Yield the predictions of each dataset with the tables that were derived from them."""
    tables = {file: _read_columns(file) for file in files if _has_predictions(file)}
    scored = {file: _find_score_column(columns) for file, columns in tables.items()}
    bases = [file for file in tables if not scored[file]]
    bases += [file for file in tables if scored[file] and not any(_is_derived(file, base) for base in bases)]
    for base in bases:
        near = sorted(base.parent.iterdir())
        longer = [other for other in bases if other != base and _is_derived(other, base)]
        derived = [
            file
            for file in near
            if _is_derived(file, base) and not any(file == one or _is_derived(file, one) for one in longer)
        ]
        found = [
            file for file in [base, *derived] if _find_score_column(tables.get(file) or _columns_of_new(file))
        ]
        model, dataset = _split_name(base)
        table = found[-1] if found else base
        yield _Predictions(
            model=model,
            dataset=dataset,
            table=table,
            column=_find_score_column(tables.get(table) or _columns_of_new(table)),
            aggregates=[file for file in derived if file.suffix in (".csv", ".json") and file != table],
        )
    if not tables:
        for file in files:
            if _is_aggregate(file):
                model, dataset = _split_name(file.with_stem(file.stem.rpartition("_")[0]))
                yield _Predictions(model=model, dataset=dataset, table=None, column="", aggregates=[file])


def _columns_of_new(file: Path) -> list[str]:
    """Return the columns of a table that was not among the given files."""
    return _read_columns(file) if _has_predictions(file) else []


def _is_derived(file: Path, base: Path) -> bool:
    return file.parent == base.parent and file.stem.startswith(f"{base.stem}_")


def _find_score_column(columns: Sequence[str]) -> str:
    return next((name for name in _SCORE_COLUMNS if name in columns), "")


def _split_name(file: Path) -> tuple[str, str]:
    """Return model and dataset: files are stored in a folder named after the model, or in a folder by date inside it.

    >>> _split_name(Path("outputs/GPT4o_MINI/T20250101_G1/GPT4o_MINI_MMBench_DEV_EN.xlsx"))
    ('GPT4o_MINI', 'MMBench_DEV_EN')
    """
    for folder in file.absolute().parents:
        if folder.name and file.stem.startswith(f"{folder.name}_"):
            return folder.name, file.stem.removeprefix(f"{folder.name}_")
    model, _, dataset = file.stem.partition("_")
    return model, dataset or "predictions"


def _build_run(model: str, datasets: Mapping[str, _Predictions]) -> ImportedRun:
    files = {
        f"{name}/{file.name}": file
        for name, one in datasets.items()
        for file in (*([one.table] if one.table else ()), *one.aggregates)
    }
    return ImportedRun(
        program="vlmevalkit",
        model=model,
        identity=build_identity("vlmevalkit", model, files),
        tasks={name: _build_task(name, one) for name, one in datasets.items()},
        estimates=[estimate for name, one in datasets.items() for estimate in _read_estimates(name, one)],
        notes=[_NO_PROMPTS] if any(one.table for one in datasets.values()) else [],
    )


def _build_task(name: str, predictions: _Predictions) -> ImportedTask:
    table = predictions.table
    return ImportedTask(
        read_documents=None if table is None else partial(_read_documents, name, table, predictions.column),
        output_type="generate_until",
        higher_is_better=dict.fromkeys(_SCORE_COLUMNS, True),
        computed=_SCORE_COLUMNS,
    )


def _read_documents(task: str, path: Path, column: str) -> Iterator[ImportedDocument]:
    for number, row in enumerate(_read_rows(path)):
        if not isinstance(row, dict):
            raise DatasetError(f"row {number} is not an object", where=str(path))
        yield _build_document(task, number, row, column)


def _read_rows(path: Path) -> Iterator[Any]:
    return iterate_json_array(path) if path.suffix == ".json" else iterate_rows(path)


def _build_document(task: str, number: int, row: Mapping[str, Any], column: str) -> ImportedDocument:
    prediction = row.get("prediction")
    text = "" if prediction is None else str(prediction)
    request = Generate(
        task=task, document=number, prompt=Prompt.of_text(str(row.get("question", ""))), settings=Settings({})
    )
    thinking = row.get("thinking")
    outcome: Response | Failure
    if text.startswith(_FAILED):
        outcome = Failure(request_id=request.id, kind="model error", message=text)
    else:
        reasoning = None if thinking is None else str(thinking)
        outcome = Response(request_id=request.id, value=text, reasoning=reasoning)
    extracted = next((row[key] for key in ("extracted", "res", "eval_pred") if key in row), text)
    why = row.get("log")
    key = ("none", column)
    return ImportedDocument(
        index=number,
        fields={
            name: value
            for name, value in row.items()
            if name not in _OTHER_COLUMNS and name not in _SCORE_COLUMNS
        },
        target=row.get("answer", ""),
        requests=[request],
        outcomes=[outcome],
        answers={"none": [str(extracted)]},
        scores={key: parse_number(row.get(column))} if column else {},
        reasons={key: str(why)} if column and why is not None else {},
    )


def _read_estimates(task: str, predictions: _Predictions) -> list[Estimate]:
    found: dict[str, float] = {}
    for file in predictions.aggregates:
        if file.suffix == ".csv":
            rows = list(iterate_rows(file))
            names = read_header(file)
            if "prediction" not in names and file.stem.endswith(_AGGREGATES):
                found |= _read_wide(rows) if len(rows) <= 2 else _read_long(rows, names)
        elif file.stem.endswith(_AGGREGATES) and read_start(file).lstrip().startswith("{"):
            found |= _flatten(read_json(file))
    return [Estimate(task=task, metric=name, pipeline="none", value=value) for name, value in found.items()]


def _read_wide(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Read a table with a column per category and a row per split."""
    found = {}
    for row in rows:
        label = str(row.get("split", "")) if len(rows) > 1 else ""
        for name, value in row.items():
            number = parse_number(value)
            if number is not None and name not in ("split", "index"):
                found[f"{label}/{name}" if label else name] = number
    return found


def _read_long(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, float]:
    """Read a table with a row per category, whose first column is its name."""
    found = {}
    for row in rows:
        label = str(row.get(names[0], ""))
        for name in names[1:]:
            number = parse_number(row.get(name))
            if number is not None:
                found[name if label.lower() == "overall" else f"{label}/{name}"] = number
    return dict(sorted(found.items(), key=lambda item: "/" in item[0]))


def _flatten(value: Any, prefix: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for key, inner in value.items() if isinstance(value, dict) else ():
        name = f"{prefix}{key}"
        if isinstance(inner, dict):
            found |= _flatten(inner, f"{name}/")
        elif not isinstance(inner, bool) and (number := parse_number(inner)) is not None:
            found[name] = number
    return found
