"""Records of Every Eval Ever (schema 0.3.0): an aggregate file per task or group, and a file of instances per task.

The files have the places that its datastore requires: `data/<collection>/<developer>/<model>/<uuid>.json`. Fields have the
values that its converter gives to the files of lm-evaluation-harness; `docs/guides/interchange.md` lists the differences.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from assay.core.errors import UserError
from assay.core.records.codec import to_plain
from assay.core.records.verdicts import Estimate
from assay.store.runs.run import Run
from assay.viewer.exports.chat_messages import read_conversation
from assay.viewer.exports.every_eval_ever_metrics import build_metric_config
from assay.viewer.exports.lm_eval import build_results, find_model_name, iterate_samples
from assay.viewer.exports.rows import dump_json
from assay.viewer.results.notes import format_lock

__all__ = ["SCHEMA_VERSION", "build_instances", "build_record", "write_every_eval_ever"]

SCHEMA_VERSION = "0.3.0"

_LOCAL_DEVELOPER = "local"
"""The developer of a model whose name has no organisation; the datastore requires one."""

_PLATFORMS = {
    "openai-completions": "openai",
    "openai-chat-completions": "openai",
    "anthropic": "anthropic",
    "anthropic-chat": "anthropic",
    "together": "together",
}
_ENGINES = {"hf": "transformers", "vllm": "vllm", "gguf": "llama.cpp", "llamacpp": "llama.cpp"}
_BOOTSTRAPPED = frozenset("bleu chrf f1_score matthews_corrcoef median nanmean perplexity ter".split())
"""Aggregations whose standard error lm-eval bootstraps."""

_MAX_RESAMPLES = dict.fromkeys(("bleu", "chrf", "ter"), 100)
_GENERATION_KEYS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_gen_toks": "max_tokens",
}
_UNSAFE_IN_PATH = re.compile(r'[<>:"\\|?*\x00-\x1f]')
_MODEL_DETAILS = {
    "num_parameters": "model_num_parameters",
    "dtype": "model_dtype",
    "revision": "model_revision",
    "sha": "model_sha",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the files of one task or group go, below `data/`."""

    collection: str
    developer: str
    model: str
    uuid: str

    @property
    def folder(self) -> str:
        return f"data/{self.collection}/{self.developer}/{self.model}"


def write_every_eval_ever(run: Run, tasks: Sequence[str], folder: Path) -> list[Path]:
    """Write the records of some tasks, and of all groups that have a score; return the files.

    Raises:
        UserError: No task has a score.
    """
    results, written = build_results(run), []
    groups = [name for name in run.groups if set(_find_tasks(run, name)) <= set(tasks)]
    created = time.time()
    for name in (*tasks, *groups):
        record = build_record(run, name, results, created=created)
        if not record["evaluation_results"]:
            continue
        place = _find_place(run, name, record)
        target = folder / place.folder
        target.mkdir(parents=True, exist_ok=True)
        if name in run.tasks:
            samples = target / f"{place.uuid}_samples.jsonl"
            rows = _write_instances(run, name, record, samples)
            if rows:
                record["detailed_evaluation_results"] = {
                    "format": "jsonl",
                    "file_path": f"{place.folder}/{samples.name}",
                    "hash_algorithm": "sha256",
                    "checksum": hashlib.sha256(samples.read_bytes()).hexdigest(),
                    "total_rows": rows,
                }
                written.append(samples)
            else:
                samples.unlink()
        file = target / f"{place.uuid}.json"
        file.write_text(json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")
        written.append(file)
    if not written:
        raise UserError(
            "no task has a score that a record can contain", hint="`assay table` shows the scores"
        )
    return written


def _find_tasks(run: Run, group: str) -> Iterator[str]:
    """Yield the tasks of a group, those of its groups included."""
    for member in run.groups[group]["members"]:
        if member in run.groups:
            yield from _find_tasks(run, member)
        else:
            yield member


def build_record(
    run: Run, name: str, results: Mapping[str, Any] | None = None, *, created: float | None = None
) -> dict[str, Any]:
    """Return the aggregate record of a task or group; `results`: those of `build_results`, if known."""
    known = build_results(run) if results is None else results
    found = list(_build_evaluation_results(run, name, known))
    moment = str(time.time() if created is None else created)
    model = _build_model_info(run, known)
    unknown = sum(
        one["metric_config"].get("additional_details", {}).get("bounds_status") == "unknown" for one in found
    )
    started = _format_time(run)
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"{name}/{model['id']}/{moment}",
        **({"evaluation_timestamp": started} if started else {}),
        "retrieved_timestamp": moment,
        "source_metadata": {
            "source_name": "Assay",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "third_party",
            **({"additional_details": {"metrics_with_unknown_bounds": str(unknown)}} if unknown else {}),
        },
        "eval_library": {
            "name": "assay",
            "version": str(run.facts.get("assay_version") or "unknown"),
            "additional_details": _build_library_details(run, name),
        },
        "model_info": model,
        "evaluation_results": found,
    }


