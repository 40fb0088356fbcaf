"""The files of lmms-eval: `<date>_results.json` and `<date>_samples_<task>.jsonl` in a folder named after the model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from assay.core.records.codec import to_plain
from assay.store.runs.run import Run
from assay.viewer.exports.lm_eval import build_results, sanitise_name
from assay.viewer.exports.rows import dump_json

__all__ = ["iterate_samples", "write_lmms_eval"]

_NAME_ARGUMENTS = "peft delta pretrained model model_version model_name model_id path engine".split()
_TOKEN_COUNTS = ("input_tokens", "output_tokens", "reasoning_tokens")
_OMITTED_KEYS = (
    "pretty_env_info",
    "transformers_version",
    "lm_eval_version",
    "upper_git_hash",
    "eot_token_id",
    "max_length",
)


def write_lmms_eval(run: Run, tasks: Sequence[str], folder: Path) -> list[Path]:
    """Write results and samples; return the files, results first."""
    date = datetime.now().astimezone().strftime("%Y%m%d_%H%M%S")
    place = folder / _find_folder_name(run)
    place.mkdir(parents=True, exist_ok=True)
    hashes, written = {}, []
    without = run.tasks_without_documents
    for task in tasks:
        if task in without:
            continue
        file = place / f"{date}_samples_{task.replace('/', '__')}.jsonl"
        written.append(file)
        with file.open("w", encoding="utf-8") as stream:
            seen: list[str] = []
            for row in iterate_samples(run, task):
                seen.append(f"sample_{len(seen)}{row['doc_hash']}")
                stream.write(dump_json(row) + "\n")
        hashes[task] = _compute_sha256("".join(seen))
    results = place / f"{date}_results.json"
    results.write_text(
        json.dumps(_build_results(run, tasks, hashes), indent=2, ensure_ascii=False, default=str), "utf-8"
    )
    return [results, *written]


def _find_folder_name(run: Run) -> str:
    """Return the last two parts of the model's name, taken from its arguments as lmms-eval does."""
    arguments = run.facts.get("spec", {}).get("model_args", {})
    name = next((str(arguments[key]) for key in _NAME_ARGUMENTS if key in arguments), run.model)
    return sanitise_name("/".join(name.split("/")[-2:]))


def _build_results(run: Run, tasks: Sequence[str], hashes: Mapping[str, str]) -> dict[str, Any]:
    document = build_results(run)
    facts = run.facts
    kept = {*tasks, *run.groups}
    for key in ("results", "configs", "versions", "n-shot", "higher_is_better", "n-samples"):
        document[key] = {name: value for name, value in document[key].items() if name in kept}
    for entry in document["results"].values():
        entry.pop("name", None)
        entry.pop("sample_len", None)
        entry.pop("sample_count", None)
    document["n-samples"] = {
        name: {"original": counts["original"], "effective": run.tasks[name]["documents"]}
        for name, counts in document["n-samples"].items()
    }
    started, ended = facts.get("started"), facts.get("ended")
    return {
        **{key: value for key, value in document.items() if key not in _OMITTED_KEYS},
        "lmms_eval_version": None,
        "git_branch": None,
        "usage": _sum_usage(run, tasks),
        "task_hashes": dict(hashes),
        "model_name_sanitized": _find_folder_name(run),
        "start_time": started,
        "end_time": ended,
    }


def _sum_usage(run: Run, tasks: Sequence[str]) -> dict[str, int]:
    """Sum the tokens of all requests that report them."""
    total = dict.fromkeys(_TOKEN_COUNTS, 0)
    for task in tasks:
        for record in run.records(task):
            for request in record["requests"]:
                for key in total:
                    total[key] += request.get(key) or 0
    if not total["reasoning_tokens"]:
        del total["reasoning_tokens"]
    return total


def iterate_samples(run: Run, task: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a samples file: one per document and filter, without the filter's name."""
    for record in run.records(task):
        requests = record["requests"]
        responses = _group_by_request(requests)
        for pipeline, values in record["answers"].items():
            answers: Any = _to_text(to_plain(values))
            shown: dict[str, Any] = {
                "doc_id": record["document"],
                "target": str(record["target"]),
                "input": requests[0]["prompt"] if requests else "",
            }
            raw: Any = _to_text(responses)
            raw = raw[0] if len(raw) == 1 else raw
            answers = answers[0] if len(answers) == 1 else answers
            if raw != answers and raw != [answers]:
                shown["resps"] = raw
            yield {
                **shown,
                "filtered_resps": answers,
                "token_counts": [
                    _read_token_counts(request) for request in requests if not request.get("repeat")
                ],
                "doc_hash": _compute_sha256(
                    json.dumps(to_plain(record["fields"]), indent=2, ensure_ascii=False)
                ),
                **{
                    verdict["metric"]: to_plain(verdict["value"])
                    for verdict in record["verdicts"]
                    if verdict["filter"] == pipeline and verdict["kind"] != "unscored"
                },
            }


def _group_by_request(requests: list[dict[str, Any]]) -> list[list[Any]]:
    """Group the responses by request, one per repeat."""
    grouped: list[list[Any]] = []
    for request in requests:
        if not request.get("repeat"):
            grouped.append([])
        rated = request["response"] is None and "logprob" in request
        grouped[-1].append([request["logprob"], request["greedy"]] if rated else request["response"])
    return grouped


def _read_token_counts(request: dict[str, Any]) -> dict[str, int] | None:
    if "input_tokens" not in request:
        return None
    return {key: request[key] for key in _TOKEN_COUNTS if key in request}


def _to_text(value: Any) -> Any:
    return [_to_text(item) for item in value] if isinstance(value, list) else str(value)


def _compute_sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
