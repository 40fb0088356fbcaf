"""Results of lighteval: `results_<date>.json` and, with `--save-details`, `details_<task>_<date>.parquet`.

Details of lighteval 0.8 and later have the columns `doc`, `metric` and `model_response`; earlier ones have a text column per
field. Reading parquet files needs the extra `parquet`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError, MissingPackage
from assay.core.python_syntax import evaluate_literal
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.responses import Failure, LogProbability, Response, Usage
from assay.core.records.verdicts import Estimate
from assay.engine.imports.input_files import (
    build_identity,
    expect_format,
    parse_number,
    read_json,
    read_start,
)
from assay.engine.imports.prompts import build_prompt
from assay.store.runs.imported_runs import ImportedDocument, ImportedRun, ImportedTask

__all__ = ["detect", "read"]

_DATE = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?"
_RESULTS = re.compile(rf"results_(?P<date>{_DATE})\.json$")
_DETAILS = re.compile(rf"details_(?P<task>.+)_(?P<date>{_DATE})\.parquet$")
_NEW_COLUMNS = ("doc", "metric", "model_response")
_OLD_COLUMNS = ("full_prompt", "predictions", "metrics")
_NOT_FINITE = re.compile(r"(?<![\w'\"])-?(?:nan|inf)(?![\w'\"])")
"""Numbers that are not Python literals."""

_MAX_DEPTH = 6
_BATCH_SIZE = 64
_DOCUMENT_FIELDS = ("id", "query", "choices", "gold_index", "instruction", "specific")


def detect(path: Path) -> bool:
    """Whether a path is a results or details file of lighteval, or a folder with such files."""
    return any(True for _ in _find_results(path)) or any(True for _ in _find_details(path))


def read(path: Path) -> Iterator[ImportedRun]:
    """Read the evaluations at a path, one run per results file. Details are found beside the results, and vice versa.

    Raises:
        DatasetError: A file is damaged or has other columns.
        MissingPackage: pyarrow is not installed.
    """
    evaluations: dict[str, _Evaluation] = {}
    results = {_get_date(file): file for file in _find_results(path)}
    details: dict[str, list[Path]] = {}
    for file in _find_details(path):
        details.setdefault(_get_date(file), []).append(file)
    for date in {**results, **details}:
        found = results.get(date) or _find_beside(path, "results", f"results_{date}.json")
        files = details.get(date) or list(_search_beside(path, "details", f"details_*_{date}.parquet"))
        evaluations[date] = _Evaluation(date=date, results_file=found, details=_sort_details(files))
    for evaluation in evaluations.values():
        yield _build_run(evaluation)


def _find_results(path: Path) -> Iterator[Path]:
    for file in _list_files(path, "results_*.json"):
        if _RESULTS.search(file.name) and '"config_general"' in read_start(file):
            yield file


def _find_details(path: Path) -> Iterator[Path]:
    for file in _list_files(path, "details_*.parquet"):
        if _DETAILS.search(file.name) and read_start(file).startswith("PAR1"):
            yield file


def _list_files(path: Path, pattern: str) -> list[Path]:
    """Return the files in a folder, and all files below the folders `results` and `details` of an output."""
    if path.is_file():
        return [path]
    if {"results", "details"} & set(path.absolute().parts):
        return sorted(path.rglob(pattern))
    below = [file for name in ("results", "details") for file in (path / name).rglob(pattern)]
    return sorted({*path.glob(pattern), *below})


def _get_date(file: Path) -> str:
    found = _RESULTS.search(file.name) or _DETAILS.search(file.name)
    return found["date"] if found else ""


def _search_beside(path: Path, folder: str, pattern: str) -> Iterator[Path]:
    """Yield files of the folder `results` or `details` of the same output."""
    for parent in list(path.absolute().parents)[:_MAX_DEPTH]:
        if (parent / folder).is_dir():
            yield from sorted((parent / folder).rglob(pattern))
            return


def _find_beside(path: Path, folder: str, pattern: str) -> Path | None:
    return next(_search_beside(path, folder, pattern), None)


def _sort_details(files: Sequence[Path]) -> dict[str, Path]:
    return {found["task"]: file for file in files if (found := _DETAILS.search(file.name))}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluation:
    date: str
    results_file: Path | None
    details: Mapping[str, Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaskName:
    """The parts of `suite|task|shots|truncate` or `task|shots`."""

    full: str
    task: str
    shots: int | None

    @classmethod
    def parse(cls, full: str) -> _TaskName:
        parts = full.split("|")
        if len(parts) == 1:
            return cls(full=full, task=full, shots=None)
        task, shots = (
            (parts[0], parts[1]) if len(parts) == 2 else (parts[1], parts[2] if len(parts) > 2 else "")
        )
        return cls(full=full, task=task, shots=int(shots) if shots.isdecimal() else None)


def _build_run(evaluation: _Evaluation) -> ImportedRun:
    results = {} if evaluation.results_file is None else read_json(evaluation.results_file)
    if not isinstance(results, dict):
        raise DatasetError("the file is not a results file of lighteval", where=str(evaluation.results_file))
    general = _get_mapping(results, "config_general")
    entries = _get_mapping(results, "results")
    groups = {name for name in entries if name == "all" or ":_average" in name}
    full_names = list(dict.fromkeys([*(name for name in entries if name not in groups), *evaluation.details]))
    names = _shorten_names([_TaskName.parse(name) for name in full_names])
    settings = _get_mapping(general, "model_config")
    model = str(general.get("model_name") or settings.get("model_name") or _find_model_in_path(evaluation))
    files = {f"details {task}": file for task, file in evaluation.details.items()}
    if evaluation.results_file is not None:
        files["results"] = evaluation.results_file
    configs = _get_mapping(results, "config_tasks")
    tasks = {
        names[full]: _build_task(
            names[full], _TaskName.parse(full), evaluation.details.get(full), _find_config(configs, full)
        )
        for full in full_names
    }
    sizes = {names[full]: _find_size(_find_config(configs, full)) for full in full_names}
    limit = general.get("max_samples")
    return ImportedRun(
        program="lighteval",
        model=model,
        identity=build_identity("lighteval", model, files),
        tasks=tasks,
        estimates=_read_estimates(entries, names, tasks, sizes),
        groups=_build_groups(groups, names, full_names),
        spec={"limit": limit if isinstance(limit, int) else None, "model_args": _keep_plain(settings)},
        seconds=parse_number(general.get("total_evaluation_time_secondes")),
        facts={"lighteval": general},
    )


def _get_mapping(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _keep_plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in settings.items() if isinstance(value, (str, int, float)) and value != ""
    }


def _find_model_in_path(evaluation: _Evaluation) -> str:
    """Return the model from `details/<org>/<model>/<date>/`."""
    file = next(iter(evaluation.details.values()), None)
    parts = () if file is None else file.absolute().parts
    return "/".join(parts[parts.index("details") + 1 : -2]) if "details" in parts else "unknown model"


def _shorten_names(names: Sequence[_TaskName]) -> dict[str, str]:
    """Return the name of each task without suite and shots, where that is unique."""
    count: dict[str, int] = {}
    for name in names:
        count[name.task] = count.get(name.task, 0) + 1
    return {name.full: name.task if count[name.task] == 1 else name.full for name in names}


def _find_config(configs: Mapping[str, Any], full: str) -> dict[str, Any]:
    parts = full.split("|")
    for key in (full, "|".join(parts[:-1]), "|".join(parts[:2])):
        if isinstance(configs.get(key), dict):
            return dict(configs[key])
    return {}


def _find_size(config: Mapping[str, Any]) -> int:
    size = config.get("effective_num_docs")
    return size if isinstance(size, int) and size > 0 else 0


def _read_directions(config: Mapping[str, Any]) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for metric in config.get("metrics") or config.get("metric") or ():
        if not isinstance(metric, dict):
            continue
        names, higher = metric.get("metric_name"), metric.get("higher_is_better")
        for name in names if isinstance(names, list) else [names]:
            direction = higher.get(name) if isinstance(higher, dict) else higher
            if isinstance(name, str) and isinstance(direction, bool):
                found[name] = direction
    return found


def _build_task(
    name: str, parsed: _TaskName, details: Path | None, config: Mapping[str, Any]
) -> ImportedTask:
    original = config.get("original_num_docs")
    known = {
        "dataset_path": config.get("hf_repo"),
        "dataset_name": config.get("hf_subset"),
        "test_split": next(iter(config.get("evaluation_splits") or ()), None),
    }
    return ImportedTask(
        read_documents=None if details is None else partial(_read_documents, name, details),
        version=config.get("version", ""),
        n_shot=parsed.shots,
        original=original if isinstance(original, int) and original > 0 else None,
        config={**{key: value for key, value in known.items() if value}, "lighteval": dict(config)},
        higher_is_better=_read_directions(config),
    )


def _read_estimates(
    entries: Mapping[str, Any],
    names: Mapping[str, str],
    tasks: Mapping[str, ImportedTask],
    sizes: Mapping[str, int],
) -> list[Estimate]:
    found = []
    for full, metrics in entries.items():
        task = names.get(full, full)
        for metric, value in metrics.items() if isinstance(metrics, dict) else ():
            number = parse_number(value)
            if number is None or (metric.endswith("_stderr") and metric.removesuffix("_stderr") in metrics):
                continue
            found.append(
                Estimate(
                    task=task,
                    metric=metric,
                    pipeline="none",
                    value=number,
                    stderr=parse_number(metrics.get(f"{metric}_stderr")),
                    scored=sizes.get(task, 0),
                    higher_is_better=tasks[task].higher_is_better.get(metric) if task in tasks else None,
                )
            )
    return found


def _build_groups(groups: set[str], names: Mapping[str, str], full_names: Sequence[str]) -> dict[str, Any]:
    """Return the averages over subtasks, and the average over all tasks, as groups."""
    found: dict[str, Any] = {}
    for name in sorted(groups, key=lambda name: name == "all"):
        start = name.partition(":_average")[0]
        members = [names[full] for full in full_names if name == "all" or full.startswith(f"{start}:")]
        if members:
            found[name] = {
                "alias": name,
                "members": members,
                "version": "",
                "n_shot": _TaskName.parse(name).shots,
                "higher_is_better": {},
            }
    return found


def _read_documents(task: str, path: Path) -> Iterator[ImportedDocument]:
    """Yield the rows of a details file, a few at a time."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingPackage.of(
            "pyarrow", "reading details of lighteval", extra="parquet", where=str(path)
        ) from None
    try:
        opened = pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DatasetError(f"the file is not valid parquet: {_shorten(error)}", where=str(path)) from None
    with opened:
        columns = opened.schema_arrow.names
        if all(name in columns for name in _NEW_COLUMNS):
            build, wanted = _build_document, list(_NEW_COLUMNS)
        elif all(name in columns for name in _OLD_COLUMNS):
            build, wanted = _build_old_document, list(columns)
        else:
            raise DatasetError(
                f"the file has other columns than details of lighteval: {', '.join(columns[:8])}",
                where=str(path),
                hint=f"expected {', '.join(_NEW_COLUMNS)}",
            )
        index = 0
        try:
            for batch in opened.iter_batches(batch_size=_BATCH_SIZE, columns=wanted):
                for row in batch.to_pylist():
                    with expect_format(f"row {index} has", path):
                        yield build(task, index, row)
                    index += 1
        except (pyarrow.ArrowException, OSError) as error:
            raise DatasetError(f"the file is damaged: {_shorten(error)}", where=str(path)) from None


