"""Record a corpus with lmms_eval: runs inside an environment where lmms_eval is installed.

The recorder replaces the loading of datasets, the model and the network; see `RecordingEnvironment`. Everything else
is the harness's own code, called through `evaluator.evaluate`.
"""

from __future__ import annotations

import argparse
import ast
import base64
import csv
import hashlib
import inspect
import io
import json
import random
import shutil
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

from tools.oracle.corpus import read_records, write_records
from tools.oracle.lmms_eval_environment import RecordingEnvironment
from tools.oracle.lmms_eval_values import Media, encode_value, expand_folders
from tools.oracle.recording.documents import DocumentsNotFound, WrittenDocuments, load_local_splits
from tools.oracle.recording.job import RecordingJob, TaskTimeout, limit_time, match_names
from tools.oracle.recording.responses import cut_at_stops, draw_loglikelihood, draw_texts
from tools.oracle.recording.synthesis import Synthesizer, find_sources

_MODELS = ("default", "qwen2_5_vl", "qwen3_vl")
_REASONING_TAGS = '[["<think>","</think>"],["<analysis>","</analysis>"]]'
_BOOTSTRAP_ITERATIONS = 1000
_SAMPLE_KEYS = {
    "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "token_counts", "doc_hash", "input_media",
    "prompt_hash", "target_hash",
}  # fmt: skip
_MAX_ALTERNATIVE_DOCUMENTS = 3
_MAX_REPAIRS = 40
_MAX_AGGREGATION_FAILURES = 8
_SUFFIX_KINDS = {
    **dict.fromkeys((".mp4", ".avi", ".mkv", ".webm"), "video"),
    **dict.fromkeys((".wav", ".mp3", ".flac", ".ogg"), "audio"),
    **dict.fromkeys((".png", ".jpg", ".jpeg"), "image"),
}
_MATH_PACKAGES = {"math_verify", "latex2sympy2", "latex2sympy2_extended"}


