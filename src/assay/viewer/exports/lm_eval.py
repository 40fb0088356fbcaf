"""The files of lm-evaluation-harness, with its names and keys, so that existing scripts keep working.

`results_<date>.json` and, per task, `samples_<task>_<date>.jsonl`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from assay.core.dialects import Dialect
from assay.core.errors import OutputError
from assay.core.records.codec import to_plain
from assay.core.records.subsets import DocumentSubset
from assay.core.secrets import redact_fields
from assay.store.runs.run import Run
from assay.viewer.results.notes import (
    format_letter_notes,
    format_server_notes,
    format_subset_notes,
    format_truncation_notes,
    read_subsets,
)

__all__ = ["build_results", "iterate_samples", "write_lm_eval", "write_lm_eval_once"]

_NAME_ARGUMENTS = ("peft", "delta", "pretrained", "model", "path", "engine")


_MAX_NAME_BYTES = 200
"""File systems allow 255 bytes; the rest of the file name is the date."""


def write_lm_eval(
    run: Run,
    output_path: str,
    *,
    samples: bool = True,
    now: datetime | None = None,
    tasks: Sequence[str] | None = None,
) -> list[Path]:
    """Write the results and, by default, the samples of `tasks`; return the files, results first."""
    date = (now or datetime.now().astimezone()).replace(tzinfo=None).isoformat().replace(":", "-")
    path = Path(output_path).expanduser()
    name = find_model_name(run)
    if path.suffix == ".json":
        folder, results_path = path.parent, path.with_name(f"{path.stem}_{date}.json")
    else:
        folder = path / sanitise_name(name)
        results_path = folder / f"results_{date}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        hashes, written = {}, []
        if samples:
            without = run.tasks_without_documents
            for task in run.tasks if tasks is None else tasks:
                if task in without:
                    continue
                file = folder / f"samples_{_shorten_name(task.replace('/', '__'))}_{date}.jsonl"
                hashes[task] = _write_samples(run, task, file)
                written.append(file)
        results = build_results(run, task_hashes=hashes)
        results_path.write_text(_dump_json(results, indent=2), encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write the result files: {error}", where=str(folder)) from None
    return [results_path, *written]


def _shorten_name(name: str) -> str:
    """Cut the name of a task so that the name of its file is valid, and make it unique by a hash."""
    if len(name.encode()) <= _MAX_NAME_BYTES:
        return name
    kept = name.encode()[: _MAX_NAME_BYTES - 17].decode("utf-8", "ignore")
    return f"{kept}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def write_lm_eval_once(run: Run, output_path: str, *, samples: bool = True) -> list[Path]:
    """Call `write_lm_eval` unless the files of this finished run exist already; return the files."""
    record_path = run.folder / "files.json"
    purpose = {"output_path": os.path.abspath(Path(output_path).expanduser()), "samples": samples}  # noqa: PTH100
    purpose["ended"] = run.facts.get("ended")
    try:
        known = json.loads(record_path.read_text("utf-8"))
        files = [run.folder / name for name in known["files"]]
        if known["purpose"] == purpose and all(file.is_file() for file in files):
            return [Path(os.path.relpath(file)) for file in files]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no readable record of earlier files
    files = write_lm_eval(run, output_path, samples=samples)
    relative = [os.path.relpath(file, run.folder) for file in files]
    with suppress(OSError):
        record_path.write_text(json.dumps({"purpose": purpose, "files": relative}, indent=2), "utf-8")
    return files


def find_model_name(run: Run) -> str:
    """Return the name under which lm-eval files the run: from the model's arguments, else the model's name."""
    arguments = run.facts.get("spec", {}).get("model_args", {})
    return next((str(arguments[key]) for key in _NAME_ARGUMENTS if key in arguments), run.model)


def sanitise_name(name: str) -> str:
    """Return a name that is valid as a folder name.

    >>> sanitise_name("org/model:v1")
    'org__model__v1'
    """
    return re.sub(r"[\"<>:/|\\?*\[\]]+", "__", name)


def build_results(run: Run, *, task_hashes: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the results with lm-eval's keys."""
    facts, spec = run.facts, run.facts.get("spec", {})
    seeds = [*spec.get("seed", ()), None, None, None, None][:4]
    groups = {name: _build_entry(run, name, group) for name, group in run.groups.items()}
    scored_groups = {name: entry for name, entry in groups.items() if any("," in key for key in entry)}
    system, name = spec.get("system_instruction"), find_model_name(run)
    document: dict[str, Any] = {
        "run_id": run.id,
        "run_folder": str(run.folder.resolve()),
        "results": {
            **{task: _build_entry(run, task, facts_) for task, facts_ in run.tasks.items()},
            **groups,
        },
        **({"groups": scored_groups} if scored_groups else {}),
        "group_subtasks": {name: list(group["members"]) for name, group in run.groups.items()},
        "configs": {
            task: {**facts_["config"], **facts_.get("used", {})} for task, facts_ in run.tasks.items()
        },
        "versions": {name: item["version"] for name, item in {**run.tasks, **run.groups}.items()},
        "n-shot": {
            name: item["n_shot"]
            for name, item in {**run.tasks, **run.groups}.items()
            if item.get("n_shot") is not None
        },
        "higher_is_better": {
            name: found for name in (*run.tasks, *run.groups) if (found := _find_directions(run, name))
        },
        "intervals": {
            name: found for name in (*run.tasks, *run.groups) if (found := _build_intervals(run, name))
        },
        "n-samples": {
            task: {
                "original": facts_["original"],
                "effective": _count_evaluated(run, task, facts_),
                "outcomes": run.outcomes(task),
                **_build_truncation(run, task),
                **_build_bounds(run, task),
            }
            for task, facts_ in run.tasks.items()
        },
        **({"subset": subset} if (subset := _build_subsets(run)) else {}),
        **({"notes": notes} if (notes := _collect_notes(run)) else {}),
        **({"agents": agents} if (agents := facts.get("agents")) else {}),
        **({"repeats": repeats} if (repeats := facts.get("repeats")) else {}),
        **({"variants": variants} if (variants := facts.get("variants")) else {}),
        **({"usage": usage} if (usage := run.usage) else {}),
        "config": {
            "model": spec.get("model"),
            "model_args": redact_fields(spec.get("model_args")),
            "model_num_parameters": facts.get("identity", {}).get("parameters"),
            "model_dtype": facts.get("identity", {}).get("dtype"),
            "model_revision": facts.get("identity", {}).get("revision", ""),
            "model_sha": facts.get("identity", {}).get("weights_sha256", ""),
            "batch_size": spec.get("batch_size"),
            "batch_sizes": [],
            "device": spec.get("device"),
            "use_cache": spec.get("use_cache"),
            "limit": spec.get("limit"),
            "bootstrap_iters": spec.get("bootstrap_iters"),
            "gen_kwargs": spec.get("gen_kwargs"),
            **dict(zip(("random_seed", "numpy_seed", "torch_seed", "fewshot_seed"), seeds, strict=True)),
        },
        **({"lock": lock} if (lock := facts.get("lock")) else {}),
        "git_hash": facts.get("git_hash"),
        "date": facts.get("started"),
        "pretty_env_info": f"Python {facts.get('python_version')} on {facts.get('platform')}",
        "transformers_version": None,
        "lm_eval_version": None,
        "assay_version": facts.get("assay_version"),
        "upper_git_hash": None,
        **dict.fromkeys(("tokenizer_pad_token", "tokenizer_eos_token", "tokenizer_bos_token")),
        **dict.fromkeys(("eot_token_id", "max_length")),
        "task_hashes": dict(task_hashes or {}),
        "model_source": spec.get("model"),
        "model_name": name,
        "model_name_sanitized": sanitise_name(name),
        "system_instruction": system,
        "system_instruction_sha": _compute_sha256(system) if system else None,
        "fewshot_as_multiturn": spec.get("fewshot_as_multiturn"),
        "chat_template": spec.get("apply_chat_template") or None,
        "chat_template_sha": (
            facts.get("identity", {}).get("template_sha256") if spec.get("apply_chat_template") else None
        ),
        "total_evaluation_time_seconds": str(facts.get("seconds", "")),
    }
    return document


