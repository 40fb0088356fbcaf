"""Logs of inspect_ai: `.eval` files and JSON. A sample is a document, an epoch is a repeat, a scorer is a metric."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError
from assay.core.records.verdicts import Estimate, RepeatScores
from assay.engine.imports.input_files import (
    build_identity,
    expect_format,
    parse_json,
    parse_number,
    read_json,
    read_start,
)
from assay.engine.imports.inspect_messages import RequestReader
from assay.engine.imports.zip_members import ZipReader
from assay.store.runs.imported_runs import ImportedDocument, ImportedRun, ImportedTask

__all__ = ["detect", "read"]

_PROGRAM = "inspect_ai"
_MEMBER = re.compile(r"samples/(.+)_epoch_(\d+)\.json", re.DOTALL)
_DISPERSION = ("stderr", "bootstrap_stderr", "std", "var")
_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def detect(path: Path) -> bool:
    """Whether a path is a log, or a folder of logs."""
    return any(_is_log(file) for file in _list_logs(path))


def read(path: Path) -> Iterator[ImportedRun | DatasetError]:
    """Read each log as a run; the logs of a folder that belong to one run of several tasks are one run.

    Yields an error for each log that cannot be read.
    """
    runs: dict[tuple[str, str], list[_Log]] = {}
    for file in _list_logs(path):
        if _is_log(file):
            try:
                with _expect_log(file):
                    log = _open_log(file)
                    runs.setdefault((log.run_id or str(file), log.model), []).append(log)
            except DatasetError as error:
                yield error
    for logs in runs.values():
        while logs:
            chosen = {log.task: log for log in reversed(logs)}  # the first log of each task
            logs = [log for log in logs if log is not chosen[log.task]]
            try:
                with _expect_log(next(iter(chosen.values())).file):
                    run = _build_run(list(reversed(chosen.values())))
            except DatasetError as error:
                yield error
            else:
                yield run


def _list_logs(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path] if path.is_file() else []
    patterns = ("*.eval", "*/*.eval", "*/*/*.eval", "*.json")
    return sorted(file for pattern in patterns for file in path.glob(pattern) if file.is_file())


def _is_log(file: Path) -> bool:
    if file.suffix == ".eval":
        return read_start(file).startswith("PK")
    start = read_start(file)
    return '"status"' in start and '"eval"' in start and '"version"' in start and '"task"' in start


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """One log: its header, and a function that reads the samples grouped by id."""

    file: Path
    header: Mapping[str, Any]
    reductions: Sequence[Mapping[str, Any]]
    read_groups: Callable[[], Iterator[list[Mapping[str, Any]]]]

    @property
    def spec(self) -> Mapping[str, Any]:
        found = self.header.get("eval")
        return found if isinstance(found, dict) else {}

    @property
    def task(self) -> str:
        return str(self.spec.get("task") or self.file.stem)

    @property
    def model(self) -> str:
        own = (self.spec.get("metadata") or {}).get("assay_model")
        return str(own or self.spec.get("model") or "unknown")

    @property
    def run_id(self) -> str:
        return str(self.spec.get("run_id") or "")

    @property
    def is_own(self) -> bool:
        """Whether Assay wrote the log: its scorers are metrics and filters, and its prompts can be plain text."""
        return "assay_run" in (self.spec.get("metadata") or {})

    @property
    def epochs(self) -> int:
        return int((self.spec.get("config") or {}).get("epochs") or 1)

    @property
    def scores(self) -> list[Mapping[str, Any]]:
        found = (self.header.get("results") or {}).get("scores") or []
        return [one for one in found if isinstance(one, dict)]

    @property
    def reducers(self) -> list[str]:
        return list(dict.fromkeys(str(one.get("reducer") or "") for one in self.scores))


def _open_log(file: Path) -> _Log:
    return _open_eval(file) if file.suffix == ".eval" else _open_json(file)


def _expect_log(file: Path) -> AbstractContextManager[None]:
    return expect_format("the log has", file)


def _open_json(file: Path) -> _Log:
    log = read_json(file)
    if not isinstance(log, dict):
        raise DatasetError("the log is not a JSON object", where=str(file))
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for sample in log.get("samples") or ():
        groups.setdefault(str(sample["id"]), []).append(sample)
    order = _order_ids(log, list(groups))
    return _Log(
        file=file,
        header={key: value for key, value in log.items() if key not in ("samples", "reductions")},
        reductions=log.get("reductions") or [],
        read_groups=lambda: iter([_sort_epochs(groups[name]) for name in order]),
    )


def _open_eval(file: Path) -> _Log:
    with ZipReader(file) as archive:
        names = archive.names
        start = "header.json" if "header.json" in names else "_journal/start.json"
        header = parse_json(archive.read(start))
        reductions = parse_json(archive.read("reductions.json")) if "reductions.json" in names else []
    groups: dict[str, list[str]] = {}
    for name in names:
        if found := _MEMBER.fullmatch(name):
            groups.setdefault(found[1], []).append(name)
    members = [groups[name] for name in _order_ids(header, list(groups))]
    return _Log(
        file=file, header=header, reductions=reductions, read_groups=partial(_read_members, file, members)
    )


def _read_members(file: Path, members: Sequence[Sequence[str]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the samples of one id after another, so that only these are in memory."""
    with ZipReader(file) as archive:
        for names in members:
            try:
                yield _sort_epochs([parse_json(archive.read(name)) for name in names])
            except (ValueError, AttributeError, RecursionError) as error:
                raise DatasetError(
                    f"a sample is not valid JSON: {error}", where=f"{file}: {names[0]}"
                ) from None


