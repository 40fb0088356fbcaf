"""Result files of lm-eval and lmms-eval as runs that Assay can store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood, Settings
from assay.core.records.responses import LogProbability, Response, Usage
from assay.engine.imports.input_files import build_identity
from assay.engine.results.sample_files import parse_response
from assay.store.runs.imported_runs import ImportedDocument, ImportedRun, ImportedTask
from assay_compat.result_files import HARNESS_KEYS, ResultFiles, open_results, open_results_without_samples

__all__ = ["read_imported_run"]

Value = str | LogProbability | None


def read_imported_run(path: Path) -> ImportedRun | None:
    """Read the result files at a path as a run; return None if there are none.

    A results file without samples beside it has no documents: only its aggregate scores are read. Files of lmms-eval
    contain no documents and only the first prompt of each.
    """
    found = open_results(path) or open_results_without_samples(path)
    return None if found is None else _build_run(found)


def _build_run(files: ResultFiles) -> ImportedRun:
    results = files.results
    harness = "lmms-eval" if "lmms_eval_version" in results else "lm-eval"
    tasks = list(files.tasks) or _list_tasks_without_samples(results)
    return ImportedRun(
        program=harness,
        model=files.model,
        identity=build_identity(harness, files.model, files.files or {"results": files.place}),
        tasks={task: _build_task(files, task) for task in tasks},
        estimates=files.read_estimates(),
        spec=_build_spec(files, tasks),
        groups=_build_groups(results, tasks),
        started=_parse_time(results.get("start_time") or results.get("date")),
        ended=_parse_time(results.get("end_time") or results.get("date")),
        seconds=_parse_number(results.get("total_evaluation_time_seconds")),
        facts={"git_hash": results.get("git_hash")},
    )


def _list_tasks_without_samples(results: Mapping[str, Any]) -> list[str]:
    groups = {name for name, members in (results.get("group_subtasks") or {}).items() if members}
    return [task for task in results.get("results", {}) if task not in groups]


def _read_documents(files: ResultFiles, task: str) -> Iterator[ImportedDocument]:
    """Yield the documents in index order; the rows of several filters form one document."""
    for document, rows in files.by_document(task).items():
        try:
            yield _build_document(task, document, rows)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, SyntaxError) as error:
            raise DatasetError(
                f"document {document} has an unexpected format: {type(error).__name__}: {error}",
                where=str(files.files[task]),
            ) from None


def _build_spec(files: ResultFiles, tasks: Sequence[str]) -> dict[str, Any]:
    results = files.results
    config = results.get("config") or {}
    arguments = config.get("model_args")
    return {
        "model": str(config.get("model") or files.model),
        "model_args": arguments if isinstance(arguments, dict) else {},
        "tasks": list(tasks),
        "limit": config.get("limit"),
        "system_instruction": results.get("system_instruction"),
        "apply_chat_template": bool(results.get("chat_template_sha") or results.get("chat_template")),
    }


def _build_task(files: ResultFiles, task: str) -> ImportedTask:
    results = files.results
    config = results.get("configs", {}).get(task, {})
    has_samples = task in files.files
    count = results.get("n-samples", {}).get(task, {}).get("original")
    return ImportedTask(
        read_documents=partial(_read_documents, files, task) if has_samples else None,
        alias=results.get("results", {}).get(task, {}).get("alias") or task,
        output_type=config.get("output_type", ""),
        version=results.get("versions", {}).get(task, ""),
        n_shot=results.get("n-shot", {}).get(task),
        original=count if isinstance(count, int) else None,
        config=config,
        higher_is_better=results.get("higher_is_better", {}).get(task) or {},
    )


def _build_groups(results: Mapping[str, Any], tasks: Sequence[str]) -> dict[str, Any]:
    """Return the groups that have members in these files."""
    listed = {name: members for name, members in (results.get("group_subtasks") or {}).items() if members}
    known = {*tasks, *listed}
    return {
        name: {
            "alias": results.get("results", {}).get(name, {}).get("alias") or name,
            "members": [member for member in members if member in known],
            "version": str(results.get("versions", {}).get(name, "")),
            "n_shot": results.get("n-shot", {}).get(name),
            "higher_is_better": results.get("higher_is_better", {}).get(name, {}),
        }
        for name, members in listed.items()
        if any(member in known for member in members)
    }


def _build_document(task: str, document: int, rows: Sequence[Mapping[str, Any]]) -> ImportedDocument:
    first = rows[0]
    requests = list(_read_requests(task, document, first))
    counts = first.get("token_counts") or []
    outcomes = [
        None
        if value is None
        else Response(
            request_id=request.id,
            value=value,
            usage=_parse_usage(counts[request.index] if request.index < len(counts) else None),
        )
        for request, value in requests
    ]
    scores = {}
    for row in rows:
        for metric in row.get("metrics") or [key for key in row if key not in HARNESS_KEYS]:
            if not isinstance(row.get(metric), str):  # a string is not a score
                scores[row["filter"], metric] = row.get(metric)
    return ImportedDocument(
        index=document,
        fields=first["doc"] if isinstance(first.get("doc"), dict) else {},
        target=first.get("target", ""),
        requests=[request for request, _ in requests],
        outcomes=outcomes,
        answers={row["filter"]: row.get("filtered_resps") for row in rows},
        scores=scores,
    )


def _read_requests(task: str, document: int, row: Mapping[str, Any]) -> Iterator[tuple[Request, Value]]:
    """Yield every request with its response, one per repeat."""
    if "arguments" not in row:
        answers = row.get("resps", row.get("filtered_resps"))
        flat = [one for one in (answers if isinstance(answers, list) else [answers]) if isinstance(one, str)]
        prompt = Prompt.of_text(str(row.get("input", "")))
        for repeat, answer in enumerate(flat or [None]):
            yield (
                Generate(task=task, document=document, repeat=repeat, prompt=prompt, settings=Settings({})),
                answer,
            )
        return
    given = row["arguments"]
    listed = list(given.values()) if isinstance(given, Mapping) else list(given)
    for index, (arguments, answers) in enumerate(zip(listed, row["resps"], strict=False)):
        request_arguments = list(arguments.values()) if isinstance(arguments, Mapping) else list(arguments)
        values = answers if isinstance(answers, list) else [answers]
        for repeat, answer in enumerate(values):
            request = _build_request(task, document, index, repeat, request_arguments)
            kind = {Generate: "generate", Likelihood: "likelihood"}.get(type(request), "rolling")
            yield request, None if answer is None else parse_response(kind, answer)


def _build_request(task: str, document: int, index: int, repeat: int, arguments: Sequence[Any]) -> Request:
    place: dict[str, Any] = {"task": task, "document": document, "index": index, "repeat": repeat}
    prompt = Prompt.of_text(str(arguments[0]))
    match arguments[1:]:
        case []:
            return RollingLikelihood(**place, prompt=prompt)
        case [dict() as settings, *_]:
            return Generate(**place, prompt=prompt, settings=Settings(settings))
        case [continuation, *_]:
            return Likelihood(**place, prompt=prompt, continuation=str(continuation))
    raise ValueError(arguments)  # unreachable: the cases are exhaustive


def _parse_usage(counts: Any) -> Usage | None:
    if not isinstance(counts, Mapping):
        return None
    return Usage(int(counts.get("input_tokens") or 0), int(counts.get("output_tokens") or 0))


def _parse_time(value: Any) -> float | None:
    """Return a Unix timestamp from a number or a date string."""
    number = _parse_number(value)
    if number is not None:
        return number
    for form in ("%Y%m%d_%H%M%S", "%Y-%m-%dT%H-%M-%S.%f"):
        try:
            return datetime.strptime(str(value), form).astimezone().timestamp()
        except ValueError:
            continue
    return None


def _parse_number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
