"""Records of Every Eval Ever: aggregate files, and the files of instances beside them.

The records of one model are one run with a task per record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError
from assay.core.records.messages import Message, Part, Prompt, Role, Text
from assay.core.records.requests import Generate, Likelihood, Request, Settings
from assay.core.records.responses import Failure, LogProbability, Response, Usage
from assay.core.records.tools import ToolCall, ToolResult
from assay.core.records.verdicts import Estimate
from assay.engine.imports.input_files import (
    build_identity,
    expect_format,
    parse_number,
    read_json,
    read_json_lines,
    read_start,
)
from assay.store.runs.imported_runs import ImportedDocument, ImportedRun, ImportedTask

__all__ = ["detect", "read"]

_PROGRAM = "every-eval-ever"
_ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")


def detect(path: Path) -> bool:
    """Whether a path is an aggregate file, a file of instances, or a folder with aggregate files."""
    return next(_list_records(path), None) is not None


def read(path: Path) -> Iterator[ImportedRun | DatasetError]:
    """Read the records of each model as a run; of several records of a task, the newest.

    Yields an error for each record that cannot be read.
    """
    models: dict[str, dict[str, _Record]] = {}
    for file in _list_records(path):
        try:
            with _expect_record(file):
                record = _open_record(file)
                tasks = models.setdefault(record.model, {})
                known = tasks.get(record.task)
                if known is None or record.retrieved >= known.retrieved:
                    tasks[record.task] = record
        except DatasetError as error:
            yield error
    for records in models.values():
        try:
            with _expect_record(next(iter(records.values())).file):
                run = _build_run(list(records.values()))
        except DatasetError as error:
            yield error
        else:
            yield run


def _open_record(file: Path) -> _Record:
    content = read_json(file)
    if not isinstance(content, dict) or not isinstance(content.get("evaluation_results"), list):
        raise DatasetError("the file is not a record of Every Eval Ever", where=str(file))
    return _Record(file=file, content=content)


def _expect_record(file: Path) -> AbstractContextManager[None]:
    return expect_format("the record has", file)


def _list_records(path: Path) -> Iterator[Path]:
    """Yield the aggregate files of a path; that of a file of instances is beside it."""
    if path.is_file():
        beside = path.with_name(path.name.replace("_samples.jsonl", ".json"))
        if _is_record(beside):
            yield beside
    elif path.is_dir():
        patterns = ("*.json", "data/*/*/*/*.json", "*/*/*/*.json", "*/*/*.json", "*/*.json")
        for file in sorted({file for pattern in patterns for file in path.glob(pattern)}):
            if _is_record(file):
                yield file


def _is_record(file: Path) -> bool:
    start = read_start(file) if file.suffix == ".json" and file.is_file() else ""
    return '"schema_version"' in start and '"evaluation_id"' in start and '"source_metadata"' in start


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """One aggregate file."""

    file: Path
    content: Mapping[str, Any]

    @property
    def model(self) -> str:
        return str((self.content.get("model_info") or {}).get("id") or "unknown")

    @property
    def task(self) -> str:
        """The start of `<evaluation>/<model>/<time>`."""
        found = str(self.content.get("evaluation_id") or self.file.stem)
        return found.partition(f"/{self.model}/")[0] or found

    @property
    def retrieved(self) -> float:
        return parse_number(self.content.get("retrieved_timestamp")) or 0.0

    @property
    def results(self) -> list[Mapping[str, Any]]:
        return [one for one in self.content["evaluation_results"] if isinstance(one, dict)]

    @property
    def samples(self) -> Path | None:
        """The file of instances, if it is beside the record."""
        named = str((self.content.get("detailed_evaluation_results") or {}).get("file_path") or "")
        file = self.file.with_name(Path(named).name) if named else self.file
        return file if file != self.file and file.is_file() else None

    @property
    def is_own(self) -> bool:
        return (self.content.get("eval_library") or {}).get("name") == "assay"


def _build_run(records: Sequence[_Record]) -> ImportedRun:
    first = records[0]
    files = {
        f"{record.task}/{file.suffix}": file
        for record in records
        for file in (record.file, record.samples)
        if file
    }
    library = first.content.get("eval_library") or {}
    info = first.content.get("model_info") or {}
    times = [parse_number(record.content.get("evaluation_timestamp")) for record in records]
    started = min((moment for moment in times if moment), default=None)
    aggregates = [record.task for record in records if record.samples is None]
    notes = []
    if aggregates and len(aggregates) < len(records):
        notes.append(f"no documents, only scores: {', '.join(f'`{task}`' for task in aggregates)}")
    return ImportedRun(
        program=_PROGRAM,
        model=str(info.get("name") or first.model),
        identity=build_identity(_PROGRAM, first.model, files),
        tasks={record.task: _build_task(record) for record in records},
        estimates=[estimate for record in records for estimate in _build_estimates(record)],
        spec={"model": str((info.get("inference_engine") or {}).get("name") or first.model)},
        started=started,
        ended=started,
        facts={"eval_library": {key: str(library.get(key) or "") for key in ("name", "version")}},
        notes=notes,
    )


def _build_task(record: _Record) -> ImportedTask:
    result = record.results[0] if record.results else {}
    source, generation = result.get("source_data") or {}, result.get("generation_config") or {}
    details = generation.get("additional_details") or {}
    arguments = {
        key: value for key, value in (generation.get("generation_args") or {}).items() if value is not None
    }
    if "max_tokens" in arguments:
        arguments["max_gen_toks"] = arguments.pop("max_tokens")
    config: dict[str, Any] = {
        "task": record.task,
        "dataset_path": source.get("hf_repo") or source.get("dataset_name"),
    }
    if source.get("hf_split"):
        config["test_split"] = source["hf_split"]
    if arguments:
        config["generation_kwargs"] = arguments
    library = (record.content.get("eval_library") or {}).get("additional_details") or {}
    own = library if record.is_own else {}
    shots = str(details.get("num_fewshot", own.get("n_shot", "")))
    return ImportedTask(
        read_documents=None if record.samples is None else partial(_read_documents, record, record.samples),
        version=_parse_version(own.get("task_version", "")),
        n_shot=int(shots) if shots.isdecimal() else None,
        config=config,
        higher_is_better={
            _name_result(one)[1]: direction
            for one in record.results
            if (direction := _find_direction(one.get("metric_config") or {})) is not None
        },
    )


def _parse_version(text: Any) -> Any:
    """Return the version of a task; a number if it is one, as in a task file."""
    number = parse_number(text)
    return text if number is None or str(number) != str(text) else number


def _find_direction(config: Mapping[str, Any]) -> bool | None:
    """Return whether higher is better; None if the record marks its direction as a guess."""
    if (config.get("additional_details") or {}).get("polarity") in ("unknown", "not_applicable"):
        return None
    return not config["lower_is_better"] if isinstance(config.get("lower_is_better"), bool) else None


def _name_result(result: Mapping[str, Any]) -> tuple[str, str]:
    """Return the filter and the metric of a result; a result id is `metric` or `metric:filter`."""
    config = result.get("metric_config") or {}
    identity = str(result.get("evaluation_result_id") or "")
    name = str(config.get("metric_name") or "")
    if not name:
        name = identity.partition(":")[0] or str(
            config.get("metric_id") or result.get("evaluation_name") or "score"
        )
    pipeline = identity.removeprefix(f"{name}:") if identity.startswith(f"{name}:") else "none"
    return pipeline, name


def _build_estimates(record: _Record) -> Iterator[Estimate]:
    seen: set[tuple[str, str]] = set()
    for result in record.results:
        pipeline, metric = _name_result(result)
        if (pipeline, metric) in seen:  # results of several evaluations in one record
            metric = f"{result.get('evaluation_name')}.{metric}"
        seen.add((pipeline, metric))
        details = result.get("score_details") or {}
        value = parse_number(details.get("score"))
        if value is None:
            continue
        uncertainty = details.get("uncertainty") or {}
        error, interval = (
            uncertainty.get("standard_error") or {},
            uncertainty.get("confidence_interval") or {},
        )
        ends = [parse_number(interval.get(key)) for key in ("lower", "upper")]
        level = parse_number(interval.get("confidence_level"))
        has_interval = None not in ends and (level is None or abs(level - 0.95) < 1e-9)
        yield Estimate(
            task=record.task,
            metric=metric,
            pipeline=pipeline,
            value=value,
            stderr=parse_number(error.get("value")),
            method={"analytic": "mean"}.get(str(error.get("method")), str(error.get("method") or "")),
            interval=(float(ends[0] or 0.0), float(ends[1] or 0.0)) if has_interval else None,
            interval_method=str(interval.get("method") or "") if has_interval else "",
            scored=int(parse_number(uncertainty.get("num_samples")) or 0),
            higher_is_better=_find_direction(result.get("metric_config") or {}),
        )


def _read_documents(record: _Record, file: Path) -> Iterator[ImportedDocument]:
    """Yield the documents; the rows of several metrics and filters form one."""
    groups: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for number, row in read_json_lines(file):
        groups.setdefault(str(row.get("sample_id")), []).append((number, row))
    metrics = {str(one.get("evaluation_result_id")): _name_result(one) for one in record.results}
    numbered = all(name.isdecimal() for name in groups)
    for place, name in enumerate(sorted(groups, key=int) if numbered else groups):
        number, _ = groups[name][0]
        rows = [row for _, row in groups[name]]
        with expect_format("the row has", f"{file}:{number}"):
            yield _build_document(record, int(name) if numbered else place, rows, metrics)


def _build_document(
    record: _Record,
    index: int,
    rows: Sequence[Mapping[str, Any]],
    metrics: Mapping[str, tuple[str, str]],
) -> ImportedDocument:
    first = rows[0]
    shown = first["input"]
    own = (first.get("metadata") or {}).get("assay") or {} if record.is_own else {}
    references = list(shown.get("reference") or ())
    scores: dict[tuple[str, str], Any] = {}
    answers: dict[str, Any] = {}
    for row in rows:
        identity = row.get("evaluation_result_id")
        pipeline = str((row.get("metadata") or {}).get("filter") or "none")
        key = metrics.get(str(identity)) if identity is not None else None
        if key is not None:
            scores[key] = row["evaluation"]["score"]
            pipeline = key[0]
        answers.setdefault(
            pipeline, [str(one["extracted_value"]) for one in row.get("answer_attribution") or ()][-1:]
        )
    requests, outcomes = _read_calls(record, index, first, own)
    error = str(first.get("error") or "")
    fields = {"id": str(first["sample_id"]), "input": shown.get("raw", ""), "reference": references}
    return ImportedDocument(
        index=index,
        fields=own.get("document")
        or {**fields, **({"choices": shown["choices"]} if shown.get("choices") else {})},
        target=references[0] if len(references) == 1 else references,
        requests=requests,
        outcomes=outcomes,
        answers=answers,
        scores=scores,
        ending=own.get("outcome") or ("failed" if error and not scores else None),
        why=error,
    )


def _read_calls(
    record: _Record, index: int, row: Mapping[str, Any], own: Mapping[str, Any]
) -> tuple[list[Request], list[Response | Failure | None]]:
    shown, messages = row["input"], row.get("messages")
    place: dict[str, Any] = {"task": record.task, "document": index}
    choices = shown.get("choices")
    if record.is_own and choices and messages is None:
        return _read_likelihoods(place, shown, own.get("responses") or ())
    if messages:
        last = max(
            (at for at, one in enumerate(messages) if one.get("role") == "assistant"), default=len(messages)
        )
        prompt = Prompt(tuple(_read_message(one) for one in messages[:last]), chat=True)
        reply = messages[last] if last < len(messages) else {}
        text, reasoning = str(reply.get("content") or ""), reply.get("reasoning_trace")
        calls = tuple(_read_call(one) for one in reply.get("tool_calls") or ())
        answered = bool(reply)
        texts = [text]
    else:
        prompt = Prompt.of_text(str(shown.get("formatted") or shown.get("raw") or ""))
        output = row.get("output") or {}
        given = own.get("responses") or output.get("raw") or ()
        texts = [one for one in given if isinstance(one, str)]
        traces = output.get("reasoning_trace")
        reasoning, calls = "\n".join(map(str, traces)) if traces else None, ()
        answered = bool(texts) and not (row.get("error") and texts == [""])
    requests: list[Request] = []
    outcomes: list[Response | Failure | None] = []
    for repeat, text in enumerate(texts if answered else [""]):
        request = Generate(**place, repeat=repeat, prompt=prompt, settings=Settings({}))
        requests.append(request)
        if not answered:
            error = str(row.get("error") or "")
            outcomes.append(
                Failure(request_id=request.id, kind="model error", message=error) if error else None
            )
            continue
        usage = _read_usage(row.get("token_usage")) if repeat == 0 else None  # that of the whole document
        outcomes.append(
            Response(
                request_id=request.id,
                value=text,
                usage=usage,
                reasoning=reasoning or None if repeat == 0 else None,
                tool_calls=calls,
            )
        )
    return requests, outcomes


def _read_likelihoods(
    place: Mapping[str, Any], shown: Mapping[str, Any], responses: Sequence[Any]
) -> tuple[list[Request], list[Response | Failure | None]]:
    """Return the requests of a multiple-choice document of Assay. Choices are stored without the space before them."""
    prompt = Prompt.of_text(str(shown.get("raw") or ""))
    requests: list[Request] = []
    outcomes: list[Response | Failure | None] = []
    for number, choice in enumerate(shown["choices"]):
        request = Likelihood(**place, index=number, prompt=prompt, continuation=str(choice))
        given = responses[number] if number < len(responses) else None
        pair = given if isinstance(given, list) and len(given) == 2 else [None, False]
        total = parse_number(pair[0])
        requests.append(request)
        known = None if total is None else LogProbability(total, bool(pair[1]))
        outcomes.append(None if known is None else Response(request_id=request.id, value=known))
    return requests, outcomes


def _read_message(message: Mapping[str, Any]) -> Message:
    role: Role = next((one for one in _ROLES if one == message.get("role")), "user")
    text = str(message.get("content") or "")
    if role == "tool":
        answered = message.get("tool_call_id") or [""]
        return Message(role, (ToolResult(text, str(answered[0])),))
    parts: list[Part] = [Text(text)] if text else []
    parts += [_read_call(one) for one in message.get("tool_calls") or ()]
    return Message(role, tuple(parts))


def _read_call(call: Mapping[str, Any]) -> ToolCall:
    arguments = json.dumps(call.get("arguments") or {}, ensure_ascii=False)
    return ToolCall(str(call.get("name") or ""), arguments, str(call.get("id") or ""))


def _read_usage(usage: Any) -> Usage | None:
    if not isinstance(usage, Mapping):
        return None
    keys = ("input_tokens", "output_tokens", "input_tokens_cache_read", "reasoning_tokens")
    read, written, cached, reasoning = (int(usage.get(key) or 0) for key in keys)
    return Usage(input_tokens=read, output_tokens=written, cached_tokens=cached, reasoning_tokens=reasoning)