def _sort_epochs(samples: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(samples, key=lambda sample: parse_number(sample.get("epoch")) or 1.0)


def _order_ids(header: Mapping[str, Any], found: Sequence[str]) -> list[str]:
    """Return the ids of the samples in the order of the dataset; without it, numbers in numeric order."""
    listed = ((header.get("eval") or {}).get("dataset") or {}).get("sample_ids") or []
    known = {str(name): place for place, name in enumerate(listed)}
    if not known and all(name.isdecimal() for name in found):
        return sorted(found, key=int)
    return sorted(found, key=lambda name: known.get(name, len(known)))


def _build_run(logs: Sequence[_Log]) -> ImportedRun:
    first = logs[0]
    stats = [log.header.get("stats") or {} for log in logs]
    starts = [moment for one in stats if (moment := _parse_time(one.get("started_at")))]
    ends = [moment for one in stats if (moment := _parse_time(one.get("completed_at")))]
    notes = [note for log in logs for note in _list_notes(log)]
    return ImportedRun(
        program=_PROGRAM,
        model=first.model,
        identity=build_identity(_PROGRAM, first.model, {log.task: log.file for log in logs}),
        tasks={log.task: _build_task(log) for log in logs},
        estimates=[estimate for log in logs for estimate in _build_estimates(log)],
        spec={
            "model": first.model,
            "model_args": dict(first.spec.get("model_args") or {}),
            "limit": (first.spec.get("config") or {}).get("limit"),
        },
        started=min(starts, default=None),
        ended=max(ends, default=None) or _parse_time(first.spec.get("created")),
        seconds=max(ends) - min(starts) if starts and ends else None,
        facts={
            "packages": dict(first.spec.get("packages") or {}),
            "inspect_status": first.header.get("status"),
        },
        notes=notes,
    )


def _list_notes(log: _Log) -> Iterator[str]:
    status = str(log.header.get("status") or "unknown")
    if status != "success":
        why = str((log.header.get("error") or {}).get("message") or "")
        yield f"`{log.task}`: the log has the status `{status}`" + (f": {why}" if why else "")
    if log.header.get("invalidated"):
        yield f"`{log.task}`: samples of the log were marked as invalid; their scores are imported all the same"


def _parse_time(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


def _build_task(log: _Log) -> ImportedTask:
    dataset = log.spec.get("dataset") or {}
    metadata = log.spec.get("metadata") or {}
    config: dict[str, Any] = {"task": log.task, "metric_list": _list_metrics(log)}
    if dataset.get("location") or dataset.get("name"):
        config["dataset_path"] = str(dataset.get("location") or dataset.get("name"))
    if log.epochs > 1:
        config |= {"repeats": log.epochs, "epochs_reducer": next(iter(log.reducers), "") or "mean"}
    count = dataset.get("samples")
    n_shot = metadata.get("n_shot")
    return ImportedTask(
        read_documents=partial(_read_documents, log),
        alias=str(log.spec.get("task_display_name") or log.task),
        output_type=str(metadata.get("output_type") or "generate_until"),
        version=log.spec.get("task_version", ""),
        n_shot=n_shot if isinstance(n_shot, int) else None,
        original=count if isinstance(count, int) else None,
        config=config,
        higher_is_better=_find_directions(log),
    )


def _list_metrics(log: _Log) -> list[dict[str, Any]]:
    """Return the metrics with their aggregations, as a task file lists them."""
    listed = []
    for score in log.scores:
        name = next((one for one in score.get("metrics") or {} if one not in _DISPERSION), "mean")
        entry = {"metric": _name_metric(log, score)[1], "aggregation": name}
        if name == "accuracy":  # the mean of the scores under another name
            entry |= {"aggregation": "mean", "inspect_metric": name}
        listed.append(entry)
    return listed


def _find_directions(log: _Log) -> dict[str, bool]:
    """Return the direction of each metric, which only logs of Assay state."""
    found = {}
    for score in log.scores:
        for value in (score.get("metrics") or {}).values():
            stated = (
                (value.get("metadata") or {}).get("higher_is_better") if isinstance(value, dict) else None
            )
            if isinstance(stated, bool):
                found[_name_metric(log, score)[1]] = stated
    return found


def _name_metric(log: _Log, score: Mapping[str, Any]) -> tuple[str, str]:
    """Return the filter and the metric of an entry of the results."""
    scorer, name, reducer = (str(score.get(key) or "") for key in ("scorer", "name", "reducer"))
    return _split_name(log, scorer or name, "" if name == scorer else name, reducer)


def _split_name(log: _Log, scorer: str, key: str, reducer: str) -> tuple[str, str]:
    """Return (filter, metric) of a scorer, of a key of its scores if they are dictionaries, and of a reducer."""
    pipeline = "none"
    if log.is_own and "," in scorer:
        scorer, _, pipeline = scorer.partition(",")
    metric = f"{scorer}.{key}" if key else scorer
    return pipeline, f"{metric}@{reducer}" if len(log.reducers) > 1 else metric


def _build_estimates(log: _Log) -> Iterator[Estimate]:
    directions = _find_directions(log)
    for score in log.scores:
        pipeline, metric = _name_metric(log, score)
        metrics = {name: one for name, one in (score.get("metrics") or {}).items() if isinstance(one, dict)}
        error = next((metrics[name] for name in _DISPERSION[:2] if name in metrics), None)
        main = [name for name in metrics if name not in _DISPERSION]
        for place, name in enumerate(main):
            value = parse_number(metrics[name].get("value"))
            if value is None:
                continue
            yield Estimate(
                task=log.task,
                metric=metric if place == 0 else f"{metric}.{name}",
                pipeline=pipeline,
                value=value,
                stderr=parse_number(error.get("value")) if error is not None and place == 0 else None,
                method=("mean" if "stderr" in metrics else "bootstrap")
                if error is not None and place == 0
                else "",
                scored=int(score.get("scored_samples") or 0),
                unscored=int(score.get("unscored_samples") or 0),
                higher_is_better=directions.get(metric),
            )


def _index_reductions(log: _Log) -> dict[tuple[str, str, str], Mapping[str, Any]]:
    """Return the scores over all epochs by scorer, reducer and sample."""
    return {
        (str(one.get("scorer") or ""), str(one.get("reducer") or ""), str(sample.get("sample_id"))): sample
        for one in log.reductions
        for sample in one.get("samples") or ()
    }


def _read_documents(log: _Log) -> Iterator[ImportedDocument]:
    with _expect_log(log.file):
        reduced = _index_reductions(log)
        for place, samples in enumerate(log.read_groups()):
            index = int(samples[0]["id"]) if log.is_own else place  # Assay writes the number of the document
            yield _build_document(log, index, samples, reduced)


def _build_document(
    log: _Log,
    index: int,
    samples: Sequence[Mapping[str, Any]],
    reduced: Mapping[tuple[str, str, str], Mapping[str, Any]],
) -> ImportedDocument:
    first = samples[0]
    reader = RequestReader(task=log.task, document=index, is_own=log.is_own)
    for repeat, sample in enumerate(samples):
        reader.add_sample(sample, repeat)
    scores = _read_scores(log, samples, reduced)
    errors = [str(sample["error"].get("message") or "error") for sample in samples if sample.get("error")]
    own = (first.get("metadata") or {}).get("assay") or {} if log.is_own else {}
    return ImportedDocument(
        index=index,
        fields=_build_fields(log, first),
        target=own.get("target", first.get("target", "")),
        requests=reader.requests,
        outcomes=reader.outcomes,
        media=reader.media,
        answers={pipeline: _read_answers(log, samples, pipeline) for pipeline in _list_pipelines(scores)},
        scores={key: one.value for key, one in scores.items()},
        reasons={key: one.why for key, one in scores.items() if one.why},
        repeats=_build_repeats(index, scores, samples) if len(samples) > 1 else [],
        ending=own.get("outcome") or ("failed" if errors and not scores else None),
        why=str(own.get("why") or "") or "; ".join(dict.fromkeys(errors)),
    )


def _build_fields(log: _Log, sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the document: those of a log of Assay, else the sample as the dataset defines it."""
    metadata = dict(sample.get("metadata") or {})
    if log.is_own:
        metadata.pop("assay", None)
        return metadata
    shown = sample.get("input")
    text = shown if isinstance(shown, str) else "\n".join(_read_text(message) for message in shown or ())
    fields = {"id": sample["id"], "input": text, "target": sample.get("target", "")}
    if sample.get("choices"):
        fields["choices"] = sample["choices"]
    return {**fields, **({"metadata": metadata} if metadata else {})}


def _read_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if not isinstance(content, list):
        return str(content or "")
    return "".join(str(part.get("text") or f"[{part.get('type')}]") for part in content)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MetricScores:
    """The scores of a document in one metric."""

    value: Any
    """The score over all epochs; None if there is none."""

    epochs: Sequence[float | None]
    why: str = ""


def _read_scores(
    log: _Log, samples: Sequence[Mapping[str, Any]], reduced: Mapping[tuple[str, str, str], Mapping[str, Any]]
) -> dict[tuple[str, str], _MetricScores]:
    found = {}
    for scorer, key in _list_scorers(samples):
        values = [_find_value(sample, scorer, key) for sample in samples]
        given = [(sample.get("scores") or {}).get(scorer) or {} for sample in samples]
        why = "; ".join(dict.fromkeys(str(one["explanation"]) for one in given if one.get("explanation")))
        epochs = [_to_score(value) for value in values]
        known = [value for value in epochs if value is not None]
        mean = sum(known) / len(known) if known else None
        evidence = next((value for value in values if isinstance(value, list)), None)
        for reducer in log.reducers or [""]:
            entry = reduced.get((scorer, reducer, str(samples[0]["id"])))
            value = mean if entry is None else _to_score(_get_key(entry.get("value"), key))
            found[_split_name(log, scorer, key, reducer)] = _MetricScores(
                value=evidence if evidence is not None else value, epochs=epochs, why=why
            )
    return found


def _list_scorers(samples: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the scorers of a document, and the keys of scores that are dictionaries."""
    found: dict[tuple[str, str], None] = {}
    for sample in samples:
        for scorer, score in (sample.get("scores") or {}).items():
            value = score.get("value")
            for key in value if isinstance(value, dict) else [""]:
                found.setdefault((scorer, str(key)))
    return list(found)


def _find_value(sample: Mapping[str, Any], scorer: str, key: str) -> Any:
    return _get_key(((sample.get("scores") or {}).get(scorer) or {}).get("value"), key)


def _get_key(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else value


def _to_score(value: Any) -> float | None:
    """Return a value as a number: letters of grades and words as inspect_ai converts them; None without a score."""
    if isinstance(value, str):
        known = _LETTERS.get(value)
        return _WORDS.get(value.lower(), parse_number(value)) if known is None else known
    return parse_number(value)


def _list_pipelines(scores: Mapping[tuple[str, str], Any]) -> list[str]:
    return list(dict.fromkeys(pipeline for pipeline, _ in scores)) or ["none"]


def _read_answers(log: _Log, samples: Sequence[Mapping[str, Any]], pipeline: str) -> list[str]:
    """Return the answer of each epoch that a scorer extracted; without one, the text of the model."""
    answers = []
    for sample in samples:
        scored = (
            score.get("answer")
            for scorer, score in (sample.get("scores") or {}).items()
            if _split_name(log, scorer, "", "")[0] == pipeline
        )
        text = str((sample.get("output") or {}).get("completion") or "")
        answers.append(str(next((one for one in scored if one is not None), text)))
    return answers


def _build_repeats(
    index: int, scores: Mapping[tuple[str, str], _MetricScores], samples: Sequence[Mapping[str, Any]]
) -> list[RepeatScores]:
    """Return the scores of the epochs by filter: the metrics that have a score in every epoch."""
    texts = [str((sample.get("output") or {}).get("completion") or "") for sample in samples]
    numbers: dict[str, int] = {}
    answers = tuple(numbers.setdefault(text, len(numbers)) for text in texts)
    found = []
    for pipeline in dict.fromkeys(pipeline for pipeline, _ in scores):
        whole = {
            metric: tuple(value for value in one.epochs if value is not None)
            for (own, metric), one in scores.items()
            if own == pipeline and None not in one.epochs
        }
        if whole:
            found.append(RepeatScores(document=index, pipeline=pipeline, answers=answers, scores=whole))
    return found