def _shorten(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]


def _build_document(task: str, index: int, row: Mapping[str, Any]) -> ImportedDocument:
    document, response = row["doc"], row["model_response"] or {}
    choices = list(document.get("choices") or ())
    prompt_value = response.get("input") or document.get("query")
    settings = {
        "max_gen_toks": document.get("generation_size"),
        "until": list(document.get("stop_sequences") or ()) or None,
    }
    requests, outcomes = _build_requests(
        _Answers(
            task=task,
            index=index,
            prompt=prompt_value,
            methods=list(document.get("sampling_methods") or ()),
            choices=choices,
            texts=list(response.get("text") or ()),
            reasonings=list(response.get("reasonings") or ()),
            log_probabilities=list(response.get("logprobs") or ()),
            greedy=list(response.get("argmax_logits_eq_gold") or ()),
            input_tokens=len(response.get("input_tokens") or ()),
            output_tokens=[len(one or ()) for one in response.get("output_tokens") or ()],
            settings={key: value for key, value in settings.items() if value is not None},
        )
    )
    processed = [text for text in response.get("text_post_processed") or () if text is not None]
    return ImportedDocument(
        index=index,
        fields={key: document[key] for key in _DOCUMENT_FIELDS if document.get(key) is not None},
        target=_find_target(choices, document.get("gold_index")),
        requests=requests,
        outcomes=outcomes,
        answers={"none": processed or [_show_outcome(one) for one in outcomes]},
        scores=_read_scores(row["metric"]),
    )


