"""Read result files of lm-evaluation-harness and lmms-eval: `samples_<task>_<date>.jsonl` and the results file.

Rows of lm-eval contain the whole document, rows of lmms-eval only prompt and response. Both have one row per document and
filter pipeline; lmms-eval omits the name of the pipeline.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError, UnknownName
from assay.core.records.verdicts import Estimate
from assay.store.documents.run_score_tables import describe_model
from assay.store.documents.score_tables import DigestKind, DocumentExcerpt, ScoreColumn, ScoreTable

__all__ = ["HARNESS_KEYS", "ResultFiles", "has_results", "open_results", "open_results_without_samples"]

_LM_EVAL = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d+)\.jsonl$")
_LMMS_EVAL = re.compile(r"(?P<date>\d{8}_\d{6})_samples_(?P<task>.+)\.jsonl$")
_MAX_RESULTS_BYTES = 256 << 20
"""Larger JSON files are no results files: those contain one number per metric, and the settings of the tasks."""

HARNESS_KEYS = {
    "doc_id", "doc", "target", "arguments", "input", "resps", "filtered_resps", "filter", "metrics", "doc_hash",
    "prompt_hash", "target_hash", "token_counts", "input_media", "prompt", "schema_version",
}  # fmt: skip


def open_results(path: Path) -> ResultFiles | None:
    """Open the result files in a folder, or a single file; return None if there are none.

    Raises:
        UnknownName: The folder contains results of several models.
    """
    if path.is_file() and path.suffix == ".jsonl":
        return ResultFiles({_parse_task(path): path}, path)
    if path.is_file() and path.suffix == ".json":
        date = _parse_date(path.name)
        found = {task: file for task, file in _find_samples(path.parent) if date and date in file.name}
        return ResultFiles(found, path) if found else None
    if not path.is_dir():
        return None
    samples = list(_find_samples(path))
    _check_one_model(path, [file for _, file in samples])
    newest = dict(samples)  # sorted by date, so the last one of a task wins
    return ResultFiles(newest, path) if newest else None


def open_results_without_samples(path: Path) -> ResultFiles | None:
    """Open a results file that has no samples beside it, or the newest one in a folder; return None if there is none.

    Raises:
        UnknownName: The folder contains results of several models.
    """
    found = list(_find_results_files(path))
    if not found:
        return None
    _check_one_model(path, found)
    return ResultFiles({}, found[-1])


def has_results(path: Path) -> bool:
    """Whether a path is a samples file, a results file, or a folder with such files. Reads little of them."""
    if path.is_file() and path.suffix == ".jsonl":
        return bool(_LM_EVAL.search(path.name) or _LMMS_EVAL.search(path.name)) or _starts_with_sample(path)
    if path.is_dir() and next(_find_samples(path), None) is not None:
        return True
    return next(_find_results_files(path), None) is not None


def _starts_with_sample(path: Path) -> bool:
    """Whether the first line of a file looks like a sample; the line is not read whole, because it may contain images."""
    with path.open("rb") as opened:
        start = opened.read(1 << 16).lstrip()
    return start.startswith(b"{") and b'"doc_id"' in start and b'resps"' in start


def _find_results_files(path: Path) -> Iterator[Path]:
    """Yield the results files at a path, oldest first."""
    if path.is_file():
        files = [path] if path.suffix == ".json" else []
    else:
        depths = ("", "*/", "*/*/") if path.is_dir() else ()
        files = [file for depth in depths for file in path.glob(f"{depth}*results*.json")]
    for file in sorted(files, key=lambda file: (_parse_date(file.name) or "", file.name)):
        if file.stat().st_size <= _MAX_RESULTS_BYTES and _is_results_file(file):
            yield file


def _is_results_file(file: Path) -> bool:
    try:
        loaded = _read_json(file)
    except (DatasetError, OSError, RecursionError):
        return False
    return (
        isinstance(loaded, dict)
        and isinstance(loaded.get("results"), dict)
        and isinstance(loaded.get("configs"), dict)
        and ("n-shot" in loaded or "versions" in loaded)
    )


def _check_one_model(place: Path, files: Sequence[Path]) -> None:
    """Raise an error if the files are results of several models."""
    found: dict[str, Path] = {}
    for file in {(file.parent, _parse_date(file.name)): file for file in files}.values():
        if (model := str(_read_results_beside(file).get("model_name") or "")) and file.parent != place:
            found.setdefault(model, file.parent)
    if len(found) > 1:
        folders = ", ".join(f"`{folder}`" for folder in sorted(found.values())[:4])
        raise UnknownName(
            f"`{place}` contains results of {len(found)} models: {', '.join(sorted(found)[:4])}",
            hint=f"pass the folder of one model: {folders}",
        )


class ResultFiles:
    """The result files of one model, as a source of per-document scores."""

    def __init__(self, files: Mapping[str, Path], place: Path) -> None:
        """Describe the samples files of each task. Without any, `place` is a results file."""
        self.files = dict(files)
        self.place = place
        self.name = place.name

    @property
    def tasks(self) -> list[str]:
        return list(self.files)

    @property
    def model(self) -> str:
        config = self.results.get("config", {})
        return str(self.results.get("model_name") or config.get("model") or self.name)

    @cached_property
    def results(self) -> dict[str, Any]:
        """The results file of the first task that has one."""
        if not self.files:
            loaded = _read_json(self.place)
            return loaded if isinstance(loaded, dict) else {}
        return next((found for task in self.files if (found := self._read_results(task))), {})

    def _read_results(self, task: str) -> dict[str, Any]:
        """Return the results file with the date of a task's samples; tasks may have been evaluated at different times."""
        file = self.files.get(task)
        return {} if file is None else _read_results_beside(file)

    @cached_property
    def facts(self) -> dict[str, Any]:
        results = self.results
        if not results:
            return {}
        config = results.get("config", {})
        seeds = [config.get(f"{name}_seed") for name in ("random", "numpy", "torch", "fewshot")]
        return {
            "chat template": results.get("chat_template_sha") or results.get("chat_template"),
            "system instruction": results.get("system_instruction") or None,
            "few-shot as turns": bool(results.get("fewshot_as_multiturn") and results.get("chat_template")),
            "limit": config.get("limit"),
            "gen_kwargs": config.get("gen_kwargs") or None,
            "seed": seeds if any(seed is not None for seed in seeds) else None,
            "few-shot seed": seeds[3],
            **_describe_model(config),
        }

    def read_score_table(self, task: str, kind: DigestKind | None = None) -> ScoreTable:
        """Return the documents of a task in index order."""
        rows = self.by_document(task)
        documents = list(rows)
        columns: dict[tuple[str, str], list[Any]] = {}
        for position, listed in enumerate(rows.values()):
            for row in listed:
                for metric in row.get("metrics") or [key for key in row if key not in HARNESS_KEYS]:
                    column = columns.setdefault((row["filter"], metric), [])
                    column.extend([None] * (position - len(column)))
                    if len(column) == position:
                        column.append(_parse_score(row.get(metric)))
        for column in columns.values():
            column.extend([None] * (len(documents) - len(column)))
        first = [listed[0] for listed in rows.values()]
        return ScoreTable(
            task=task,
            kind="files",
            documents=documents,
            content_digests=_hash_contents(first),
            prompt_digests=[row.get("prompt_hash") or _hash_text(_get_prompt(row)) for row in first],
            endings=[""] * len(documents),
            columns=self._columns(task, columns),
            facts=self._task_facts(task, first[0] if first else {}),
            cluster_key=str(
                self._read_results(task).get("configs", {}).get(task, {}).get("cluster_key") or ""
            ),
        )

    def read_estimates(self) -> list[Estimate]:
        """Return the estimates of the results files."""
        whole: dict[str, tuple[Mapping[str, Any], dict[str, Any]]] = {}
        if not self.files:
            whole = {task: (entries, self.results) for task, entries in self.results["results"].items()}
        for name in self.files:
            results = self._read_results(name)
            for task, entries in results.get("results", {}).items():
                if task == name or task not in self.files:
                    whole[task] = entries, results
        found = []
        for task, (entries, results) in whole.items():
            directions = results.get("higher_is_better", {}).get(task, {})
            sizes = results.get("n-samples", {}).get(task, {})
            intervals = results.get("intervals", {}).get(task, {})
            for key, value in entries.items():
                metric, comma, pipeline = key.partition(",")
                if not comma or not isinstance(value, (int, float)) or "_stderr" in metric:
                    continue
                error = entries.get(f"{metric}_stderr,{pipeline}")
                found.append(
                    Estimate(
                        task=task,
                        metric=metric,
                        pipeline=pipeline,
                        value=value,
                        stderr=error if isinstance(error, (int, float)) else None,
                        interval=_parse_interval(intervals.get(key)),
                        scored=int(sizes.get("effective", 0)),
                        higher_is_better=directions.get(metric),
                    )
                )
        return found

    def field(self, task: str, name: str) -> list[Any]:
        """Return one field of each document; dots select nested fields. lmms-eval stores no documents."""
        found = []
        for listed in self.by_document(task).values():
            value: Any = listed[0].get("doc")
            for part in name.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            found.append(value)
        return found

    def field_names(self, task: str) -> list[str]:
        """Return the field names of the first document."""
        first = next(iter(self.by_document(task).values()), [{}])[0].get("doc")
        return list(first) if isinstance(first, dict) else []

    def read_excerpts(self, task: str, documents: Sequence[int]) -> dict[int, DocumentExcerpt]:
        """Return some documents with prompts, responses and answers."""
        rows = self.by_document(task)
        return {document: _build_look(document, rows[document]) for document in documents if document in rows}

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    def by_document(self, task: str) -> dict[int, list[dict[str, Any]]]:
        """Return the rows of each document, each with the name of its filter pipeline."""
        if task not in self.files:
            raise UnknownName(f"`{self.name}` has no task `{task}`", hint=f"it has: {', '.join(self.files)}")
        file = self.files[task]
        return _read_samples(file, file.stat().st_mtime_ns)

    def _columns(
        self, task: str, values: Mapping[tuple[str, str], list[Any]]
    ) -> dict[tuple[str, str], ScoreColumn]:
        results = self._read_results(task)
        config = results.get("configs", {}).get(task, {})
        listed = config.get("metric_list")
        uses = {
            str(one.get("metric")): one
            for one in (listed if isinstance(listed, list) else ())
            if isinstance(one, dict)
        }
        numbers = results.get("results", {}).get(task, {})
        directions = results.get("higher_is_better", {}).get(task, {})
        built = {}
        for (pipeline, metric), column in values.items():
            if not any(isinstance(value, (int, float, dict, list)) for value in column):
                continue  # a string is not a score
            reported = numbers.get(f"{metric},{pipeline}")
            built[pipeline, metric] = ScoreColumn(
                pipeline=pipeline,
                metric=metric,
                values=column,
                aggregation=str(uses.get(metric, {}).get("aggregation") or ""),
                higher_is_better=directions.get(metric, uses.get(metric, {}).get("higher_is_better")),
                reported=float(reported) if isinstance(reported, (int, float)) else None,
                score_key=str(config.get("score_key") or "score"),
            )
        return built

    def _task_facts(self, task: str, first: Mapping[str, Any]) -> dict[str, Any]:
        results = self._read_results(task)
        config = results.get("configs", {}).get(task, {})
        names = (("path", "dataset_path"), ("name", "dataset_name"), ("split", "test_split"))
        return {
            "few-shot examples": results.get("n-shot", {}).get(task),
            "generation settings": config.get("generation_kwargs") or _get_settings(first),
            "dataset": {key: config[name] for key, name in names if config.get(name)} or None,
            "task version": results.get("versions", {}).get(task),
        }


