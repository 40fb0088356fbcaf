"""Results of OpenCompass: `predictions/<model>/<dataset>.json`, `results/<model>/<dataset>.json`, `summary/summary_<date>.csv`.

Each model of each evaluation (a folder named by date) becomes a run, each dataset a task. Configuration files are Python code
and are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.responses import Failure, LogProbability, Response, Usage
from assay.core.records.verdicts import Estimate
from assay.engine.imports.input_files import (
    build_identity,
    expect_format,
    iterate_json_object,
    parse_count,
    parse_number,
    read_json,
    read_start,
)
from assay.engine.imports.prompts import build_prompt
from assay.engine.imports.spreadsheets import iterate_rows, read_header
from assay.store.runs.imported_runs import ImportedDocument, ImportedRun, ImportedTask

__all__ = ["detect", "read"]

_PREDICTIONS, _RESULTS, _SUMMARY = "predictions", "results", "summary"
_DATE = re.compile(r"^\d{8}_\d{6}$")
_PART = re.compile(r"^(?P<name>.+)_(?P<number>\d+)$")
_LABEL = "label: "
_SUMMARY_COLUMNS = ["dataset", "version", "metric", "mode"]
_NO_METRICS = frozenset({"details", "type", "error", "bp", "sys_len", "ref_len"})
_SCORE_KEYS = ("correct", "is_correct", "score", "cascade_correct")
_PREFERRED = ("score", "accuracy", "acc", "em", "pass@1", "f1", "rouge1", "bleu")


def detect(path: Path) -> bool:
    """Whether a path is an output folder of OpenCompass, or one of its files."""
    if path.is_file():
        return _is_summary(path) or (path.suffix == ".json" and _is_model_file(path))
    return next(_find_evaluations(path), None) is not None


def read(path: Path) -> Iterator[ImportedRun]:
    """Read each model of each evaluation at a path as a run.

    Raises:
        DatasetError: A file is damaged.
    """
    if path.is_file() and _is_summary(path):
        yield from _read_summary(path)
        return
    if path.is_file():
        yield _build_run(path.parent.parent.parent, path.parent.name, only=_find_dataset(path))
        return
    for folder in _find_evaluations(path):
        models = _list_models(folder)
        for model in models:
            yield _build_run(folder, model)
        if not models:
            for summary in sorted((folder / _SUMMARY).glob("summary_*.csv"))[-1:]:
                yield from _read_summary(summary)


def _is_summary(path: Path) -> bool:
    return path.suffix == ".csv" and read_start(path).startswith(",".join(_SUMMARY_COLUMNS) + ",")


def _is_model_file(path: Path) -> bool:
    """Whether a JSON file is in `predictions/<model>/` or `results/<model>/`, and looks like it."""
    kind = path.parent.parent.name
    if kind not in (_PREDICTIONS, _RESULTS):
        return False
    start = read_start(path)
    if kind == _PREDICTIONS:
        return bool(re.match(r'\s*\{\s*"\d+"\s*:\s*\{', start)) and (
            "prediction" in start or "prompt" in start
        )
    return start.lstrip().startswith("{") and (path.parent.parent.parent / _PREDICTIONS).is_dir()


def _find_evaluations(path: Path) -> Iterator[Path]:
    """Yield the evaluation folders at a path: itself, those of a work folder, or those below `outputs`."""
    if not path.is_dir():
        return
    if path.name in (_PREDICTIONS, _RESULTS, _SUMMARY) and _is_evaluation(path.parent):
        yield path.parent
        return
    if path.parent.name in (_PREDICTIONS, _RESULTS) and _is_evaluation(path.parent.parent):
        yield path.parent.parent
        return
    for depth in ("", "*", "*/*"):
        found = [
            folder for folder in (sorted(path.glob(depth)) if depth else [path]) if _is_evaluation(folder)
        ]
        if found:
            yield from found
            return


def _is_evaluation(folder: Path) -> bool:
    files = (file for file in folder.glob(f"{_PREDICTIONS}/*/*.json") if not file.name.startswith("tmp_"))
    first = next(files, None)
    if first is not None:
        return _is_model_file(first)
    return any(_is_summary(file) for file in folder.glob(f"{_SUMMARY}/summary_*.csv"))


def _list_models(folder: Path) -> list[str]:
    return sorted(
        {
            file.parent.name
            for kind in (_PREDICTIONS, _RESULTS)
            for file in folder.glob(f"{kind}/*/*.json")
            if not file.name.startswith("tmp_")
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dataset:
    name: str
    predictions: Sequence[Path]
    """The file, or its parts in order."""

    result: Path | None


def _find_dataset(file: Path) -> str:
    found = _PART.match(file.stem)
    whole = found is not None and not (file.parent / f"{found['name']}_0.json").is_file()
    return found["name"] if found and not whole else file.stem


def _list_datasets(folder: Path, model: str) -> list[_Dataset]:
    results = {file.stem: file for file in sorted((folder / _RESULTS / model).glob("*.json"))}
    files = {
        file.stem: file
        for file in sorted((folder / _PREDICTIONS / model).glob("*.json"))
        if not file.name.startswith("tmp_")
    }
    parts: dict[str, dict[int, Path]] = {}
    for stem, file in files.items():
        found = _PART.match(stem)
        if found and stem not in results and f"{found['name']}_0" in files and found["name"] not in files:
            parts.setdefault(found["name"], {})[int(found["number"])] = file
        else:
            parts.setdefault(stem, {})[0] = file
    return [
        _Dataset(
            name=name,
            predictions=[parts[name][number] for number in sorted(parts[name])] if name in parts else (),
            result=results.get(name),
        )
        for name in dict.fromkeys([*parts, *results])
    ]


def _build_run(folder: Path, model: str, only: str = "") -> ImportedRun:
    datasets = [one for one in _list_datasets(folder, model) if not only or one.name == only]
    loaded = {one.name: _read_result(one.result) for one in datasets}
    files = {
        f"{file.parent.parent.name}/{file.name}": file
        for one in datasets
        for file in (*one.predictions, *([one.result] if one.result else ()))
    }
    errors = [f"{name}: {result['error']}" for name, result in loaded.items() if "error" in result]
    return ImportedRun(
        program="opencompass",
        model=model,
        identity=build_identity("opencompass", model, files),
        tasks={one.name: _build_task(one, loaded[one.name]) for one in datasets},
        estimates=[estimate for one in datasets for estimate in _read_estimates(one.name, loaded[one.name])],
        started=_parse_date(folder.name),
        ended=_parse_date(folder.name),
        notes=[f"OpenCompass reported an error: {error}"[:300] for error in errors],
    )


def _parse_date(name: str) -> float | None:
    if not _DATE.match(name):
        return None
    try:
        return datetime.strptime(name, "%Y%m%d_%H%M%S").astimezone().timestamp()
    except ValueError:
        return None


def _read_result(path: Path | None) -> dict[str, Any]:
    found = {} if path is None else read_json(path)
    if not isinstance(found, dict):
        raise DatasetError("the file is not a result of OpenCompass", where=str(path))
    return found


def _read_estimates(task: str, result: Mapping[str, Any]) -> list[Estimate]:
    names = [
        name
        for name, value in result.items()
        if name not in _NO_METRICS
        and not isinstance(value, bool)
        and parse_number(value) is not None
        and isinstance(value, (int, float))
    ]
    names.sort(key=lambda name: _PREFERRED.index(name) if name in _PREFERRED else len(_PREFERRED))
    return [Estimate(task=task, metric=name, pipeline="none", value=float(result[name])) for name in names]


def _build_task(dataset: _Dataset, result: Mapping[str, Any]) -> ImportedTask:
    details = _index_details(result.get("details"))
    has_documents = bool(dataset.predictions or details)
    return ImportedTask(
        read_documents=partial(_read_documents, dataset, details) if has_documents else None,
        higher_is_better=dict.fromkeys(("correct", *_PREFERRED), True),
        computed=_SCORE_KEYS,
    )


def _index_details(details: Any) -> dict[int, dict[str, Any]]:
    """Return the details by document; they are a list, or an object with numbers as keys."""
    if isinstance(details, list):
        return {number: one for number, one in enumerate(details) if isinstance(one, dict)}
    if isinstance(details, dict):
        return {int(key): one for key, one in details.items() if key.isdecimal() and isinstance(one, dict)}
    return {}


def _read_documents(
    dataset: _Dataset, details: Mapping[int, Mapping[str, Any]]
) -> Iterator[ImportedDocument]:
    index = 0
    for path in dataset.predictions:
        seen: set[str] = set()
        for key, row in iterate_json_object(path):
            if not isinstance(row, dict) or not key.isdecimal():
                raise DatasetError(f"the entry `{key[:40]}` is not a prediction", where=str(path))
            if key in seen:
                raise DatasetError(f"the file has two entries `{key}`", where=str(path))
            seen.add(key)
            with expect_format(f"entry {key} has", path):
                yield _build_document(dataset.name, index, row, details.get(index, {}))
            index += 1
    if not dataset.predictions:
        for number in sorted(details):
            yield _build_document(dataset.name, number, {}, details[number])


def _build_document(
    task: str, index: int, row: Mapping[str, Any], detail: Mapping[str, Any]
) -> ImportedDocument:
    prompt = row.get("origin_prompt") or row.get("prompt") or detail.get("prompt")
    target = row["gold"] if "gold" in row else detail.get("references", detail.get("answer", ""))
    labels = {key.removeprefix(_LABEL): value for key, value in row.items() if key.startswith(_LABEL)}
    prediction = row["prediction"] if "prediction" in row else detail.get("origin_prediction", "")
    requests, outcomes = _build_requests(task, index, prompt, row, labels, prediction)
    answer = detail.get("predictions", detail.get("pred", prediction))
    scores = _read_scores(detail)
    if labels and not scores and target not in ("", None):
        scores = {("none", "correct"): float(str(prediction) == str(target))}
    return ImportedDocument(
        index=index,
        fields={"prompt": prompt, "gold": target} if prompt is not None else {"gold": target},
        target=target,
        requests=requests,
        outcomes=outcomes,
        answers={"none": answer if isinstance(answer, list) else [answer], **_read_losses(labels)},
        scores=scores,
    )


def _read_losses(labels: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the mean loss of each choice, which OpenCompass calls PPL."""
    losses = [label.get("PPL") if isinstance(label, dict) else None for label in labels.values()]
    return {"PPL": losses} if any(loss is not None for loss in losses) else {}