def _build_library_details(run: Run, name: str) -> dict[str, str]:
    facts = run.tasks.get(name) or run.groups.get(name) or {}
    found = {
        "run_id": run.facts.get("run_id") or run.id,
        "task_version": facts.get("version"),
        "n_shot": facts.get("n_shot"),
        "lockfile": format_lock(run.facts.get("lock")) or None,
    }
    return {key: str(value) for key, value in found.items() if value is not None}


def _format_time(run: Run) -> str:
    started = run.facts.get("started")
    return str(int(started)) if isinstance(started, (int, float)) else ""


def _build_model_info(run: Run, results: Mapping[str, Any]) -> dict[str, Any]:
    config = results["config"]
    arguments = config.get("model_args") or {}
    name = str(arguments.get("pretrained") or find_model_name(run))
    identity, developer = _find_identity(name)
    kind = str(config.get("model") or "")
    engine, platform = _ENGINES.get(kind), _PLATFORMS.get(kind)
    deployment = "self_deployed" if engine else "externally_managed" if platform else "unknown"
    details = {key: str(config[source]) for key, source in _MODEL_DETAILS.items() if config.get(source)}
    return {
        "name": name,
        "id": identity,
        "developer": developer,
        **({"inference_platform": platform} if platform else {}),
        **({"inference_engine": {"name": engine}} if engine else {}),
        "additional_details": {
            **details,
            **({"model_args": str(arguments)} if arguments else {}),
            "deployment_type": deployment,
            "model_availability": "unknown",
        },
    }


def _find_identity(name: str) -> tuple[str, str]:
    """Return the id and the developer of a model; a path or a name without an organisation belongs to `local`."""
    parts = name.strip().split("/")
    if len(parts) > 1 and all(part not in ("", ".", "..", "~") for part in parts):
        return name.strip(), parts[0]
    last = next((part for part in reversed(parts) if part not in ("", ".", "..", "~")), "model")
    return f"{_LOCAL_DEVELOPER}/{last}", _LOCAL_DEVELOPER


def _find_place(run: Run, name: str, record: Mapping[str, Any]) -> _Place:
    developer, _, model = record["model_info"]["id"].partition("/")
    collection = record["evaluation_results"][0]["source_data"]["dataset_name"]
    seed = hashlib.sha256(f"{run.folder.resolve()}\0{name}".encode()).digest()
    return _Place(
        collection=_to_path_part(collection),
        developer=_to_path_part(developer),
        model=_to_path_part(model),
        uuid=str(uuid.UUID(bytes=seed[:16], version=4)),  # the same file when a run is exported again
    )


def _to_path_part(text: str) -> str:
    """Return a text as one part of a path that every file system allows."""
    found = _UNSAFE_IN_PATH.sub("_", text.replace("/", "_")).rstrip(". ")
    return found if found not in ("", "data") else f"_{found}"


def _build_evaluation_results(run: Run, name: str, results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    config = results["configs"].get(name, {})
    source, generation = _build_source_data(config, name), _build_generation_config(config)
    aggregations = {
        entry["metric"]: entry["aggregation"]
        for entry in config.get("metric_list") or ()
        if isinstance(entry, dict) and isinstance(entry.get("aggregation"), str) and "metric" in entry
    }
    started = _format_time(run)
    for estimate in run.estimates:
        value = estimate.value
        if estimate.task != name or not isinstance(value, (int, float)) or not math.isfinite(value):
            continue
        pipeline = estimate.pipeline
        yield {
            "evaluation_result_id": _build_result_id(estimate.metric, pipeline),
            "evaluation_name": _build_evaluation_name(name, pipeline),
            "source_data": source,
            **({"evaluation_timestamp": started} if started else {}),
            "metric_config": build_metric_config(
                estimate.metric, pipeline, higher_is_better=estimate.higher_is_better
            ),
            "score_details": {
                "score": value,
                "uncertainty": _build_uncertainty(
                    estimate, aggregations.get(estimate.metric), results["config"].get("bootstrap_iters")
                ),
            },
            **({"generation_config": generation} if generation else {}),
        }


def _build_result_id(metric: str, pipeline: str) -> str:
    return metric if pipeline in ("", "none") else f"{metric}:{pipeline}"


def _build_evaluation_name(task: str, pipeline: str) -> str:
    return task if pipeline in ("", "none") else f"{task}/{pipeline}"


def _build_source_data(config: Mapping[str, Any], task: str) -> dict[str, Any]:
    path, name = str(config.get("dataset_path") or ""), str(config.get("task") or task)
    if "/" not in path or path.startswith("/"):
        return {"dataset_name": name, "source_type": "other"}
    split = config.get("test_split") or config.get("validation_split")
    return {
        "dataset_name": name,
        "source_type": "hf_dataset",
        "hf_repo": path,
        **({"hf_split": split} if split else {}),
    }


def _build_generation_config(config: Mapping[str, Any]) -> dict[str, Any]:
    settings = config.get("generation_kwargs") or {}
    if not settings:
        return {}
    arguments = {
        key: settings[source] for source, key in _GENERATION_KEYS.items() if settings.get(source) is not None
    }
    details = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in settings.items()
        if key not in _GENERATION_KEYS
    }
    if config.get("num_fewshot") is not None:
        details["num_fewshot"] = str(config["num_fewshot"])
    return {"generation_args": arguments, **({"additional_details": details} if details else {})}


