"""Record a corpus with lm_eval: runs inside an environment where lm_eval is installed.

The recorder replaces three things: the loading of datasets, the model, and the network. Everything else is the
harness's own code, called through `simple_evaluate`.
"""

from __future__ import annotations

import csv
import inspect
import os
import random
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import datasets
import lm_eval
import lm_eval.evaluator
import numpy
from lm_eval.api.model import LM
from lm_eval.api.task import ConfigurableTask, Task
from lm_eval.tasks import TaskManager

from tools.oracle.corpus import read_records, write_records
from tools.oracle.lm_eval_values import decode_documents, encode_document, encode_value, request_key
from tools.oracle.recording.documents import DocumentsNotFound, WrittenDocuments, load_local_splits
from tools.oracle.recording.job import RecordingJob, TaskTimeout, limit_time, match_names
from tools.oracle.recording.responses import MAX_RESPONSES, draw_loglikelihood, draw_rolling, draw_texts
from tools.oracle.recording.synthesis import Synthesizer, TaskSources, find_sources

_SYSTEM_INSTRUCTION = "You are a careful assistant."
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "fs3": {"num_fewshot": 3},
    "chat": {"apply_chat_template": True},
    "chat_mt_sys_fs3": {
        "apply_chat_template": True,
        "fewshot_as_multiturn": True,
        "system_instruction": f"{_SYSTEM_INSTRUCTION}\nAnswer concisely.",
        "num_fewshot": 3,
    },
    "sys_fs2": {"system_instruction": _SYSTEM_INSTRUCTION, "num_fewshot": 2},
}
_SAMPLE_KEYS = ("doc_id", "filter", "target", "filtered_resps", "doc_hash", "prompt_hash", "target_hash")
_OLD_SAMPLE_KEYS = frozenset((*_SAMPLE_KEYS, "doc", "arguments", "resps"))
"""The keys of a sample that are not metrics, in versions without `metrics`."""
_MAX_SPLIT_DOCUMENTS = 12
_SEEDS = (0, 1234)
_MAX_REPAIRS = 40


def _parse_fewshot_variant(variant: str) -> dict[str, Any]:
    """Return the arguments of `default` and of `fsN`, any number of few-shot examples."""
    count = variant.removeprefix("fs")
    return {"num_fewshot": int(count)} if count.isdecimal() else {}


class ScriptedModel(LM):  # type: ignore[misc]
    """Answers every request with a function of its content and records both."""

    MULTIMODAL: bool = True
    tokenizer_name = "oracle"

    def __init__(
        self, known: Mapping[str, list[Any]], golds: Callable[[Any], list[str]], before: Callable[[], None]
    ) -> None:
        super().__init__()
        self._before = before
        self._known = known
        self._golds = golds
        self.keys: dict[int, tuple[str, list[Any]]] = {}
        self.responses: dict[str, list[Any]] = {}

    def apply_chat_template(self, messages: Any, add_generation_prompt: bool = True) -> str:
        text = "".join(f"<|{one['role']}|>\n{one['content']}<|end|>\n" for one in messages)
        return text + "<|assistant|>\n" if add_generation_prompt else text.removesuffix("<|end|>\n")

    def loglikelihood(self, requests: list[Any], **_: Any) -> list[Any]:
        return [tuple(value) for value in self._answer(requests, "loglikelihood")]

    def loglikelihood_rolling(self, requests: list[Any], **_: Any) -> list[Any]:
        return self._answer(requests, "loglikelihood_rolling")

    def generate_until(self, requests: list[Any], **_: Any) -> list[Any]:
        return self._answer(requests, "generate_until")

    def _answer(self, requests: list[Any], kind: str) -> list[Any]:
        self._before()
        answers = []
        repeats: dict[int, int] = {}
        for request in requests:
            repeat = repeats[id(request)] = repeats.get(id(request), -1) + 1
            if repeat == 0:
                arguments = encode_value(list(request.args))
                key = request_key(kind, arguments)
                self.keys[id(request)] = (key, arguments)
                if key not in self.responses:
                    self.responses[key] = self._known.get(key) or self._draw(kind, key, request)
            known = self.responses[self.keys[id(request)][0]]
            answers.append(known[repeat % len(known)])
        return answers

    def _draw(self, kind: str, key: str, request: Any) -> list[Any]:
        if kind == "loglikelihood":
            return [draw_loglikelihood(key)]
        if kind == "loglikelihood_rolling":
            return [draw_rolling(key)]
        stops = (request.args[1] or {}).get("until") or []
        stops = [stops] if isinstance(stops, str) else list(stops)
        return list(draw_texts(key, min(request.repeats, MAX_RESPONSES), self._golds(request), stops))