class MediaTable:
    """Collects the images and audio of documents."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def encode(self, value: Any) -> Any:
        """Encode a document and add its media to the table."""
        if isinstance(value, Mapping) and not ("array" in value and "sampling_rate" in value):
            return {str(key): self.encode(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.encode(item) for item in value]
        encoded = encode_value(value)
        if isinstance(encoded, dict) and "__media__" in encoded:
            self.rows.setdefault(encoded["sha256"], _describe_medium(value, encoded))
        return encoded


def _describe_medium(value: Any, encoded: Mapping[str, Any]) -> dict[str, Any]:
    row = {"sha256": encoded["sha256"], "kind": encoded["__media__"]}
    if encoded["__media__"] == "image":
        stream = io.BytesIO()
        value.save(stream, "PNG")
        png = base64.b64encode(stream.getvalue()).decode()
        return {**row, "mode": encoded["mode"], "size": encoded["size"], "png_b64": png}
    import numpy

    samples = numpy.asarray(value["array"], dtype="<f4")
    return {**row, "n": encoded["n"], "f32_b64": base64.b64encode(samples.tobytes()).decode()}


class DocumentSource:
    """Documents of a task with what belongs to them: features, splits, files, known responses."""

    def __init__(self, job: RecordingJob) -> None:
        self.job = job
        self.media = MediaTable()
        self._corpus = Path(job.documents) if job.documents else None
        self._written = WrittenDocuments(Path(job.written)) if job.written else None
        self.synthesizer = Synthesizer(documents=5)
        self._records: dict[str, dict[str, Any]] = {}
        if self._corpus is not None:
            self._corpus_media = Media(self._corpus)
            self._records = {
                record["task"]: record for record in read_records(self._corpus, "records-*.jsonl*")
            }
            self._media_rows = {row["sha256"]: row for row in read_records(self._corpus, "media.jsonl*")}

    @property
    def files_folder(self) -> Path:
        return self._written.media if self._written is not None else (self._corpus or Path()) / "media"

    def find_record(self, task: str) -> Mapping[str, Any]:
        """Return what is known about a task: the record of another corpus, written files and responses, or nothing.

        Raises:
            DocumentsNotFound: A corpus or written documents are given, and lack the task.
        """
        if self._written is not None:
            entry = self._written.find(task)
            return {key: entry[key] for key in ("files", "flags", "responses") if key in entry}
        if self._corpus is None:
            return {}
        if task not in self._records:
            raise DocumentsNotFound(f"the corpus has no documents of `{task}`")
        return self._records[task]

    def load(self, name: str, config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the dataset of a task and the fields of its record that describe it."""
        import datasets

        record = self.find_record(name)
        if self._corpus is not None:
            features = datasets.Features.from_dict(record["features_hf"])
            rows = self._corpus_media.decode(record["docs"])
            for sha in _find_hashes(record["docs"]):
                self.media.rows.setdefault(sha, self._media_rows[sha])
            keys = ("features_hf", "docs", "splits", "files")
            split_names = list(record["splits"])
            fields = {key: record[key] for key in keys}
        else:
            rows, features, split_names = self._load_new(name, config)
            fields = {
                "features_hf": features.to_dict(),
                "docs": [self.media.encode(row) for row in rows],
                "splits": dict.fromkeys(split_names, "=docs"),
                "files": record.get("files", {}),
            }
        columns = {column: [row.get(column) for row in rows] for column in features}
        dataset = datasets.Dataset.from_dict(columns, features=features)
        return datasets.DatasetDict(dict.fromkeys(split_names, dataset)), fields

    def _load_new(self, name: str, config: Mapping[str, Any]) -> tuple[list[Any], Any, list[str]]:
        split_names = [
            str(config[key])
            for key in ("training_split", "validation_split", "test_split", "fewshot_split")
            if config.get(key)
        ]
        if self.job.data_root:
            path, subset = str(config.get("dataset_path")), config.get("dataset_name")
            splits = load_local_splits(self.job.data_root, path, subset, self.job.limit)
            split = next((one for one in reversed(split_names) if one in splits), next(iter(splits)))
            return list(splits[split]), splits[split].features, split_names
        import datasets

        if self._written is None:
            folder = Path(str(config["yaml_path"])).parent
            rows = self.synthesizer.build_rows(name, find_sources(config, folder))
            return rows, datasets.Dataset.from_list(rows).features, split_names
        entry = self._written.find(name)
        rows = [_expand_texts(self._written.read_value(document)) for document in entry["docs"]]
        features = datasets.Dataset.from_list(rows).features
        features.update(datasets.Features.from_dict(entry.get("features", {})))
        return rows, features, split_names


def _expand_texts(value: Any) -> Any:
    if isinstance(value, str):
        return expand_folders(value)
    if isinstance(value, list):
        return [_expand_texts(item) for item in value]
    return {key: _expand_texts(item) for key, item in value.items()} if isinstance(value, dict) else value