def _build_requests(
    task: str,
    index: int,
    prompt: Any,
    row: Mapping[str, Any],
    labels: Mapping[str, Any],
    prediction: Any,
) -> tuple[list[Request], list[Response | Failure | None]]:
    place: dict[str, Any] = {"task": task, "document": index}
    requests: list[Request] = []
    outcomes: list[Response | Failure | None] = []
    if labels:  # the prompts contain the choices; their mean losses are not responses
        for number, label in enumerate(labels.values()):
            whole = label.get("prompt", "") if isinstance(label, dict) else ""
            requests.append(RollingLikelihood(**place, index=number, prompt=build_prompt(whole)))
            outcomes.append(None)
        return requests, outcomes
    choices = row.get("choices")
    if isinstance(choices, list) and isinstance(prediction, list) and len(choices) == len(prediction):
        for number, (choice, value) in enumerate(zip(choices, prediction, strict=True)):
            likelihood = Likelihood(
                **place, index=number, prompt=build_prompt(prompt), continuation=str(choice)
            )
            total = parse_number(value)
            requests.append(likelihood)
            outcomes.append(
                None if total is None else Response(request_id=likelihood.id, value=LogProbability(total))
            )
        return requests, outcomes
    lengths = [parse_count(row.get(key)) for key in ("all_input_length", "res_length")]
    usage = Usage(lengths[0], lengths[1] or 0) if lengths[0] is not None else None
    for repeat, text in enumerate(prediction if isinstance(prediction, list) else [prediction]):
        request = Generate(**place, repeat=repeat, prompt=build_prompt(prompt), settings=Settings({}))
        requests.append(request)
        value = text if isinstance(text, str) else "" if text is None else str(text)
        outcomes.append(Response(request_id=request.id, value=value, usage=usage))
    return requests, outcomes