def _build_entry(run: Run, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    numbers = run.results.get(name, {})
    return {
        "name": name,
        "alias": facts.get("alias") or name,
        **({"sample_len": _count_evaluated(run, name, facts)} if "documents" in facts else {}),
        **(_count_group_documents(run, name) if name in run.groups else {}),
        **{key: to_plain(value) for key, value in numbers.items()},
    }


def _count_evaluated(run: Run, task: str, facts: Mapping[str, Any]) -> int:
    """Return the number of documents with a value of the metric that has the most; of all if none has a value.

    lmms-eval counts all.
    """
    if facts.get("dialect") == Dialect.LMMS_EVAL:
        return int(facts["documents"])
    scored = max((estimate.scored for estimate in run.estimates if estimate.task == task), default=0)
    return scored or int(facts["documents"])


def _count_group_documents(run: Run, group: str) -> dict[str, Any]:
    """Return the number of documents of a group with aggregated metrics, and of the tasks that report each metric."""
    wanted = [f"{one.metric},{one.pipeline}" for one in run.estimates if one.task == group]
    if not wanted:
        return {}
    sizes = {task: _count_evaluated(run, task, run.tasks[task]) for task in _list_leaves(run, group)}
    counts = {
        key: sum(size for task, size in sizes.items() if key in run.results.get(task, {})) for key in wanted
    }
    return {"sample_len": sum(sizes.values()), "sample_count": counts}


def _list_leaves(run: Run, group: str) -> list[str]:
    """Return the tasks of a group and of the groups in it, without duplicates."""
    found: dict[str, None] = {}
    for member in run.groups[group]["members"]:
        for name in _list_leaves(run, member) if member in run.groups else [member]:
            if name in run.tasks:
                found[name] = None
    return list(found)


def _build_intervals(run: Run, name: str) -> dict[str, Any]:
    """Return the 95 % intervals of a task or group: `metric,filter` -> low, high, method."""
    return {
        f"{estimate.metric},{estimate.pipeline}": {
            "low": estimate.interval[0],
            "high": estimate.interval[1],
            "method": estimate.interval_method,
        }
        for estimate in run.estimates
        if estimate.task == name and estimate.interval is not None
    }


def _build_bounds(run: Run, task: str) -> dict[str, Any]:
    """Return the bounds of scores with unreliable documents: `metric,filter` -> [low, high]."""
    found = {
        f"{estimate.metric},{estimate.pipeline}": list(estimate.bounds)
        for estimate in run.estimates
        if estimate.task == task and estimate.bounds is not None
    }
    return {"bounds": found} if found else {}


def _build_truncation(run: Run, task: str) -> dict[str, Any]:
    """Return the number of prompts that exceeded the context length, if any."""
    totals = run.truncated_prompts.get(task)
    return {"truncated_prompts": totals.to_json()} if totals else {}


def _collect_notes(run: Run) -> list[str]:
    return [
        *format_subset_notes(run),
        *format_letter_notes(run),
        *format_server_notes(run),
        *format_truncation_notes(run),
    ]


def _build_subsets(run: Run) -> dict[str, Any]:
    """Return the weighted subsets: strata with the documents drawn, and the weight of each document."""
    return {
        task: {**content, "weights": DocumentSubset.from_json(content, where=task).weights}
        for task, content in read_subsets(run).items()
    }


def _find_directions(run: Run, name: str) -> dict[str, Any]:
    if name in run.groups and (known := run.groups[name].get("higher_is_better")):
        return dict(known)
    reported = {one.metric: one.higher_is_better for one in run.estimates if one.task == name}
    listed = run.tasks.get(name, {}).get("higher_is_better")
    if listed is None:  # a group, or a run of an older version
        return reported
    return {**listed, **{metric: value for metric, value in reported.items() if value is not None}}


def _write_samples(run: Run, task: str, path: Path) -> str:
    """Write one line per document and filter; return lm-eval's hash over all of them."""
    hasher = hashlib.sha256()
    with path.open("w", encoding="utf-8") as file:
        for row in iterate_samples(run, task):
            hasher.update((row["doc_hash"] + row["prompt_hash"] + row["target_hash"]).encode())
            file.write(_dump_json(row) + "\n")
    return hasher.hexdigest()


def iterate_samples(
    run: Run, task: str, *, as_text: bool = True, by_document: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `samples_<task>.jsonl`: responses as text, numbered arguments, hashes.

    The rows of a filter are together, as in lm-eval; with `by_document`, those of a document. Without `as_text`, yield them as `simple_evaluate` returns them: numbers, `(log probability, is greedy)`, tuples of arguments.
    """
    convert = _to_text if as_text else _to_values
    for row in run.samples(task) if by_document else _iterate_by_filter(run, task):
        target = str(row["target"])
        prompt = row["arguments"][0][0] if row["arguments"] else ""
        scores = {metric: to_plain(row[metric]) for metric in row["metrics"]}
        yield {
            "doc_id": row["doc_id"],
            "doc": row["doc"],
            "target": target if as_text else row["target"],
            "arguments": {
                f"gen_args_{index}": {f"arg_{number}": value for number, value in enumerate(arguments)}
                for index, arguments in enumerate(row["arguments"])
            }
            if as_text
            else [tuple(arguments) for arguments in row["arguments"]],
            "resps": convert(row["resps"]),
            **({"tool_calls": row["tool_calls"]} if "tool_calls" in row else {}),
            "filtered_resps": convert(row["filtered_resps"]),
            "filter": row["filter"],
            "metrics": row["metrics"],
            "doc_hash": _compute_sha256(
                json.dumps(row.get("prompt_doc", row["doc"]), indent=2, ensure_ascii=False)
            ),
            "prompt_hash": _compute_sha256(prompt),
            "target_hash": _compute_sha256(target),
            **scores,
        }


def _iterate_by_filter(run: Run, task: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of all documents for the first filter, then those for the next one, as lm-eval does."""
    filters: dict[str, None] = {}
    for row in run.samples(task):
        filters.setdefault(row["filter"])
        if row["filter"] == next(iter(filters)):
            yield row
    for name in list(filters)[1:]:
        yield from (row for row in run.samples(task) if row["filter"] == name)


def _dump_json(value: Any, indent: int | None = None) -> str:
    """Return JSON without ASCII escapes, or with them if a text has lone surrogates."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, default=str)
    return text


def _to_text(value: Any) -> Any:
    return [_to_text(item) for item in value] if isinstance(value, list) else str(value)


def _to_values(value: Any) -> Any:
    """Return responses with log probabilities as pairs."""
    match value:
        case [float() | int() as total, bool() as is_greedy]:
            return total, is_greedy
        case list():
            return [_to_values(item) for item in value]
    return value


def _compute_sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