def _find_hashes(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "__media__" in value:
            yield value["sha256"]
        else:
            for item in value.values():
                yield from _find_hashes(item)
    elif isinstance(value, list):
        for item in value:
            yield from _find_hashes(item)


class LmmsEvalRecorder:
    """Records the tasks of one job."""

    def __init__(self, job: RecordingJob) -> None:
        self.job = job
        self.environment = RecordingEnvironment()
        self.environment.work.mkdir(parents=True, exist_ok=True)
        self.source = DocumentSource(job)
        import lmms_eval
        from lmms_eval import evaluator
        from lmms_eval.api import metrics
        from lmms_eval.api.task import ConfigurableTask
        from lmms_eval.tasks import TaskManager, get_task_dict

        self._evaluator, self._get_task_dict = evaluator, get_task_dict
        self.package = Path(job.include_path or Path(lmms_eval.__file__).parent / "tasks").resolve().parent
        options = {"include_path": job.include_path, "include_defaults": False} if job.include_path else {}
        self.managers = {model: TaskManager(model_name=model, **options) for model in _MODELS}
        _patch_harness(evaluator, metrics, ConfigurableTask)
        self._model_class = _define_model()
        self._score_error: Exception | None = None
        self._dataset: Any = None

    @property
    def manager(self) -> Any:
        return self.managers["default"]

    def record_task(self, name: str) -> dict[str, Any]:
        """Record one task. Synthesized documents are repaired after errors."""
        if self.job.documents or self.job.data_root or self.job.written:
            return self._record_once(name)
        for _ in range(_MAX_REPAIRS):
            try:
                record = self._record_once(name)
                if "score_error" not in record["flags"] or not self._repair_scores(name):
                    return record
            except Exception as error:
                if not self.source.synthesizer.repair(name, error):
                    raise
        return self._record_once(name)

    def _repair_scores(self, name: str) -> bool:
        return self._score_error is not None and self.source.synthesizer.repair(name, self._score_error)

    def _record_once(self, name: str) -> dict[str, Any]:
        known = self.source.find_record(name)
        with self.environment.prepare(known, self.source.files_folder, None):
            config = self._read_config(name)
            self._dataset, fields = self.source.load(name, config)
            return self._record(name, known, fields)

    def _read_config(self, name: str) -> Mapping[str, Any]:
        from lmms_eval import utils

        path = self.manager.task_index[name]["yaml_path"]
        config = utils.load_yaml_config(path, mode="simple")
        return {**(config if isinstance(config, Mapping) else {}), "yaml_path": path}

    def _record(self, name: str, known: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
        task = self._load(name, "default")
        yaml_path = Path(self.manager.task_index[name]["yaml_path"]).resolve()
        record: dict[str, Any] = {
            "task": name,
            "skipped_metrics": {},
            "yaml_relpath": str(yaml_path.relative_to(self.package)),
            "type": self.manager.task_index[name]["type"],
            "flags": {},
            "output_type": str(task.OUTPUT_TYPE),
            **fields,
            "eval_split": task.config.test_split or task.config.validation_split,
            "n_eval_docs": len(task.eval_docs),
        }
        record |= self._describe_documents(name, task)
        record |= self._describe_models(name)
        model, results = self._evaluate(name, known, record)
        record["requests"] = model.requests
        record["responses"] = model.responses
        record["modality"] = _describe_modality(model.requests)
        if results is not None:
            record |= self._format_results(name, results, model.task, record["skipped_metrics"])
            record["alt_samples"] = self._score_alternatives(known, model.task)
        if self.environment.network_attempted:
            record["flags"]["network_attempted"] = True
        record["deps"], record["helpers"] = self._list_dependencies(task)
        if _MATH_PACKAGES & set(record["deps"]) and _read_version("antlr4-python3-runtime").startswith(
            "4.11"
        ):
            record["flags"]["env_variant"] = "antlr411"
        return record

    def _load(self, name: str, model: str, kind: str = "simple") -> Any:
        self.environment.datasets = self._dataset.copy()  # `process_docs` replaces its splits
        kinds = [kind] if len(inspect.signature(self._get_task_dict).parameters) > 2 else []
        task = self._get_task_dict([name], self.managers[model], *kinds)[name]
        if task.config.num_fewshot is None:
            task.set_config(key="num_fewshot", value=0)
        task.set_fewshot_seed(seed=1234)
        return task

    # --- texts -------------------------------------------------------------------------------------

    def _describe_documents(self, name: str, task: Any) -> dict[str, Any]:
        documents = list(task.eval_docs)
        has_choices = task.config.doc_to_choice is not None
        _seed_generators()
        described: dict[str, Any] = {
            "per_doc": [
                {
                    "doc_id": index,
                    "text": encode_value(task.doc_to_text(document)),
                    "target": encode_value(task.doc_to_target(document)),
                    "choices": encode_value(task.doc_to_choice(document)) if has_choices else None,
                }
                for index, document in enumerate(documents)
            ]
        }
        if task.OUTPUT_TYPE.startswith("generate_until"):
            described |= self._describe_messages(name)
        return described

    def _describe_messages(self, name: str) -> dict[str, Any]:
        try:
            task = self._load(name, "default", "chat")
            _seed_generators()
            messages = [
                {"doc_id": index, "messages": encode_value(task.doc_to_messages(document))}
                for index, document in enumerate(task.eval_docs)
            ]
        except Exception as error:  # noqa: BLE001 - task code
            return {"flags": {"messages_error": f"{type(error).__name__}: {error}"[:300]}}
        own = callable(task.config.doc_to_messages)
        return {"messages": messages, "messages_kind": "doc_to_messages" if own else "auto"}

    def _describe_models(self, name: str) -> dict[str, Any]:
        tasks = {model: self._load(name, model) for model in _MODELS}
        keywords = {model: encode_value(task.lmms_eval_specific_kwargs) for model, task in tasks.items()}
        settings = {model: encode_value(task.config.generation_kwargs) for model, task in tasks.items()}
        texts: dict[str, Any] = {}
        for model, task in tasks.items():
            if keywords[model] == keywords["default"]:
                continue
            _seed_generators()
            try:
                texts[model] = [encode_value(task.doc_to_text(document)) for document in task.eval_docs]
            except Exception as error:  # noqa: BLE001 - task code
                texts[model] = {"__error__": f"{type(error).__name__}: {error}"[:300]}
        return {"specific_kwargs": keywords, "generation_kwargs": settings, "per_model_text": texts}

    # --- scores ------------------------------------------------------------------------------------

    def _evaluate(self, name: str, known: Mapping[str, Any], record: dict[str, Any]) -> tuple[Any, Any]:
        """Evaluate a task; a metric whose aggregation fails is replaced, and the evaluation repeated."""
        flags, skipped = record["flags"], record["skipped_metrics"]
        skipped |= known.get("skipped_metrics") or {}
        with_media = bool((known.get("flags") or {}).get("process_with_media"))
        if with_media:
            flags["process_with_media"] = True
        for _ in range(_MAX_AGGREGATION_FAILURES):
            _seed_generators()
            task = self._load(name, "default")
            for metric in skipped:
                task._aggregation_list[metric] = lambda *_, **__: 0.0
            model = self._model_class(task, known.get("responses") or {})
            try:
                return model, self._run_evaluator(name, task, model, with_media)
            except TaskTimeout as error:  # scoring that calls a judge until it answers: keep the requests
                if not model.requests:
                    raise
                flags["score_error"] = f"{type(error).__name__}: {error}"
                return model, None
            except Exception as error:
                if not model.requests:
                    raise
                metric = _find_failed_metric(error.__traceback__)
                if not metric or metric in skipped:
                    flags["score_error"] = f"{type(error).__name__}: {error}"[:300]
                    self._score_error = error
                    return model, None
                skipped[metric] = f"{type(error).__name__}: {error}"[:300]
        flags["score_error"] = "too many aggregations fail"
        return model, None

    def _run_evaluator(self, name: str, task: Any, model: Any, with_media: bool) -> Any:
        arguments = argparse.Namespace(
            output_path=str(self.environment.work / "out"),
            process_with_media=with_media,
            reasoning_tags=_REASONING_TAGS,
            model="default",
            model_args="",
        )
        options = {
            "bootstrap_iters": _BOOTSTRAP_ITERATIONS,
            "log_samples": True,
            "cli_args": arguments,
            "process_docs_parallel": 1,
        }
        accepted = inspect.signature(self._evaluator.evaluate).parameters
        return self._evaluator.evaluate(
            model, {name: task}, **{key: value for key, value in options.items() if key in accepted}
        )

    def _format_results(
        self, name: str, results: Mapping[str, Any], task: Any, skipped: Mapping[str, str]
    ) -> dict[str, Any]:
        samples = results["samples"][name]
        filters = list(task.instances[0].filtered_resps)
        per_filter = max(1, len(samples) // len(filters))
        return {
            "samples": [
                {
                    "doc_id": sample["doc_id"],
                    "filtered_resps": encode_value(sample["filtered_resps"]),
                    "metrics": encode_value(
                        {key: value for key, value in sample.items() if key not in _SAMPLE_KEYS}
                    ),
                    "filter": filters[min(index // per_filter, len(filters) - 1)],
                }
                for index, sample in enumerate(samples)
            ],
            "results": {
                key: encode_value(value)
                for key, value in results["results"][name].items()
                if key != "samples" and not any(_belongs_to_metric(key, metric) for metric in skipped)
            },
            "higher_is_better": encode_value(results["higher_is_better"][name]),
            "n_samples": encode_value(results["n-samples"][name]),
        }

    def _score_alternatives(self, known: Mapping[str, Any], task: Any) -> list[dict[str, Any]]:
        """Score further responses to the first documents."""
        if task.OUTPUT_TYPE not in ("generate_until", "generate_visual_cot"):
            return []
        with_media = bool((known.get("flags") or {}).get("process_with_media"))
        has_media = with_media or not hasattr(task, "eval_docs_no_media")  # lmms_eval 0.3.0 has only one
        documents = task.eval_docs if has_media else task.eval_docs_no_media
        pairs = [(row["doc_id"], row["response"]) for row in known.get("alt_samples") or ()]
        if not self.job.documents:
            for index in range(min(len(documents), _MAX_ALTERNATIVE_DOCUMENTS)):
                gold = task.doc_to_target(documents[index])
                pairs += [(index, str(gold)), (index, f"The answer is {gold}."), (index, "I do not know.")]
        rows = []
        for index, response in pairs:
            _seed_generators()
            row = {"doc_id": index, "response": response}
            try:
                row["metrics"] = encode_value(task.process_results(documents[index], [response]))
            except Exception as error:  # noqa: BLE001 - task code
                row["error"] = f"{type(error).__name__}: {error}"[:300]
            rows.append(row)
        return rows

    def _list_dependencies(self, task: Any) -> tuple[list[str], list[str]]:
        """Return third-party imports of the helper files, and the files."""
        values = [*vars(task.config).values(), *(task._aggregation_list or {}).values()]
        functions = [getattr(value, "func", value) for value in values if callable(value)]
        files = {
            Path(function.__code__.co_filename) for function in functions if hasattr(function, "__code__")
        }
        helpers = sorted(path for path in files if self.package in path.resolve().parents)
        packages: set[str] = set()
        for path in helpers:
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    packages |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    packages.add(str(node.module).partition(".")[0])
        packages -= {*sys.stdlib_module_names, "lmms_eval"}
        return sorted(packages), [str(path.resolve().relative_to(self.package)) for path in helpers]

    def describe_groups(self) -> dict[str, Any]:
        """Return the structure of every group and tag."""
        from lmms_eval import utils

        groups, tags = {}, {}
        for name, entry in self.manager.task_index.items():
            if entry["type"] == "tag":
                tags[name] = list(entry["task"])
            elif entry["type"] == "group":
                path = Path(entry["yaml_path"]).resolve()
                config = utils.load_yaml_config(str(path), mode="simple")
                groups[name] = {
                    "yaml_relpath": str(path.relative_to(self.package)),
                    **{
                        key: _simplify(config[key])
                        for key in ("group_alias", "task", "aggregate_metric_list", "metadata")
                        if config.get(key) is not None
                    },
                }
        return {"groups": groups, "tags": tags}


def _simplify(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _simplify(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_simplify(item) for item in value]
    if getattr(value, "tag", "") == "!function":  # a YAML node
        return f"!function {value.value}"
    return value


def _belongs_to_metric(key: str, metric: str) -> bool:
    name = key.rpartition(",")[0]
    return name in (
        metric,
        *(f"{metric}_{suffix}" for suffix in ("stderr", "stderr_clt", "stderr_clustered")),
    )


def _describe_modality(requests: Sequence[Mapping[str, Any]]) -> str:
    kinds: set[str] = set()
    for request in requests:
        visuals = request.get("visuals")
        for visual in visuals if isinstance(visuals, list) else [visuals]:
            if isinstance(visual, dict) and "__media__" in visual:
                kinds.add(str(visual["__media__"]))
            elif isinstance(visual, str):
                kinds.add(_SUFFIX_KINDS.get(Path(visual).suffix.lower(), "path"))
    return "+".join(sorted(kinds)) or "text"


def _find_failed_metric(trace: TracebackType | None) -> str:
    """Return the metric whose aggregation raised, or an empty string."""
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "calculate_aggregate_metric":
            return str(trace.tb_frame.f_locals.get("metric", ""))
        trace = trace.tb_next
    return ""


def _read_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _seed_generators() -> None:
    import numpy
    import torch

    random.seed(0)
    numpy.random.seed(1234)
    torch.manual_seed(1234)


def _patch_harness(evaluator: Any, metrics: Any, task_class: Any) -> None:
    """Disable retries and pools; pass log probabilities on, which lmms_eval 0.7.3 turns into text."""
    for name in ("download", "process_results"):
        method = getattr(task_class, name)
        setattr(task_class, name, getattr(method, "__wrapped__", method))
    unwrap = getattr(evaluator, "unwrap_generation_output", None)
    if unwrap is not None:
        evaluator.unwrap_generation_output = lambda value: (
            (value, None) if isinstance(value, tuple) else unwrap(value)
        )
    import multiprocessing

    class SerialPool:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def imap(self, function: Any, items: Any) -> Any:
            return map(function, items)

        def close(self) -> None:
            pass

    real_bootstrap = metrics.bootstrap_stderr

    def bootstrap_serially(*arguments: Any, **keywords: Any) -> Any:
        pool = multiprocessing.Pool
        multiprocessing.Pool = SerialPool  # type: ignore[assignment]
        try:
            return real_bootstrap(*arguments, **keywords)
        finally:
            multiprocessing.Pool = pool

    metrics.bootstrap_stderr = bootstrap_serially


def _define_model() -> Any:
    """Define the scripted model: a subclass of the harness's model class, which is importable only here."""
    from lmms_eval.api.model import lmms

    class ScriptedModel(lmms):  # type: ignore[misc]
        """Answers from known responses or by a hash of the request, and records both."""

        def __init__(self, task: Any, known: Mapping[str, Sequence[Any]]) -> None:
            super().__init__()
            self.task = task
            self.task_dict = {task.config.task: task.dataset}
            self.requests: list[dict[str, Any]] = []
            self.responses: dict[str, list[Any]] = {}
            self._known = known
            self._repeats: dict[int, int] = {}

        def _record(
            self, request: Any, index: int, names: tuple[str, ...], **fields: Any
        ) -> tuple[str, str, int]:
            doc_id, split = request.args[index], request.args[index + 2]
            document = self.task.dataset[split][doc_id]
            metadata = request.metadata if isinstance(request.metadata, dict) else None
            self.requests.append(
                {
                    "doc_id": doc_id,
                    "idx": request.idx,
                    "request_type": request.request_type,
                    "layout": list(names),
                    "ctx": encode_value(request.args[0]),
                    **encode_value(fields),
                    "split": split,
                    "visuals": encode_value(request.args[2](document)),
                    "metadata": encode_value(metadata),
                }
            )
            number = len(self.responses.setdefault(str(doc_id), []))
            text = json.dumps([request.args[0], fields, number], default=str)
            return str(doc_id), hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), number

        def _choose(self, doc_id: str, number: int) -> Any:
            known = self._known.get(doc_id)
            return known[number % len(known)] if known else None

        def generate_until(self, requests: list[Any]) -> list[Any]:
            names = ("ctx", "generation_kwargs", "doc_to_visual", "doc_id", "task", "split")
            answers = []
            for request in requests:
                settings = request.args[1]
                doc_id, key, number = self._record(request, 3, names, generation_kwargs=settings)
                text = self._choose(doc_id, number)
                if text is None:
                    text = self._draw_text(key, request, settings)
                self.responses[doc_id].append(text)
                answers.append(text)
            return answers

        def _draw_text(self, key: str, request: Any, settings: Mapping[str, Any]) -> str:
            try:
                target = self.task.doc_to_target(self.task.dataset[request.args[5]][request.args[3]])
            except Exception:  # noqa: BLE001 - task code
                target = "A"
            golds = [str(one) for one in (target if isinstance(target, list) else [target])]
            stops = settings.get("until") or []
            (text,) = draw_texts(key, 1, golds, [stops] if isinstance(stops, str) else stops)
            thought = "<think>It could be A or B.</think> " if key[0] == "0" else ""
            return thought + cut_at_stops(text, [])

        generate_visual_cot = generate_until

        def loglikelihood(self, requests: list[Any]) -> list[Any]:
            names = ("ctx", "continuation", "doc_to_visual", "doc_id", "task", "split")
            answers = []
            for request in requests:
                continuation = request.args[1]
                if callable(continuation):  # `loglikelihood` tasks leave calling `doc_to_target` to the model
                    continuation = continuation(self.task.dataset[request.args[5]][request.args[3]])
                doc_id, key, number = self._record(request, 3, names, continuation=continuation)
                value = self._choose(doc_id, number)
                if value is None:
                    loss, is_greedy = draw_loglikelihood(key)
                    value = [-loss, is_greedy]
                self.responses[doc_id].append(list(value))
                answers.append(tuple(value))
            return answers

        def generate_until_multi_round(self, requests: list[Any]) -> list[Any]:
            raise NotImplementedError("multi-round tasks are not recorded")

    return ScriptedModel


def record_job(job: RecordingJob) -> None:
    """Record one share of a job and write its files."""
    folder = job.folder.resolve()
    recorder = LmmsEvalRecorder(job)
    names = match_names(job.tasks, sorted(recorder.manager.all_subtasks))
    records: list[dict[str, Any]] = []
    skipped: list[tuple[str, str, str]] = []
    try:
        for name in names[job.share :: job.shares]:
            try:
                with limit_time(job.task_timeout_s):
                    records.append(recorder.record_task(name))
            except (Exception, TaskTimeout, SystemExit) as error:  # noqa: BLE001 - code of any task runs here
                skipped.append((name, type(error).__name__, str(error)[:300]))
                sys.stderr.write(f"skipped {name}: {traceback.format_exc(limit=-3)}\n")
        groups = recorder.describe_groups() if job.share == 0 else None
    finally:
        recorder.environment.close()
    records.sort(key=lambda record: str(record["yaml_relpath"]))
    write_records(folder / f"records-{job.share:02}.jsonl.zst", records)
    write_records(folder / f"media-{job.share:02}.jsonl.zst", recorder.source.media.rows.values())
    if groups is not None:
        (folder / "groups.json").write_text(json.dumps(groups, indent=1) + "\n", "utf-8")
    _copy_files(records, recorder.source.files_folder, folder / "media")
    with (folder / f"skipped-{job.share:02}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(skipped)


def _copy_files(records: Sequence[Mapping[str, Any]], source: Path, target: Path) -> None:
    """Copy the media files that records refer to."""
    for record in records:
        for name in (record.get("files") or {}).values():
            if name != "<dir>" and not (target / name).exists():
                target.mkdir(exist_ok=True)
                shutil.copyfile(source / name, target / name)


if __name__ == "__main__":
    record_job(RecordingJob.from_json(sys.stdin.read()))