class LmEvalRecorder:
    """Records task and group records of one job."""

    def __init__(self, job: RecordingJob) -> None:
        self.job = job
        self.manager = TaskManager(
            include_path=job.include_path or None, include_defaults=not job.include_path
        )
        self.root = Path(job.include_path or Path(lm_eval.__file__).parent / "tasks").resolve()
        self._source = _read_source(job)
        self._written = WrittenDocuments(Path(job.written)) if job.written else None
        self._synthesizer = Synthesizer()
        self._splits: dict[str, Any] = {}
        self._built: list[Any] = []
        self._current = ""
        self._model: ScriptedModel | None = None
        self._seeds = _SEEDS
        self._patch()

    # --- replaced parts of the harness -------------------------------------------------------------

    def _patch(self) -> None:
        recorder = self
        build = Task.build_all_requests

        def download(task: Any, *_: Any, **__: Any) -> None:
            if recorder._model is not None:  # older versions refuse a model that differs from the task here
                recorder._model.MULTIMODAL = bool(getattr(task, "MULTIMODAL", False))
            task.dataset = recorder._load_splits(_task_name(task, recorder._current), task)

        def build_and_capture(task: Any, *arguments: Any, **keywords: Any) -> Any:
            recorder._reseed()
            built = build(task, *arguments, **keywords)
            recorder._built.append(task)
            return built

        Task.download = download
        ConfigurableTask.download = download
        Task.build_all_requests = build_and_capture
        datasets.load_dataset = lambda *_, **__: recorder._splits[recorder._current]
        if self.job.metric_scripts:
            _use_local_metrics(Path(self.job.metric_scripts))
        for name in ("add_env_info", "add_tokenizer_info", "get_git_commit_hash"):  # slow, and not recorded
            if hasattr(lm_eval.evaluator, name):
                setattr(lm_eval.evaluator, name, lambda *_, **__: None)
        _block_network()

    def _reseed(self) -> None:
        """Seed the global generators again in the evaluation that looks for tasks which use them."""
        if self._seeds != _SEEDS:
            random.seed(self._seeds[0])
            numpy.random.seed(self._seeds[1])

    def _load_splits(self, name: str, task: Any) -> Any:
        name = name.rpartition("::")[2]
        if name not in self._splits:
            self._splits[name] = self._find_splits(name, task)
        return self._splits[name]

    def _find_splits(self, name: str, task: Any) -> Any:
        if self._source is not None:
            if name not in self._source:
                raise DocumentsNotFound(f"the corpus has no documents of `{name}`")
            recorded = self._source[name]["splits"]
            return datasets.DatasetDict(
                {
                    split: datasets.Dataset.from_list(decode_documents(rows))
                    for split, rows in recorded.items()
                }
            )
        if self.job.data_root and task.DATASET_PATH:
            return load_local_splits(
                self.job.data_root, task.DATASET_PATH, task.DATASET_NAME, _MAX_SPLIT_DOCUMENTS
            )
        if self._written is not None:
            return self._read_written_splits(self._written, name, task)
        sources = self._find_sources(name, task)
        return datasets.DatasetDict(
            {
                split: datasets.Dataset.from_list(self._synthesizer.build_rows(name, sources, split))
                for split in sources.splits
            }
        )

    def _read_written_splits(self, written: WrittenDocuments, name: str, task: Any) -> Any:
        """Return the hand-written splits of a task; `docs` are the documents of every split."""
        entry = written.find(name)
        splits = entry.get("splits") or dict.fromkeys(
            self._find_sources(name, task).splits, entry.get("docs", [])
        )
        return datasets.DatasetDict(
            {
                split: datasets.Dataset.from_list([written.read_value(document) for document in documents])
                for split, documents in splits.items()
            }
        )

    def _find_sources(self, name: str, task: Any) -> TaskSources:
        config = dict(vars(getattr(task, "_config", None) or task.config))
        path = self.root / self._find_yaml(name) if name in self.manager.task_index else self.root
        sources = find_sources(config, path.parent)
        return replace(sources, splits=sources.splits or ["train", "validation", "test"])

    # --- records -----------------------------------------------------------------------------------

    def record_task(self, name: str) -> list[dict[str, Any]]:
        """Record every variant of a task; the first is the default. Synthesized documents are repaired after errors."""
        if self._source is not None or self.job.data_root or self._written is not None:
            return self._record_variants(name)
        for _ in range(_MAX_REPAIRS):
            try:
                return self._record_variants(name)
            except Exception as error:
                _report(f"repair {name}: {type(error).__name__}: {error}")
                self._splits.pop(name, None)
                if not self._synthesizer.repair(name, error):
                    raise
        return self._record_variants(name)

    def _record_variants(self, name: str) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = []
        for variant in self.job.variants:
            try:
                record = self._record_variant(name, variant)
                record["uses_global_rng"] |= bool(records and records[0]["uses_global_rng"])
                records.append(record)
            except Exception:
                if variant == "default":
                    raise
                _report(f"{name}#{variant}: {traceback.format_exc(limit=-1)}")
        return records

    def _record_variant(self, name: str, variant: str) -> dict[str, Any]:
        arguments = VARIANTS.get(variant) or _parse_fewshot_variant(variant)
        is_default = variant == "default"
        results, model = self._evaluate(name, arguments)
        task = next(task for task in self._built if _task_name(task, name) == name)
        record = {
            "task": name,
            "yaml_relpath": self._find_yaml(name),
            "variant": variant,
            "num_fewshot_arg": arguments.get("num_fewshot"),
            "num_fewshot": results["n-shot"][name],
            "chat": arguments.get("apply_chat_template", False),
            "fewshot_as_multiturn": arguments.get("fewshot_as_multiturn", False),
            "system_instruction": arguments.get("system_instruction"),
            "limit": self.job.limit,
            "bootstrap_iters": self.job.bootstrap_iters,
            "output_type": str(task.OUTPUT_TYPE),
            "dataset_path": task.DATASET_PATH,
            "dataset_name": task.DATASET_NAME,
            "splits": self._encode_splits(name) if is_default else None,
            "requests": _list_requests(task, model),
            "responses": model.responses,
            "samples": _format_samples(results["samples"][name], task),
            "results": encode_value(results["results"][name]),
            "version": encode_value(results["versions"][name]),
            "n_shot": results["n-shot"][name],
            "higher_is_better": encode_value(results["higher_is_better"][name]),
            "n_samples": encode_value(results["n-samples"][name]),
        }
        record["uses_global_rng"] = self._depends_on_seed(name, arguments, record)
        record["deps"] = []
        return record

    def _depends_on_seed(self, name: str, arguments: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
        """Evaluate again with other global seeds, set before rendering and before scoring too, and compare."""
        results, model = self._evaluate(name, arguments, seeds=(5, 77))
        task = next(task for task in self._built if _task_name(task, name) == name)
        samples = _format_samples(results["samples"][name], task)
        return (_list_requests(task, model), samples) != (record["requests"], record["samples"])

    def record_group(self, name: str, leaves: Mapping[str, Any]) -> dict[str, Any]:
        """Record a group. `leaves` are the default records of its tasks, by name."""
        recorded = {key: value for record in leaves.values() for key, value in record["responses"].items()}
        source = {
            key: value
            for record in (self._source or {}).values()
            for key, value in record["responses"].items()
        }
        results, model = self._evaluate(name, {}, known=source | recorded)
        tasks = [_task_name(task, name) for task in self._built]
        return {
            "group": name,
            "yaml_relpath": self._find_yaml(name),
            "variant": "default",
            "limit": self.job.limit,
            "bootstrap_iters": self.job.bootstrap_iters,
            "tasks": tasks,
            "splits_from": {task: task.rpartition("::")[2] for task in tasks},
            "results": encode_value(results["results"]),
            "groups_results": encode_value(results.get("groups") or {}),
            "group_subtasks": encode_value(results["group_subtasks"]),
            "n_shot": encode_value(results["n-shot"]),
            "versions": encode_value(results["versions"]),
            "higher_is_better": encode_value(results["higher_is_better"]),
            "n_samples": encode_value(results["n-samples"]),
            "extra_responses": {key: value for key, value in model.responses.items() if key not in recorded},
        }

    def _evaluate(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        seeds: tuple[int, int] = _SEEDS,
        known: Mapping[str, list[Any]] | None = None,
    ) -> tuple[dict[str, Any], ScriptedModel]:
        self._current = name
        self._built = []
        if known is None:
            known = self._find_responses(name)
        self._seeds = seeds
        model = self._model = ScriptedModel(known, self._find_golds, self._reseed)
        options = {
            "model": model,
            "tasks": [name],
            "task_manager": self.manager,
            "limit": self.job.limit,
            "bootstrap_iters": self.job.bootstrap_iters,
            "log_samples": True,
            "confirm_run_unsafe_code": True,
            "random_seed": seeds[0],
            "numpy_random_seed": seeds[1],
            "torch_random_seed": 1234,
            "fewshot_as_multiturn": False,
            "fewshot_random_seed": 1234,
            **arguments,
        }
        accepted = inspect.signature(lm_eval.simple_evaluate).parameters
        results = lm_eval.simple_evaluate(**{key: value for key, value in options.items() if key in accepted})
        return results, model

    def _find_responses(self, name: str) -> Mapping[str, list[Any]]:
        if self._source is None or name not in self._source:
            return {}
        known: Mapping[str, list[Any]] = self._source[name]["responses"]
        return known

    def _find_golds(self, request: Any) -> list[str]:
        """Return the texts of the gold answer of a request's document."""
        for task in self._built:
            if any(request is instance for instance in task.instances):
                try:
                    target = task.doc_to_target(request.doc)
                except Exception:  # noqa: BLE001 - task code
                    return []
                golds = target if isinstance(target, (list, tuple)) else [target]
                return [str(gold) for gold in golds]
        return []

    def list_tasks(self) -> list[str]:
        """Return the names of all tasks, without groups and tags."""
        known = getattr(self.manager, "all_subtasks", None)
        if known is None:  # lm_eval before 0.4.4
            index = self.manager.task_index.items()
            known = [name for name, entry in index if "task" in entry["type"]]
        return sorted(known)

    def _find_yaml(self, name: str) -> str:
        entry = self.manager.task_index[name]
        path = entry["yaml_path"] if isinstance(entry, dict) else entry.yaml_path
        return str(Path(path).resolve().relative_to(self.root))

    def _encode_splits(self, name: str) -> dict[str, Any]:
        if self._source is not None:
            recorded: dict[str, Any] = self._source[name]["splits"]
            return recorded
        splits = self._splits[name]
        return {split: [encode_document(row) for row in splits[split]] for split in splits}


def _list_requests(task: Any, model: ScriptedModel) -> list[dict[str, Any]]:
    requests = []
    for instance in task.instances:
        key, arguments = model.keys[id(instance)]
        requests.append(
            {
                "type": str(instance.request_type),
                "args": arguments,
                "doc_id": instance.doc_id,
                "idx": instance.idx,
                "repeats": instance.repeats,
                "key": key,
            }
        )
    return requests


def _format_samples(samples: Sequence[Mapping[str, Any]], task: Any) -> list[dict[str, Any]]:
    has_images = bool(getattr(task, "MULTIMODAL", False))
    return [_format_sample(sample, has_images) for sample in _name_filters(samples, task)]


def _name_filters(samples: Sequence[Mapping[str, Any]], task: Any) -> Sequence[Mapping[str, Any]]:
    """Add the names of the filters, which samples of lm_eval before 0.4.8 lack; they come filter by filter."""
    if not samples or "filter" in samples[0]:
        return samples
    filters = iter(task.instances[0].filtered_resps)
    name = next(filters)
    seen: set[int] = set()
    named: list[Mapping[str, Any]] = []
    for sample in samples:
        if sample["doc_id"] in seen:
            name, seen = next(filters), set()
        seen.add(sample["doc_id"])
        named.append({**sample, "filter": name})
    return named


def _format_sample(sample: Mapping[str, Any], has_images: bool) -> dict[str, Any]:
    entry = {key: encode_value(sample[key]) for key in _SAMPLE_KEYS if key in sample}
    if has_images:  # the hash of a document with images differs between processes
        entry["doc_hash"] = None
    metrics = sample.get("metrics")
    if metrics is None:  # lm_eval before 0.4.8
        metrics = [key for key in sample if key not in _OLD_SAMPLE_KEYS]
    entry["metrics"] = {metric: encode_value(sample[metric]) for metric in metrics if metric in sample}
    return entry


def _task_name(task: Any, default: str) -> str:
    config = getattr(task, "_config", None)
    name = getattr(config, "task", None) if config is not None else None
    if name is None and isinstance(config, dict):
        name = config.get("task")
    return str(name or default)


def _read_source(job: RecordingJob) -> dict[str, Any] | None:
    """Read documents and responses of the wanted tasks from another corpus."""
    if not job.documents:
        return None
    source: dict[str, Any] = {}
    for record in read_records(Path(job.documents), "tasks-*.jsonl*"):
        if not job.groups and not any(fnmatchcase(record["task"], pattern) for pattern in job.tasks):
            continue  # groups may contain any task
        if record.get("splits") is not None:
            source[record["task"]] = {"splits": record["splits"], "responses": dict(record["responses"])}
        else:
            source[record["task"]]["responses"] |= record["responses"]
    return source


def _use_local_metrics(folder: Path) -> None:
    """Load metrics of the `evaluate` package from local copies of their scripts: `FOLDER/NAME/NAME.py`."""
    import evaluate

    load = evaluate.load

    def load_local(path: str, *arguments: Any, **keywords: Any) -> Any:
        local = folder / path
        return load(str(local) if local.is_dir() else path, *arguments, **keywords)

    evaluate.load = load_local


def _block_network() -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("a recording has no network access")

    connect = socket.socket.connect

    def connect_unix_only(sock: socket.socket, address: Any) -> Any:
        return connect(sock, address) if sock.family == socket.AF_UNIX else refuse()

    socket.socket.connect = connect_unix_only  # type: ignore[method-assign,assignment]
    socket.getaddrinfo = refuse
    socket.create_connection = refuse


def _report(text: str) -> None:
    sys.stderr.write(text.rstrip() + "\n")


def record_job(job: RecordingJob) -> None:
    """Record one share of a job and write its files."""
    os.environ |= {"DISABLE_MULTIPROC": "1", "TOKENIZERS_PARALLELISM": "false", "HF_ALLOW_CODE_EVAL": "1"}
    datasets.disable_progress_bars()
    recorder = LmEvalRecorder(job)
    names = match_names(job.tasks, recorder.list_tasks())
    records: list[dict[str, Any]] = []
    skipped: list[tuple[str, str, str]] = []
    for name in names[job.share :: job.shares]:
        random.seed(0)
        numpy.random.seed(1234)
        try:
            with limit_time(job.task_timeout_s):
                records += recorder.record_task(name)
        except (Exception, TaskTimeout, SystemExit) as error:  # noqa: BLE001 - code of any task runs here
            skipped.append((name, type(error).__name__, str(error)[:300]))
            _report(f"skipped {name}: {type(error).__name__}: {error}")
    folder = job.folder
    write_records(folder / f"tasks-{job.share:02}.jsonl.zst", records)
    if job.groups:
        leaves = {record["task"]: record for record in records if record["variant"] == "default"}
        write_records(folder / f"groups-{job.share:02}.jsonl.zst", _record_groups(recorder, leaves, skipped))
    with (folder / f"skipped-{job.share:02}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(skipped)


def _record_groups(
    recorder: LmEvalRecorder, leaves: Mapping[str, Any], skipped: list[tuple[str, str, str]]
) -> list[dict[str, Any]]:
    job = recorder.job
    groups = match_names(job.groups, sorted(recorder.manager.all_groups))
    records = []
    for name in groups[job.share :: job.shares]:
        try:
            with limit_time(job.task_timeout_s):
                records.append(recorder.record_group(name, leaves))
        except (Exception, TaskTimeout, SystemExit) as error:  # noqa: BLE001 - code of any task runs here
            skipped.append((f"group:{name}", type(error).__name__, str(error)[:300]))
            _report(f"skipped group:{name}: {type(error).__name__}: {error}")
    return records


if __name__ == "__main__":
    record_job(RecordingJob.from_json(sys.stdin.read()))
