"""Scores for a model's repository on the Hugging Face Hub: `.eval_results/*.yaml`, and the `model-index` of its card."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from assay.core.errors import OutputError, UserError
from assay.core.records.verdicts import Estimate
from assay.store.runs.run import Run
from assay.viewer.exports.lm_eval import find_model_name
from assay.viewer.results.notes import format_lock

__all__ = ["merge_into_card", "write_eval_results", "write_model_index"]

_MULTIMODAL_KEYS = ("doc_to_image", "doc_to_visual", "doc_to_audio", "doc_to_messages")
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*$\r?\n?", re.DOTALL | re.MULTILINE)
_MODEL_INDEX = re.compile(r"^[\"']?model-index[\"']?[ \t]*:.*?(?=^[^\s#-]|\Z)", re.DOTALL | re.MULTILINE)


def write_eval_results(run: Run, tasks: Sequence[str], folder: Path) -> list[Path]:
    """Write `.eval_results/<task>.yaml` for each task whose dataset is on the Hub: its first score.

    Raises:
        UserError: No task has such a dataset.
    """
    found = {}
    for task in tasks:
        dataset = _find_hub_dataset(run.tasks[task].get("config") or {})
        estimates = _list_scores(run, task)
        if dataset and estimates:
            found[task] = [_build_entry(run, task, dataset, estimates[0])]
    if not found:
        raise UserError(
            "no task has a score and a dataset on the Hub",
            hint="`.eval_results` belong to a dataset; --format model-index takes any task",
        )
    target = folder / ".eval_results"
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for task, entries in found.items():
        file = target / f"{re.sub(r'[^A-Za-z0-9._-]+', '_', task)}.yaml"
        file.write_text(_dump_yaml(entries), "utf-8")
        written.append(file)
    return written


def _find_hub_dataset(config: Mapping[str, Any]) -> dict[str, str]:
    """Return id, task and revision of a dataset on the Hub; empty for local files. The task is the configuration."""
    path = str(config.get("dataset_path") or "")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", path) or path.startswith("."):
        return {}
    arguments = config.get("dataset_kwargs") or {}
    revision = arguments.get("revision") if isinstance(arguments, dict) else None
    return {
        "id": path,
        "task_id": str(config.get("dataset_name") or "default"),
        **({"revision": str(revision)} if revision else {}),
    }


def _list_scores(run: Run, task: str) -> list[Estimate]:
    return [
        estimate
        for estimate in run.estimates
        if estimate.task == task
        and isinstance(estimate.value, (int, float))
        and math.isfinite(estimate.value)
    ]


def _build_entry(run: Run, task: str, dataset: Mapping[str, str], estimate: Estimate) -> dict[str, Any]:
    date = _format_date(run)
    return {
        "dataset": dict(dataset),
        "value": float(estimate.value),
        **({"date": date} if date else {}),
        "notes": "; ".join(_build_notes(run, task, estimate)),
    }


def _format_date(run: Run) -> str:
    started = run.facts.get("started")
    if not isinstance(started, (int, float)) or not started:
        return ""
    return datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _build_notes(run: Run, task: str, estimate: Estimate) -> Iterator[str]:
    """Yield what an entry has no field for: metric, filter, n-shot, uncertainty, number of documents, program."""
    yield f"metric: {estimate.metric}"
    if estimate.pipeline not in ("", "none"):
        yield f"filter: {estimate.pipeline}"
    if run.tasks[task].get("n_shot") is not None:
        yield f"n-shot: {run.tasks[task]['n_shot']}"
    if estimate.stderr is not None and math.isfinite(estimate.stderr):
        yield f"standard error: {float(estimate.stderr)!r}"
    if estimate.scored:
        yield f"documents: {estimate.scored}"
    yield f"task: {task}"
    if lock := format_lock(run.facts.get("lock")):
        yield f"lockfile: {lock}"
    yield f"Assay {run.facts.get('assay_version') or ''}".strip()


def write_model_index(run: Run, tasks: Sequence[str], stream: TextIO) -> None:
    """Write the front matter of a model card with the scores of some tasks, and of the groups that consist of them."""
    stream.write(f"---\n{_dump_yaml({'model-index': _build_model_index(run, tasks)})}---\n")


def _build_model_index(run: Run, tasks: Sequence[str]) -> list[dict[str, Any]]:
    groups = [name for name, group in run.groups.items() if set(group["members"]) <= {*tasks, *run.groups}]
    results = [entry for name in (*groups, *tasks) if (entry := _build_result(run, name))["metrics"]]
    return [{"name": _find_public_name(run), "results": results}]


def _find_public_name(run: Run) -> str:
    """Return the name of the model; only the last part of a path."""
    name = find_model_name(run)
    return name if re.fullmatch(r"[A-Za-z0-9_][^/]*/[^/]+", name) else name.rstrip("/").rpartition("/")[2]


def _build_result(run: Run, name: str) -> dict[str, Any]:
    facts = run.tasks.get(name) or run.groups[name]
    config = facts.get("config") or {}
    hub = _find_hub_dataset(config)
    split = config.get("test_split") or config.get("validation_split")
    multimodal = any(config.get(key) for key in _MULTIMODAL_KEYS)
    return {
        "task": {"type": "image-text-to-text" if multimodal else "text-generation", "name": name},
        "dataset": {
            "type": hub.get("id") or name,
            "name": str(facts.get("alias") or name).strip() or name,
            **({"config": str(config["dataset_name"])} if config.get("dataset_name") else {}),
            **({"split": str(split)} if split else {}),
            **({"revision": hub["revision"]} if "revision" in hub else {}),
            **({"args": {"num_few_shot": facts["n_shot"]}} if facts.get("n_shot") is not None else {}),
        },
        "metrics": [_build_metric(estimate) for estimate in _list_scores(run, name)],
    }


def _build_metric(estimate: Estimate) -> dict[str, Any]:
    filtered = estimate.pipeline not in ("", "none")
    details = {
        **({"filter": estimate.pipeline} if filtered else {}),
        **({"stderr": float(estimate.stderr)} if estimate.stderr is not None else {}),
        **({"interval_95": [float(end) for end in estimate.interval]} if estimate.interval else {}),
        **({"documents": estimate.scored} if estimate.scored else {}),
    }
    return {
        "type": estimate.metric,
        "value": float(estimate.value),
        "name": f"{estimate.metric} ({estimate.pipeline})" if filtered else estimate.metric,
        **({"args": details} if details else {}),
    }


def _dump_yaml(value: Any) -> str:
    import yaml

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)


def merge_into_card(card: str, block: str) -> str:
    """Return a model card with the scores of a block in its `model-index`; the rest of the card stays as it is.

    A score replaces that of the same task, dataset and metric. Other scores of the card are kept.

    >>> merge_into_card("---\\nlicense: mit\\n---\\n# Card\\n", "---\\nmodel-index: []\\n---\\n")
    '---\\nlicense: mit\\nmodel-index: []\\n---\\n# Card\\n'

    Raises:
        OutputError: The front matter of the card is not valid YAML.
    """
    found, own = _FRONT_MATTER.match(card), _FRONT_MATTER.match(block)
    if found is None:
        return block + card
    before = _parse_front_matter(found[1])
    new = _parse_front_matter(own[1] if own else block)["model-index"]
    merged = _merge_indexes(before.get("model-index") or [], new)
    kept = _MODEL_INDEX.sub("", found[1])
    if kept and not kept.endswith("\n"):
        kept += "\n"
    front = f"{kept}{_dump_yaml({'model-index': merged})}"
    expected = {
        **{key: value for key, value in before.items() if key != "model-index"},
        "model-index": merged,
    }
    if _dump_yaml(_parse_front_matter(front)) != _dump_yaml(expected):
        raise _build_card_error("`model-index` is not a key at the start of a line")
    return f"---\n{front}---\n{card[found.end() :]}"


def _parse_front_matter(text: str) -> dict[str, Any]:
    import yaml  # other exports need no YAML

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _build_card_error(" ".join(str(error).split())[:200]) from None
    if not isinstance(found, (dict, type(None))):
        raise _build_card_error("it is not a mapping")
    if not isinstance((found or {}).get("model-index"), (list, type(None))):
        raise _build_card_error("`model-index` is not a list")
    return found or {}


def _build_card_error(why: str) -> OutputError:
    return OutputError(
        f"the front matter of the model card is not valid: {why}",
        where="--output",
        hint="correct the card, or leave out --output to print the model-index",
    )


def _merge_indexes(old: Sequence[Any], new: Sequence[dict[str, Any]]) -> list[Any]:
    """Put the results of each new entry into the entry of the same name, or into the only entry of the card."""
    replaced = {key for entry in new for result in entry["results"] for key in _list_keys(result)}
    merged = [_remove_results(entry, replaced) for entry in old]
    for entry in new:
        named = [one for one in merged if isinstance(one, dict) and one.get("name") == entry["name"]]
        target = next(iter(named or (merged if len(old) == 1 else ())), None)
        if isinstance(target, dict):
            target["results"] = [*(target.get("results") or ()), *entry["results"]]
        else:
            merged.append(entry)
    return merged


def _remove_results(entry: Any, replaced: set[str]) -> Any:
    """Return an entry without the metrics that are replaced, and without results that have no other metric."""
    if not isinstance(entry, dict) or not isinstance(entry.get("results"), list):
        return entry
    kept = []
    for result in entry["results"]:
        keys = list(_list_keys(result))
        if replaced.isdisjoint(keys):
            kept.append(result)
        elif not replaced.issuperset(keys):
            pairs = zip(result["metrics"], keys, strict=True)
            kept.append({**result, "metrics": [metric for metric, key in pairs if key not in replaced]})
    return {**entry, "results": kept}


def _list_keys(result: Any) -> Iterator[str]:
    """Yield what identifies each metric of a result: task, dataset, settings and metric."""
    facts = result if isinstance(result, dict) else {}
    task, dataset, metrics = (facts.get(name) or {} for name in ("task", "dataset", "metrics"))
    if not isinstance(task, dict) or not isinstance(dataset, dict) or not isinstance(metrics, list):
        return
    place = [
        *(task.get(name) for name in ("type", "name")),
        *(dataset.get(name) for name in ("type", "config", "split", "args")),
    ]
    for metric in metrics:
        known = metric if isinstance(metric, dict) else {}
        yield _dump_yaml([*place, known.get("type"), known.get("name")])