def _build_uncertainty(estimate: Estimate, aggregation: str | None, resamples: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if estimate.stderr is not None and math.isfinite(estimate.stderr):
        bootstrapped = aggregation in _BOOTSTRAPPED or estimate.method == "bootstrap"
        method = (
            "bootstrap"
            if bootstrapped
            else "analytic"
            if estimate.method in ("", "mean")
            else estimate.method
        )
        found["standard_error"] = {"value": estimate.stderr, "method": method}
        if bootstrapped and isinstance(resamples, int):
            found["num_bootstrap_samples"] = min(resamples, _MAX_RESAMPLES.get(estimate.metric, resamples))
    if estimate.interval is not None and all(math.isfinite(end) for end in estimate.interval):
        low, high = estimate.interval
        found["confidence_interval"] = {
            "lower": low,
            "upper": high,
            "confidence_level": 0.95,
            **({"method": estimate.interval_method} if estimate.interval_method else {}),
        }
    if estimate.scored:
        found["num_samples"] = estimate.scored
    return found


def _write_instances(run: Run, task: str, record: Mapping[str, Any], path: Path) -> int:
    """Write the instances of a task and return their number."""
    rows = 0
    with path.open("w", encoding="utf-8") as file:
        for row in build_instances(run, task, record):
            file.write(dump_json(row) + "\n")
            rows += 1
    return rows


def build_instances(run: Run, task: str, record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the instances of a task: one per document, filter and numeric score; one per document without a score."""
    samples = groupby(iterate_samples(run, task, by_document=True), key=lambda row: row["doc_id"])
    pending = next(samples, None)
    head = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": record["evaluation_id"],
        "model_id": record["model_info"]["id"],
    }
    for document in run.records(task):
        rows: list[dict[str, Any]] = []
        if pending is not None and pending[0] == document["document"]:
            rows = [json.loads(dump_json(row)) for row in pending[1]]
            pending = next(samples, None)
        if not rows and document["outcome"] == "open":
            continue  # the run has not finished
        shared = _build_shared_fields(document)
        for row in rows or [_build_unscored_row(document)]:
            yield from _build_rows(task, head, row, shared)


def _build_unscored_row(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a document that has no line in the samples file of lm-eval."""
    prompt = document["requests"][0]["prompt"] if document["requests"] else ""
    return {
        "doc_id": document["document"],
        "target": str(document["target"]),
        "arguments": {"gen_args_0": {"arg_0": prompt}},
        "filtered_resps": [],
        "filter": "none",
        "metrics": [],
    }


def _build_shared_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Assay knows about a document beside the fields of lm-eval: usage, error, conversation, its row."""
    requests = document["requests"]
    usage = None
    if any("input_tokens" in request for request in requests):
        read, written, cached, reasoning = (
            sum(request.get(key) or 0 for request in requests)
            for key in ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
        )
        usage = {
            "input_tokens": read,
            "output_tokens": written,
            "total_tokens": read + written,
            **({"input_tokens_cache_read": cached} if cached else {}),
            **({"reasoning_tokens": reasoning} if reasoning else {}),
        }
    return {
        "error": (document["why"] or document["outcome"]) if document["outcome"] != "scored" else None,
        "token_usage": usage,
        "reasoning": [request["reasoning"] for request in requests if request.get("reasoning")] or None,
        "messages": _build_messages(requests),
        "metadata": {
            "document": to_plain(document["fields"]),
            "outcome": document["outcome"],
            "responses": [to_plain(_read_response(request)) for request in requests],
        },
    }


def _read_response(request: Mapping[str, Any]) -> Any:
    return [request["logprob"], request["greedy"]] if "logprob" in request else request["response"]


def _build_messages(requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """Return the conversation of a dialogue or an agent; None if there is one turn without tools."""
    first = [request for request in requests if request["kind"] == "generate" and not request.get("repeat")]
    if not first or (len(first) == 1 and "tool_calls" not in first[0]):
        return None
    messages: list[dict[str, Any]] = []
    for message in read_conversation(first[-1]):
        calls = [
            {"id": call["id"], "name": call["name"], "arguments": call["arguments"]} for call in message.calls
        ]
        messages.append(
            {
                "turn_idx": len(messages),
                "role": message.role,
                "content": message.text or None,
                "reasoning_trace": message.reasoning or None,
                "tool_calls": calls or None,
                "tool_call_id": [message.call_id] if message.call_id else None,
            }
        )
    return messages


def _build_rows(
    task: str, head: Mapping[str, Any], row: Mapping[str, Any], shared: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    pipeline, target = str(row.get("filter") or "none"), str(row.get("target", ""))
    arguments = row.get("arguments") or {}
    prompt = str((arguments.get("gen_args_0") or {}).get("arg_0", ""))
    choices = _find_choices(arguments)
    output = _find_output(row, choices)
    scores: list[tuple[str | None, float]] = [
        (metric, float(row[metric])) for metric in row["metrics"] if isinstance(row.get(metric), (int, float))
    ]
    hashed = json.dumps({"raw": prompt, "reference": target}, sort_keys=True)
    messages = shared["messages"]
    agentic = messages is not None and any(one["tool_calls"] for one in messages)
    for metric, score in scores or [(None, 0.0)]:
        yield {
            **head,
            "evaluation_name": _build_evaluation_name(task, pipeline),
            "evaluation_result_id": None if metric is None else _build_result_id(metric, pipeline),
            "sample_id": str(row["doc_id"]),
            "sample_hash": hashlib.sha256(hashed.encode("utf-8", "surrogatepass")).hexdigest(),
            "interaction_type": "single_turn" if messages is None else "agentic" if agentic else "multi_turn",
            "input": {"raw": prompt, "formatted": None, "reference": [target], "choices": choices},
            "output": None
            if messages is not None
            else {"raw": [output], "reasoning_trace": shared["reasoning"]},
            "messages": messages,
            "answer_attribution": [
                {
                    "turn_idx": 0 if messages is None else len(messages) - 1,
                    "source": "output.raw" if messages is None else f"messages[{len(messages) - 1}].content",
                    "extracted_value": output,
                    "extraction_method": pipeline,
                    "is_terminal": True,
                }
            ],
            "evaluation": {
                "score": score,
                "is_correct": score == 1.0,
                "num_turns": None if messages is None else max(1, _count_turns(messages)),
                "tool_calls_count": None if messages is None else _count_calls(messages),
            },
            "token_usage": shared["token_usage"],
            "performance": None,
            "error": shared["error"],
            "metadata": {
                **{key: str(row.get(key, "")) for key in ("doc_hash", "prompt_hash", "target_hash")},
                "filter": pipeline,
                "lm_eval_metrics": json.dumps(
                    {name: row.get(name) for name in row["metrics"] if name in row}
                ),
                "assay": shared["metadata"],
            },
        }


def _count_turns(messages: Sequence[Mapping[str, Any]]) -> int:
    return sum(message["role"] == "assistant" for message in messages)


def _count_calls(messages: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(message["tool_calls"] or ()) for message in messages)


def _find_choices(arguments: Mapping[str, Any]) -> list[str] | None:
    """Return the continuations of a multiple-choice document; None for other documents."""
    if len(arguments) < 2:
        return None
    return [str(one["arg_1"]).strip() for one in arguments.values() if "arg_1" in one] or None


def _find_output(row: Mapping[str, Any], choices: Sequence[str] | None) -> str:
    """Return the most likely choice, or the first answer after the filters."""
    answers = row.get("filtered_resps") or row.get("resps") or []
    if not answers:
        return ""
    if len(row["arguments"]) < 2:
        first = answers[0]
        return str(first[0] if first else "") if isinstance(first, list) else str(first)
    try:
        numbers = [_read_log_probability(answer) for answer in answers]
    except (ValueError, TypeError, IndexError):
        return str(row.get("filtered_resps"))
    best = numbers.index(max(numbers))
    return choices[best] if choices and best < len(choices) else str(best)


def _read_log_probability(answer: Any) -> float:
    if not isinstance(answer, list) or not answer:
        return -math.inf
    pair = answer[0] if isinstance(answer[0], list) else answer
    return float(pair[0])
