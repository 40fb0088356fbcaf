"""Scores in model repositories of the Hugging Face Hub: `.eval_results/*.yaml`, and the `model-index` of a model card.

Both contain aggregate scores only: the imported runs have no documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import yaml

from assay.core.errors import DatasetError
from assay.core.records.verdicts import Estimate
from assay.engine.imports.input_files import build_identity, expect_format, parse_number, read_start
from assay.store.runs.imported_runs import ImportedRun, ImportedTask

__all__ = ["detect", "read"]

_PROGRAM = "hugging-face"
_FOLDER = ".eval_results"
_CARD = "README.md"
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_CACHE_FOLDER = re.compile(r"models--(.+)")


def detect(path: Path) -> bool:
    """Whether a path is a file of `.eval_results`, a model card with a `model-index`, or a folder with one of them."""
    return bool(_list_eval_results(path)) or _find_card(path) is not None


def read(path: Path) -> Iterator[ImportedRun]:
    """Read the scores of a repository: one run for `.eval_results`, and one per model of the card."""
    files = _list_eval_results(path)
    if files:
        yield _build_eval_results_run(files)
    card = _find_card(path)
    if card is not None:
        yield from _build_card_runs(card)


def _list_eval_results(path: Path) -> list[Path]:
    if path.is_file():
        named = path.suffix in (".yaml", ".yml") and path.parent.name == _FOLDER
        return [path] if named or _looks_like_entries(path) else []
    folder = path if path.name == _FOLDER else path / _FOLDER
    return sorted(file for file in folder.glob("*.y*ml") if file.is_file()) if folder.is_dir() else []


def _looks_like_entries(file: Path) -> bool:
    start = read_start(file) if file.suffix in (".yaml", ".yml") else ""
    return re.match(r"\s*(#[^\n]*\n\s*)*- dataset:", start) is not None and "task_id:" in start


def _find_card(path: Path) -> Path | None:
    file = path / _CARD if path.is_dir() else path
    if file.suffix not in (".md", ".yaml", ".yml") or not file.is_file():
        return None
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if file.suffix == ".md":
        found = _FRONT_MATTER.match(text)
        text = found[1] if found else ""
    return file if re.search(r"^model-index:", text, re.MULTILINE) else None


def _load_yaml(file: Path, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise DatasetError(f"the file is not valid YAML: {error}", where=str(file)) from None


def _read_text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"the file cannot be read: {error}", where=str(file)) from None


def _build_eval_results_run(files: Sequence[Path]) -> ImportedRun:
    model = _find_repository(files[0])
    tasks: dict[str, ImportedTask] = {}
    estimates: list[Estimate] = []
    dates: list[float] = []
    for file in files:
        entries = _load_yaml(file, _read_text(file))
        if not isinstance(entries, list):
            raise DatasetError("the file is not a list of results", where=str(file))
        for number, entry in enumerate(entries):
            with expect_format(f"entry {number + 1} has", file):
                name, task, estimate = _read_entry(entry, file.stem)
            tasks.setdefault(name, task)
            if estimate is not None and (estimate.task, estimate.metric, estimate.pipeline) not in {
                (one.task, one.metric, one.pipeline) for one in estimates
            }:
                estimates.append(estimate)
            dates += [moment for moment in [_parse_date(entry.get("date"))] if moment]
    return ImportedRun(
        program=_PROGRAM,
        model=model,
        identity=build_identity(_PROGRAM, model, {file.name: file for file in files}),
        tasks=tasks,
        estimates=estimates,
        started=min(dates, default=None),
        ended=max(dates, default=None),
    )


def _find_repository(file: Path) -> str:
    """Return the name of the model: the folder with `.eval_results`, in the cache of the Hub that of the repository."""
    folder = file.resolve().parent
    folder = folder.parent if folder.name == _FOLDER else folder
    for parent in (folder, *folder.parents):
        if found := _CACHE_FOLDER.fullmatch(parent.name):
            return found[1].replace("--", "/", 1)
    return folder.name or "unknown"


def _read_entry(entry: Mapping[str, Any], stem: str) -> tuple[str, ImportedTask, Estimate | None]:
    dataset = entry["dataset"]
    identity, part = str(dataset["id"]), str(dataset.get("task_id") or "default")
    notes = str(entry.get("notes") or "")
    known = _parse_notes(notes)
    name = known.get("task") or (identity if part == "default" else f"{identity}/{part}")
    value = parse_number(entry["value"])
    config: dict[str, Any] = {
        "task": name,
        "dataset_path": identity,
        "dataset_name": part,
        "notes": notes,
        "file": stem,
    }
    if dataset.get("revision"):
        config["dataset_kwargs"] = {"revision": str(dataset["revision"])}
    shots = known.get("n-shot", "")
    task = ImportedTask(n_shot=int(shots) if shots.isdecimal() else None, config=config)
    if value is None:
        return name, task, None
    return (
        name,
        task,
        Estimate(
            task=name,
            metric=known.get("metric") or "value",
            pipeline=known.get("filter") or "none",
            value=value,
            stderr=parse_number(known.get("standard error")),
            scored=int(parse_number(known.get("documents")) or 0),
        ),
    )


def _parse_notes(notes: str) -> dict[str, str]:
    """Return the parts of notes that Assay wrote, by name; empty for others."""
    found = {}
    for part in notes.split("; "):
        name, colon, value = part.partition(": ")
        if colon:
            found[name] = value
    return found if "metric" in found else {}


def _parse_date(value: Any) -> float | None:
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day).astimezone().timestamp()
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return None


def _build_card_runs(file: Path) -> Iterator[ImportedRun]:
    text = _read_text(file)
    found = _FRONT_MATTER.match(text) if file.suffix == ".md" else None
    content = _load_yaml(file, found[1] if found else text)
    models = content.get("model-index") if isinstance(content, dict) else None
    if not isinstance(models, list):
        raise DatasetError("`model-index` is not a list of models", where=str(file))
    for model in models:
        with expect_format("`model-index` has", file):
            name = str(model["name"])
            tasks, estimates = _read_results(model["results"])
        if tasks:
            yield ImportedRun(
                program=_PROGRAM,
                model=name,
                identity=build_identity(_PROGRAM, name, {file.name: file}),
                tasks=tasks,
                estimates=estimates,
            )


def _read_results(results: Sequence[Mapping[str, Any]]) -> tuple[dict[str, ImportedTask], list[Estimate]]:
    tasks: dict[str, ImportedTask] = {}
    estimates: dict[tuple[str, str, str], Estimate] = {}
    for result in results:
        dataset = result["dataset"]
        arguments = dataset.get("args") if isinstance(dataset.get("args"), dict) else {}
        kind = result.get("task") or {}
        name = str(kind.get("name") or "")
        if name.lower().replace(" ", "-") in ("", str(kind.get("type"))):  # the kind of the task, not a name
            name = str(dataset.get("name") or dataset["type"])
        config = {
            "task": name,
            "dataset_path": str(dataset["type"]),
            **({"dataset_name": str(dataset["config"])} if dataset.get("config") else {}),
            **({"test_split": str(dataset["split"])} if dataset.get("split") else {}),
        }
        shots = arguments.get("num_few_shot")
        tasks.setdefault(name, ImportedTask(n_shot=shots if isinstance(shots, int) else None, config=config))
        for metric in result["metrics"]:
            value, error = _parse_value(metric["value"])
            if value is None:
                continue
            details = metric.get("args") if isinstance(metric.get("args"), dict) else {}
            pipeline, measure = str(details.get("filter") or "none"), str(metric["type"])
            if (name, measure, pipeline) in estimates:
                measure = str(metric.get("name") or measure)
            interval = details.get("interval_95")
            ends = [float(end) for end in interval] if isinstance(interval, list) else []
            estimates[name, measure, pipeline] = Estimate(
                task=name,
                metric=measure,
                pipeline=pipeline,
                value=value,
                stderr=parse_number(details.get("stderr")) if "stderr" in details else error,
                interval=(ends[0], ends[1]) if len(ends) == 2 else None,
                scored=int(parse_number(details.get("documents")) or 0),
            )
    return tasks, list(estimates.values())


def _parse_value(value: Any) -> tuple[float | None, float | None]:
    """Return a score and its standard error: cards contain numbers, and texts such as `20.0 ± 1.2`."""
    number, sign, error = str(value).partition("±")
    return parse_number(number), parse_number(error) if sign else None