def _parse_interval(value: Any) -> tuple[float, float] | None:
    """Return the interval that Assay writes into results files; other harnesses write none."""
    return (
        (value["low"], value["high"]) if isinstance(value, dict) and {"low", "high"} <= value.keys() else None
    )


def _describe_model(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return dtype, revision, quantisation and backend of a model as lm-eval stores them."""
    arguments = config.get("model_args")
    if isinstance(arguments, str):
        arguments = dict(part.split("=", 1) for part in arguments.split(",") if "=" in part)
    identity = {
        "dtype": str(config["model_dtype"]).removeprefix("torch.") if config.get("model_dtype") else None,
        "commit": config.get("model_sha") or config.get("model_revision"),
    }
    known = {key: value for key, value in identity.items() if value}
    backend = config.get("model")
    given = arguments if isinstance(arguments, dict) else {}
    return describe_model(known, given, backend if isinstance(backend, str) else "")


def _hash_contents(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The marks of the documents. lmms-eval 0.7 marks them all alike, because it has let go of them by then."""
    marks = [row.get("doc_hash") for row in rows]
    unknown = None in marks or (len(marks) > 1 and len(set(marks)) == 1) or set(marks) == {_hash_text("null")}
    return [None] * len(marks) if unknown else marks


@lru_cache(maxsize=64)
def _read_results_beside(file: Path) -> dict[str, Any]:
    date = _parse_date(file.name)
    for beside in sorted(file.parent.glob("*.json")):
        if "results" in beside.name and (date is None or date in beside.name):
            loaded = _read_json(beside)
            return loaded if isinstance(loaded, dict) else {}
    return {}


@lru_cache(maxsize=8)
def _read_samples(file: Path, _: int) -> dict[int, list[dict[str, Any]]]:
    """Read the rows of a file by document, each with the name of its filter pipeline."""
    documents: dict[int, list[dict[str, Any]]] = {}
    with file.open("rb") as opened:
        for number, line in enumerate(opened, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                listed = documents.setdefault(row["doc_id"], [])
            except (ValueError, KeyError, TypeError, RecursionError):
                raise DatasetError(
                    "the line is not a sample of lm-eval or lmms-eval",
                    where=f"{file}:{number}",
                    hint="each line must be a JSON object with `doc_id`",
                ) from None
            row["filter"] = str(row.get("filter", "none" if not listed else f"filter {len(listed) + 1}"))
            listed.append(row)
    return dict(sorted(documents.items(), key=_sort_document_number))


def _sort_document_number(item: tuple[Any, Any]) -> tuple[bool, Any]:
    """Sort numbers first; other values are no numbers of documents, which the import says."""
    return (False, item[0]) if isinstance(item[0], (int, float)) else (True, str(item[0]))


def _find_samples(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield (task, file), oldest first."""
    files = [
        file for file in _find_jsonl(folder) if _LM_EVAL.search(file.name) or _LMMS_EVAL.search(file.name)
    ]
    for file in sorted(files, key=lambda file: (_parse_date(file.name) or "", file.name)):
        yield _parse_task(file), file


def _find_jsonl(folder: Path) -> list[Path]:
    """Return the JSONL files in the folder and two levels below it (results are grouped by model and date)."""
    return [file for depth in ("", "*/", "*/*/") for file in folder.glob(f"{depth}*.jsonl")]


def _parse_task(file: Path) -> str:
    match = _LM_EVAL.search(file.name) or _LMMS_EVAL.search(file.name)
    return match["task"] if match else file.stem.removeprefix("samples_")


def _parse_date(name: str) -> str | None:
    found = re.search(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d+|\d{8}_\d{6}", name)
    return found[0] if found else None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError:
        raise DatasetError("the results file is not valid JSON", where=str(path)) from None


def _parse_score(value: Any) -> Any:
    """Return a score; booleans become numbers."""
    if isinstance(value, bool):
        return float(value)
    return value


def _get_prompt(row: Mapping[str, Any]) -> str:
    arguments = row.get("arguments")
    if isinstance(arguments, dict):  # {"gen_args_0": {"arg_0": …}}
        first: Any = next(iter(arguments.values()), {})
        return str(first.get("arg_0", "")) if isinstance(first, dict) else str(first)
    if isinstance(arguments, list) and arguments:
        return str(arguments[0][0] if isinstance(arguments[0], list) and arguments[0] else arguments[0])
    return str(row.get("input", row.get("prompt", "")))


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _get_settings(row: Mapping[str, Any]) -> Any:
    arguments = row.get("arguments")
    first: Any = next(iter(arguments.values()), {}) if isinstance(arguments, dict) else {}
    settings = first.get("arg_1") if isinstance(first, dict) else None
    return settings if isinstance(settings, dict) else None


def _build_look(document: int, rows: Sequence[Mapping[str, Any]]) -> DocumentExcerpt:
    first = rows[0]
    responses = _flatten(first.get("resps", first.get("filtered_resps")))
    counts = first.get("token_counts")
    tokens = counts[0].get("input_tokens") if isinstance(counts, list) and counts and counts[0] else None
    return DocumentExcerpt(
        document=document,
        prompt=_get_prompt(first),
        responses=tuple(map(str, responses)),
        answers={row["filter"]: _format_answer(row.get("filtered_resps")) for row in rows},
        target=str(first.get("target", "")),
        input_tokens=tokens,
        settings=json.dumps(_get_settings(first), sort_keys=True, default=str)
        if _get_settings(first)
        else "",
    )


def _flatten(value: Any) -> list[Any]:
    return [one for part in value for one in _flatten(part)] if isinstance(value, list) else [value]


def _format_answer(value: Any) -> str:
    flat = _flatten(value)
    return str(flat[0] if len(flat) == 1 else flat)