def _read_scores(detail: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    """Return the score of a document: whether it is right, or the share of its repeats that are."""
    found: dict[tuple[str, str], Any] = {}
    for key in _SCORE_KEYS:
        value = detail.get(key)
        values = value if isinstance(value, list) else [value]
        numbers = [parse_number(one) for one in values if one is not None]
        if numbers and all(number is not None for number in numbers):
            found["none", key] = sum(number for number in numbers if number is not None) / len(numbers)
    return found


def _read_summary(path: Path) -> Iterator[ImportedRun]:
    """Read the table of an evaluation: a run with aggregate scores per model."""
    models = [name for name in read_header(path) if name and name not in _SUMMARY_COLUMNS]
    rows = list(iterate_rows(path))
    for model in models:
        estimates = [
            Estimate(
                task=str(row.get("dataset")),
                metric=str(row.get("metric", "score")),
                pipeline="none",
                value=number,
            )
            for row in rows
            if (number := parse_number(row.get(model))) is not None
        ]
        tasks = {
            str(row.get("dataset")): ImportedTask(version=row.get("version", ""))
            for row in rows
            if parse_number(row.get(model)) is not None
        }
        if tasks:
            yield ImportedRun(
                program="opencompass",
                model=model,
                identity=build_identity("opencompass", model, {"summary": path}),
                tasks=tasks,
                estimates=estimates,
            )
