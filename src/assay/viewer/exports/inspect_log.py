"""Logs of inspect_ai, which its viewer and `read_eval_log` read: a log per task, as `.eval` (zip) or JSON."""

from __future__ import annotations

import hashlib
import json
import math
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.records.codec import to_plain
from assay.core.records.verdicts import Estimate
from assay.core.secrets import redact_fields
from assay.scoring.metrics import METRICS
from assay.store.runs.run import Run
from assay.viewer.exports.inspect_samples import (
    USAGE_KEYS,
    SampleBuilder,
    build_config,
    build_scorer_name,
    build_summary,
    build_usage,
)
from assay.viewer.exports.lm_eval import find_model_name

__all__ = ["write_inspect", "write_inspect_json"]

_VERSION = 2
_PROVIDERS = {
    "hf": "hf",
    "vllm": "vllm",
    "openai": "openai",
    "openai-completions": "openai",
    "openai-chat-completions": "openai",
    "anthropic": "anthropic",
    "anthropic-chat": "anthropic",
    "gemini": "google",
}
"""By model type of a run."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSAFE_IN_NAME = re.compile(r"[^A-Za-z0-9.-]+")


def write_inspect(run: Run, tasks: Sequence[str], path: Path) -> list[Path]:
    """Write a log per task into a folder, or the log of one task as the file `path`, by its ending."""
    return _write_logs(run, tasks, path, ".eval")


def write_inspect_json(run: Run, tasks: Sequence[str], path: Path) -> list[Path]:
    """Write the same logs as JSON files."""
    return _write_logs(run, tasks, path, ".json")


def _write_logs(run: Run, tasks: Sequence[str], path: Path, suffix: str) -> list[Path]:
    named = path.suffix if path.suffix in (".eval", ".json") and not path.is_dir() else ""
    if named and len(tasks) > 1:
        raise InvalidOption(
            f"a log contains one task, and the run has {len(tasks)}",
            where="--output",
            hint="name a folder, or one task with --tasks",
        )
    folder = path.parent if named else path
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for task in tasks:
        log = _LogBuilder(run, task)
        target = path if named else folder / f"{log.file_name}{suffix}"
        temporary = target.with_name(f"{target.name}.new")
        try:
            if target.suffix == ".json":
                _write_json(log, temporary)
            else:
                _write_eval(log, temporary)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        written.append(target)
    return written


@dataclass
class _LogBuilder:
    """Builds the log of one task: its header before the samples, and the reductions after them."""

    run: Run
    task: str
    reduced: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By scorer: the score of each document over its epochs."""

    @property
    def model(self) -> str:
        """The name of the model, after its provider as inspect_ai calls it, if it has one."""
        name, kind = find_model_name(self.run), str(self.run.facts.get("spec", {}).get("model") or "")
        provider = _PROVIDERS.get(kind)
        return f"{provider}/{name}" if provider and not name.startswith(f"{provider}/") else name

    @property
    def config(self) -> dict[str, Any]:
        """The config of the task."""
        return self.run.tasks[self.task].get("config") or {}

    @cached_property
    def _requests(self) -> tuple[int, list[dict[str, Any]]]:
        """The highest number of repeats of a document, and all requests with a known usage."""
        epochs, used = 1, []
        for record in self.run.records(self.task):
            for request in record["requests"]:
                epochs = max(epochs, (request.get("repeat") or 0) + 1)
                if "input_tokens" in request:
                    used.append({key: request[key] for key in USAGE_KEYS if key in request})
        return epochs, used

    @property
    def epochs(self) -> int:
        return self._requests[0]

    @property
    def reducer(self) -> str | None:
        """How the score of a document is computed from its repeats: by the task's filter, or as the mean for agents."""
        if self.epochs == 1:
            return None
        agents = self.run.tasks[self.task].get("output_type") == "agent"
        return str(self.config.get("epochs_reducer") or ("mean" if agents else "filter"))

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.run.id}\0{self.task}".encode()).hexdigest()

    @property
    def created(self) -> str:
        return _format_time(self.run.facts.get("started")) or _format_time(0.0)

    @property
    def file_name(self) -> str:
        date = self.created.replace(":", "-").replace("+", "-")
        return f"{date}_{_UNSAFE_IN_NAME.sub('-', self.task)}_{self.digest[:22]}"

    def build_samples(self) -> Iterator[dict[str, Any]]:
        """Yield all samples; documents that the run has not finished are left out."""
        builder = SampleBuilder(self.run, self.model, self.created)
        for document in self.run.records(self.task):
            if document["outcome"] == "open":
                continue
            self._reduce(document)
            yield from builder.build_samples(self.task, document)

    def _reduce(self, document: Mapping[str, Any]) -> None:
        for verdict in document["verdicts"]:
            value = verdict["value"]
            if verdict["kind"] == "score" and isinstance(value, (int, float)):
                name = build_scorer_name(verdict["metric"], verdict["filter"])
                self.reduced.setdefault(name, []).append({"value": value, "sample_id": document["document"]})

    def build_reductions(self) -> list[dict[str, Any]]:
        reducer = self.reducer
        return [
            {"scorer": name, "reducer": reducer, "samples": values} for name, values in self.reduced.items()
        ]

    def build_start(self) -> dict[str, Any]:
        """Return the first part of a log: what was evaluated."""
        facts, spec = self.run.tasks[self.task], self.run.facts.get("spec", {})
        config, reducer, version = self.config, self.reducer, facts.get("version")
        revision, limit = self.run.facts.get("git_hash"), spec.get("limit")
        estimates = list(self._list_estimates())
        evaluated = {
            "eval_id": self.digest[22:44],
            "run_id": hashlib.sha256(self.run.id.encode()).hexdigest()[:22],
            "created": self.created,
            "task": self.task,
            "task_id": self.digest[:22],
            "task_version": version if isinstance(version, (int, str)) else str(version),
            "task_display_name": facts.get("alias") or self.task,
            "task_args": {},
            "dataset": {
                "name": config.get("dataset_path") or self.task,
                "samples": facts.get("documents"),
                "shuffled": False,
            },
            "model": self.model,
            "model_generate_config": build_config(config.get("generation_kwargs") or {}),
            "model_args": to_plain(redact_fields(spec.get("model_args") or {})),
            "config": {
                "epochs": self.epochs,
                "epochs_reducer": [reducer] if reducer else None,
                "limit": int(limit) if isinstance(limit, (int, float)) and limit >= 1 else None,
                "fail_on_error": False,
            },
            "packages": {"assay-harness": str(self.run.facts.get("assay_version") or "unknown")},
            "metadata": {
                "assay_run": self.run.id,
                "assay_model": find_model_name(self.run),
                "n_shot": facts.get("n_shot"),
                "output_type": facts.get("output_type"),
                **({"git_hash": revision} if revision else {}),
                **({"lock": lock} if (lock := self.run.facts.get("lock")) else {}),
            },
            "scorers": [
                {
                    "name": build_scorer_name(one.metric, one.pipeline),
                    "options": {},
                    "metrics": [
                        {"name": self._find_aggregation(one)},
                        *([{"name": "stderr"}] if one.stderr else []),
                    ],
                }
                for one in estimates
            ],
        }
        steps = [{"solver": "generate", "params": {}}]
        return {
            "version": _VERSION,
            "eval": evaluated,
            "plan": {"name": "plan", "steps": steps, "config": {}},
        }

    def build_header(self) -> dict[str, Any]:
        """Return the whole log without samples."""
        start = self.build_start()
        outcomes = self.run.outcomes(self.task)
        done = sum(outcomes.values()) - outcomes.get("open", 0)
        failed = outcomes.get("failed", 0)
        return {
            "version": start["version"],
            "status": "success" if self.run.finished else "cancelled",
            "eval": start["eval"],
            "plan": start["plan"],
            "results": {
                "total_samples": int(self.run.tasks[self.task].get("documents") or done) * self.epochs,
                "completed_samples": (done - failed) * self.epochs,
                "scores": [self._build_score(one) for one in self._list_estimates()],
            },
            "stats": {
                "started_at": self.created,
                "completed_at": _format_time(self.run.facts.get("ended")),
                "model_usage": self._sum_usage(),
                "role_usage": {},
            },
        }

    def _list_estimates(self) -> Iterator[Estimate]:
        for estimate in self.run.estimates:
            if estimate.task == self.task and isinstance(estimate.value, (int, float)):
                yield estimate

    def _find_aggregation(self, estimate: Estimate) -> str:
        """Return the name of the function that computed a score from those of the documents."""
        for entry in self.run.tasks[self.task].get("config", {}).get("metric_list") or ():
            if isinstance(entry, dict) and entry.get("metric") == estimate.metric:
                named = entry.get("inspect_metric") or entry.get("aggregation")
                if named is not None:
                    return named if isinstance(named, str) and named.isidentifier() else estimate.metric
        return METRICS.get(estimate.metric).aggregation if estimate.metric in METRICS else "mean"

    def _build_score(self, estimate: Estimate) -> dict[str, Any]:
        name, aggregation = (
            build_scorer_name(estimate.metric, estimate.pipeline),
            self._find_aggregation(estimate),
        )
        details = {
            **(
                {"higher_is_better": estimate.higher_is_better}
                if estimate.higher_is_better is not None
                else {}
            ),
            **(
                {"interval_95": list(estimate.interval), "interval_method": estimate.interval_method}
                if estimate.interval is not None
                else {}
            ),
        }
        value = {"name": aggregation, "value": estimate.value, "params": {}, "metadata": details}
        metrics = {aggregation: value}
        if estimate.stderr is not None and math.isfinite(estimate.stderr):
            metrics["stderr"] = {"name": "stderr", "value": estimate.stderr, "params": {}, "metadata": {}}
        return {
            "name": name,
            "scorer": name,
            "reducer": self.reducer,
            "scored_samples": estimate.scored,
            "unscored_samples": estimate.unscored,
            "params": {},
            "metrics": metrics,
        }

    def _sum_usage(self) -> dict[str, Any]:
        """Return the usage of all requests of the task, imported and cached responses included."""
        usage = build_usage(self._requests[1])
        return {self.model: usage} if usage else {}