def _build_old_document(task: str, index: int, row: Mapping[str, Any]) -> ImportedDocument:
    """Build a document of lighteval before 0.8, whose columns are Python values as text."""
    values = {key: _parse_literal(value) for key, value in row.items()}
    choices = _flatten(values.get("choices"))
    predictions = _flatten(values.get("predictions"))
    texts = [one for one in predictions if isinstance(one, str)]
    numbers = [
        number
        for one in predictions
        if not isinstance(one, str) and (number := parse_number(_first(one))) is not None
    ]
    pairs = [
        one for one in values.get("predictions") or () if isinstance(one, (list, tuple)) and len(one) == 2
    ]
    requests, outcomes = _build_requests(
        _Answers(
            task=task,
            index=index,
            prompt=row.get("full_prompt") or row.get("example"),
            methods=[],
            choices=choices,
            texts=texts,
            log_probabilities=[parse_number(one[0]) for one in pairs]
            if len(pairs) == len(choices)
            else numbers,
            greedy=[bool(one[1]) for one in pairs] if len(pairs) == len(choices) else [],
        )
    )
    specifics = values.get("specifics")
    return ImportedDocument(
        index=index,
        fields={
            "query": row.get("example") or row.get("full_prompt") or "",
            "choices": choices,
            "gold_index": values.get("gold_index"),
            **({"specific": specifics} if isinstance(specifics, dict) and specifics else {}),
        },
        target=_unwrap(_flatten(values.get("gold"))),
        requests=requests,
        outcomes=outcomes,
        answers={"none": [_show_outcome(one) for one in outcomes]},
        scores=_read_scores(values.get("metrics")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    """What a details file says about the requests of one document."""

    task: str
    index: int
    prompt: Any
    methods: Sequence[str]
    choices: Sequence[Any]
    texts: Sequence[Any] = ()
    reasonings: Sequence[Any] = ()
    log_probabilities: Sequence[Any] = ()
    greedy: Sequence[Any] = ()
    input_tokens: int = 0
    output_tokens: Sequence[int] = ()
    settings: Mapping[str, Any] | None = None


def _build_requests(answers: _Answers) -> tuple[list[Request], list[Response | Failure | None]]:
    prompt = build_prompt(answers.prompt)
    place: dict[str, Any] = {"task": answers.task, "document": answers.index, "prompt": prompt}
    requests: list[Request] = []
    outcomes: list[Response | Failure | None] = []

    def add(request: Request, value: str | LogProbability, at: int, reasoning: str | None = None) -> None:
        output = answers.output_tokens[at] if at < len(answers.output_tokens) else 0
        usage = Usage(answers.input_tokens, output) if answers.input_tokens else None
        requests.append(request)
        outcomes.append(Response(request_id=request.id, value=value, usage=usage, reasoning=reasoning))

    if answers.texts or not answers.log_probabilities:
        settings = Settings(dict(answers.settings or {}))
        for at, text in enumerate(answers.texts):
            request = Generate(**place, repeat=at, settings=settings)
            thinking = answers.reasonings[at] if at < len(answers.reasonings) else None
            add(request, "" if text is None else str(text), at, None if thinking is None else str(thinking))
        if not answers.texts:
            requests.append(Generate(**place, settings=settings))
            outcomes.append(None)
    is_rolling = list(answers.methods) == ["PERPLEXITY"]
    for at, value in enumerate(answers.log_probabilities):
        number = parse_number(value)
        if number is None:
            continue
        greedy = bool(answers.greedy[at]) if at < len(answers.greedy) else False
        if is_rolling or at >= len(answers.choices):
            likelihood: Request = RollingLikelihood(**place, index=at)
        else:
            likelihood = Likelihood(**place, index=at, continuation=str(answers.choices[at]))
        add(likelihood, LogProbability(number, greedy), at)
    return requests, outcomes


def _read_scores(metrics: Any) -> dict[tuple[str, str], Any]:
    """Return the numbers of a document, and the inputs of corpus metrics; texts are neither."""
    found: dict[tuple[str, str], Any] = {}
    for metric, value in metrics.items() if isinstance(metrics, dict) else ():
        if isinstance(value, (bool, int, float)):
            found["none", str(metric)] = float(value)
        elif isinstance(value, (list, dict)) and value:
            found["none", str(metric)] = value
    return found


def _find_target(choices: Sequence[Any], gold: Any) -> Any:
    indices = gold if isinstance(gold, list) else [gold]
    return _unwrap([choices[at] for at in indices if isinstance(at, int) and 0 <= at < len(choices)])


def _unwrap(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else list(values)


def _show_outcome(outcome: Response | Failure | None) -> Any:
    if not isinstance(outcome, Response):
        return ""
    return outcome.value.total if isinstance(outcome.value, LogProbability) else outcome.value


def _parse_literal(value: Any) -> Any:
    if not isinstance(value, str) or value[:1] not in "[{(0123456789-":
        return value
    for text in (value, _NOT_FINITE.sub("None", value)):
        try:
            return evaluate_literal(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return value


def _flatten(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [inner for one in value for inner in (one if isinstance(one, list) else [one])]
    return [] if value in (None, "") else [value]


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (list, tuple)) and value else value