def _format_time(moment: Any) -> str:
    if not isinstance(moment, (int, float)):
        return ""
    return datetime.fromtimestamp(moment, UTC).replace(microsecond=0).isoformat()


def _dump_json(value: Any) -> str:
    """Return JSON with `NaN` for a missing score, as inspect_ai writes it, and escaped lone surrogates."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return _SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text)


def _write_eval(log: _LogBuilder, path: Path) -> None:
    """Write a zip file; samples are compressed one at a time."""
    header = log.build_header()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name: str, value: Any) -> None:
            archive.writestr(zipfile.ZipInfo(name), _dump_json(value), zipfile.ZIP_DEFLATED)

        add("_journal/start.json", log.build_start())
        summaries = []
        for sample in log.build_samples():
            add(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", sample)
            summaries.append(build_summary(sample))
        add("_journal/summaries/1.json", summaries)
        add("summaries.json", summaries)
        add("reductions.json", log.build_reductions())
        add("header.json", header)


def _write_json(log: _LogBuilder, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(_dump_json(log.build_header())[:-1])
        file.write(', "samples": [')
        for number, sample in enumerate(log.build_samples()):
            file.write((",\n" if number else "\n") + _dump_json(sample))
        file.write(f'\n], "reductions": {_dump_json(log.build_reductions())}}}\n')
