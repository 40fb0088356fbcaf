"""Score tables of a stored run. Reads a hundred thousand documents in a few seconds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from assay.core.errors import UnknownName
from assay.core.output_types import OutputType
from assay.core.records.agents import EXTERNAL_SOLVER
from assay.core.records.responses import LogProbability, Response
from assay.core.records.verdicts import Estimate
from assay.stats.intervals.repeats import RepeatTable, compute_repeat_metrics
from assay.store.documents.score_tables import DigestKind, DocumentExcerpt, ScoreColumn, ScoreTable
from assay.store.journal.rows import decode_verdict_value, parse_json
from assay.store.runs.run import Run

__all__ = ["RunScoreTables", "describe_model", "hash_content"]

_QUANTISATION_KEYS = ("quantization", "load_in_", "bnb_", "autogptq", "gptqmodel", "gguf_file")
"""Prefixes of model arguments that select a quantisation."""

_BATCH_SIZE = 2000
"""Documents whose verdicts are decoded as one JSON text, which is three times as fast as one by one."""

_SELECT_VERDICTS = """
SELECT a.id - t.first, a.fields, a.unchecked_requests, j.outcome, j.unchecked_verdicts
FROM tasks t JOIN asked a ON a.id BETWEEN t.first AND t.last LEFT JOIN judged j ON j.id = a.id
WHERE t.name = ? ORDER BY a.id
"""
_SELECT_EXCERPT = """
SELECT a.id - t.first, a.target, a.requests, j.answers FROM tasks t JOIN asked a ON a.id = t.first + ?
LEFT JOIN judged j ON j.id = a.id WHERE t.name = ?
"""
_SELECT_JUDGES = "SELECT DISTINCT judge FROM judge_requests WHERE task = ? ORDER BY judge"


class RunScoreTables:
    """The score tables of a run."""

    def __init__(self, run: Run, name: str = "") -> None:
        self.run = run
        self.name = name or run.id
        self.model = run.model

    @property
    def tasks(self) -> list[str]:
        return list(self.run.tasks)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Options that affect all prompts, with display names."""
        spec, identity = self.run.facts.get("spec", {}), self.run.facts.get("identity", {})
        template = spec.get("apply_chat_template")
        return {
            "chat template": (identity.get("template_sha256") or template or True) if template else None,
            "system instruction": spec.get("system_instruction"),
            "few-shot as turns": bool(spec.get("fewshot_as_multiturn") or template) if template else False,
            "limit": spec.get("limit"),
            "gen_kwargs": spec.get("gen_kwargs") or None,
            "seed": spec.get("seed"),
            "few-shot seed": _find_fewshot_seed(spec.get("seed")),
            **describe_model(identity, spec.get("model_args") or {}, str(spec.get("model") or "")),
        }

    def read_score_table(self, task: str, kind: DigestKind | None = None) -> ScoreTable:
        """Return all documents of a task in order.

        Raises:
            UnknownName: The run has no such task.
        """
        if task not in self.run.tasks:
            raise UnknownName(
                f"the run `{self.name}` has no task `{task}`",
                hint=f"available tasks: {', '.join(self.run.tasks)}",
            )
        for_files = kind == "files"
        is_agent = self.run.tasks[task].get("output_type") == OutputType.AGENT
        hash_prompt = self._choose_prompt_hash(task) if is_agent else None
        documents: list[int] = []
        contents: list[Any] = []
        prompts: list[Any] = []
        endings: list[str] = []
        columns: dict[tuple[str, str], list[Any]] = {}
        with self.run.journal.report_decode_errors():
            for chunk in self._chunks(task):
                verdicts = parse_json(f"[{','.join(row[4] or '[]' for row in chunk)}]")
                start = len(documents)
                for at, (row, listed) in enumerate(zip(chunk, verdicts, strict=True), start):
                    documents.append(row[0])
                    if row[1] == "{}":  # imported from files without documents, such as samples of lmms-eval
                        contents.append(None)
                    else:
                        contents.append(hash_content(row[1]) if for_files else hash(row[1]))
                    prompts.append(
                        hash_prompt(row[2])
                        if hash_prompt is not None
                        else _hash_prompt(row[2])
                        if for_files
                        else hash(row[2].rpartition('"requests": ')[0])
                    )
                    endings.append(row[3] or "open")
                    for pipeline, metric, how, value, _ in listed:
                        if how == "unscored":
                            continue
                        column = columns.get((pipeline, metric))
                        if column is None:
                            column = columns[pipeline, metric] = []
                        if len(column) < at:
                            column.extend([None] * (at - len(column)))
                        column.append(decode_verdict_value(value) if type(value) is str else value)
        for column in columns.values():
            column.extend([None] * (len(documents) - len(column)))
        return ScoreTable(
            task=task,
            kind="files" if for_files else "assay",
            documents=documents,
            content_digests=contents,
            prompt_digests=prompts,
            endings=endings,
            columns={**self._columns(task, columns), **build_repeat_columns(self.run, task, documents)},
            facts=self._task_facts(task),
            cluster_key=str(self._config(task).get("cluster_key") or ""),
            fields_of=_find_program(self.run),
            attempts=self._read_attempts(task) if is_agent else {},
            subset=(self.run.facts.get("spec", {}).get("subset") or {}).get(task),
        )

    def _choose_prompt_hash(self, task: str) -> Callable[[str], str]:
        """Return how to hash the prompts of an agent: the first one. It is the agent's own if a user or a program begins."""
        config = self._config(task)
        solver = config.get("solver")
        name = solver.get("name") if isinstance(solver, Mapping) else solver
        return (lambda _: "") if config.get("user") or name == EXTERNAL_SOLVER else _hash_prompt

    def _read_attempts(self, task: str) -> dict[tuple[str, str], dict[int, tuple[float, ...]]]:
        found: dict[tuple[str, str], dict[int, tuple[float, ...]]] = {}
        for one in self.run.journal.read_repeats(task):
            for metric, scores in one.scores.items():
                found.setdefault((one.pipeline, metric), {})[one.document] = scores
        return found

    def read_estimates(self) -> list[Estimate]:
        """Return the estimates of the run, those of repeats included."""
        return [*self.run.estimates, *build_repeat_estimates(self.run)]

    def field(self, task: str, name: str) -> list[Any]:
        """Return one field of each document; dots separate nested names."""
        return [value for _, value in self.run.journal.read_field(task, name)]

    def field_names(self, task: str) -> list[str]:
        """Return the field names of the first document."""
        first = next(self._chunks(task), [])
        return list(json.loads(first[0][1])) if first else []

    def read_excerpts(self, task: str, documents: Sequence[int]) -> dict[int, DocumentExcerpt]:
        """Return prompts, responses and answers of some documents."""
        return {excerpt.document: excerpt for excerpt in self._read_excerpts(task, documents)}

    def close(self) -> None:
        self.run.close()

    def _chunks(self, task: str) -> Iterator[list[tuple[Any, ...]]]:
        rows = self.run.journal.query(_SELECT_VERDICTS, (task,))
        while chunk := list(islice(rows, _BATCH_SIZE)):
            yield chunk

    def _config(self, task: str) -> Mapping[str, Any]:
        config: Mapping[str, Any] = self.run.tasks.get(task, {}).get("config", {})
        return config

    def _columns(
        self, task: str, values: Mapping[tuple[str, str], list[Any]]
    ) -> dict[tuple[str, str], ScoreColumn]:
        """Return the columns in the order of the results table; columns without an estimate come last."""
        listed = self._config(task).get("metric_list")
        named = {
            str(one.get("metric")): str(one.get("aggregation") or "")
            for one in (listed if isinstance(listed, list) else ())
            if isinstance(one, dict)
        }
        numbers: dict[tuple[str, str], Estimate] = {
            (one.pipeline, one.metric): one for one in self.run.estimates if one.task == task
        }
        score_key = str(self._config(task).get("score_key") or "score")
        columns = {}
        for key in sorted(values, key=lambda key: [*numbers].index(key) if key in numbers else len(numbers)):
            number = numbers.get(key)
            columns[key] = ScoreColumn(
                pipeline=key[0],
                metric=key[1],
                values=values[key],
                aggregation=named.get(key[1], ""),
                higher_is_better=number.higher_is_better if number else None,
                reported=_to_float(number.value) if number else None,
                score_key=score_key,
            )
        return columns

    def _task_facts(self, task: str) -> dict[str, Any]:
        known, manifest = self.run.tasks[task], self.run.facts.get("manifest")
        about = (manifest or {}).get("tasks", {}).get(task, {}) if isinstance(manifest, dict) else {}
        dataset = about.get("dataset", {})
        return {
            "few-shot examples": known.get("n_shot"),
            "generation settings": about.get("settings"),
            "dataset": {key: dataset[key] for key in ("path", "name", "split") if dataset.get(key)} or None,
            "task version": known.get("version"),
            "filters": about.get("filters"),
            "metrics": about.get("metrics"),
            "judges": self._find_judges(task),
            "judged metrics": self._find_judged_metrics(task),
            "agent tools": _flatten_pins(about.get("agent")),
            "metric definitions": self._describe_metrics(task),
        }

    def _describe_metrics(self, task: str) -> dict[str, str]:
        """Return the definition of each metric as text, to show what changed."""
        config = self._config(task)
        listed = config.get("metric_list")
        entries = {
            str(one.get("metric")): one
            for one in (listed if isinstance(listed, list) else ())
            if isinstance(one, dict)
        }
        code = config.get("process_results")
        return {
            name: json.dumps(entries.get(name, {}), sort_keys=True, ensure_ascii=False)
            + (f"\n{code}" if code else "")
            for name in self.run.tasks[task].get("metrics", ())
        }

    def _find_judges(self, task: str) -> dict[str, Any] | None:
        """Return the judges that scored a task, with their identities; None without judges."""
        known = self.run.facts.get("judges", {})
        names = [name for (name,) in self.run.journal.query(_SELECT_JUDGES, (task,))]
        return {name: known.get(name, {}) for name in names} or None

    def _find_judged_metrics(self, task: str) -> list[str]:
        """Return the metrics that may depend on a judge; task code may call one for any metric."""
        config = self._config(task)
        metrics = list(self.run.tasks[task].get("metrics", ()))
        listed = config.get("metric_list")
        if config.get("process_results") or not isinstance(listed, list):
            return metrics
        plain = {one.get("metric") for one in listed if isinstance(one, dict) and "judge" not in one}
        return [name for name in metrics if name not in plain]

    def _read_excerpts(self, task: str, documents: Sequence[int]) -> Iterator[DocumentExcerpt]:
        facts = self.run.facts
        for document in documents:
            for place, target, requests, answers in self.run.journal.query(_SELECT_EXCERPT, (document, task)):
                content = json.loads(requests)
                found = self.run.journal.find([request[5] for request in content["requests"]])
                responses = [found.get(request[5]) for request in content["requests"]]
                known = [one for one in responses if one is not None]
                arguments = {request[4] for request in content["requests"] if request[2] == "generate"}
                settings = [facts.get(f"settings:{digest}", {}) for digest in sorted(arguments)]
                usage = known[0].usage if known else None
                yield DocumentExcerpt(
                    document=place,
                    prompt=content["prompts"][0] if content["prompts"] else "",
                    responses=tuple(_format_response(one) for one in responses),
                    answers={
                        name: str(_unwrap_single(value))
                        for name, value in json.loads(answers or "{}").items()
                    },
                    target=str(json.loads(target)["target"]),
                    finish=known[0].finish if known else "",
                    input_tokens=None if usage is None else usage.input_tokens,
                    settings=json.dumps(settings[0], sort_keys=True, default=str) if settings else "",
                )


def describe_model(identity: Mapping[str, Any], arguments: Mapping[str, Any], backend: str) -> dict[str, Any]:
    """Return what distinguishes two evaluations of one model: backend, dtype, revision, quantisation; None if unknown."""
    known = {**arguments, **identity}
    quantised = {
        key: str(value)
        for key, value in known.items()
        if key.startswith(_QUANTISATION_KEYS) and str(value) not in ("False", "None", "")
    }
    return {
        "backend": backend or None,
        "dtype": known.get("dtype"),
        "revision": known.get("commit") or known.get("revision"),
        "quantisation": ", ".join(f"{key}={value}" for key, value in sorted(quantised.items())) or "none",
    }


def _find_program(run: Run) -> str:
    """Return the program of an imported run whose documents have other fields than their dataset; empty for other runs."""
    program = str(run.facts.get("imported_from") or "")
    return "" if program in ("lm-eval", "lmms-eval") else program


def _find_fewshot_seed(seeds: Any) -> Any:
    """Return the seed of few-shot examples, the last of the four seeds; a single seed is used for all."""
    return (
        seeds[3]
        if isinstance(seeds, (list, tuple)) and len(seeds) > 3
        else seeds
        if isinstance(seeds, int)
        else None
    )


def _format_response(response: Response | None) -> str:
    if response is None:
        return ""
    value = response.scored_value
    return f"{value.total:.10g}" if isinstance(value, LogProbability) else value


def _unwrap_single(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _to_float(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def hash_content(fields: str) -> str:
    """Return the document hash of lm-eval."""
    text = json.dumps(json.loads(fields), indent=2, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _hash_prompt(requests: str) -> str:
    """Return the prompt hash of lm-eval: of the first request."""
    content = json.loads(requests)
    first = content["requests"][0][3] if content["requests"] else 0
    text = content["prompts"][first] if content["prompts"] else ""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def build_repeat_columns(run: Run, task: str, documents: Sequence[int]) -> dict[tuple[str, str], ScoreColumn]:
    """Return columns such as `exact_match.pass@4` for a task with repeats."""
    if not run.facts.get("repeats"):
        return {}
    directions = {
        (one.pipeline, one.metric): one.higher_is_better for one in run.estimates if one.task == task
    }
    columns = {}
    positions = {document: at for at, document in enumerate(documents)}
    for (pipeline, metric), table in RepeatTable.build_tables(run.journal.read_repeats(task)).items():
        for name, numbers in compute_repeat_metrics(table).items():
            values: list[float | None] = [None] * len(documents)
            for document, number in zip(table.documents, numbers.tolist(), strict=True):
                if document in positions:
                    values[positions[document]] = number
            key = (pipeline, f"{metric}.{name}")
            columns[key] = ScoreColumn(
                pipeline=pipeline,
                metric=key[1],
                values=values,
                aggregation="mean",
                higher_is_better=directions.get((pipeline, metric)),
            )
    return columns


def build_repeat_estimates(run: Run) -> list[Estimate]:
    """Return the estimates of the repeat metrics."""
    directions = {(one.task, one.pipeline, one.metric): one.higher_is_better for one in run.estimates}
    return [
        Estimate(
            task=about["task"],
            metric=f"{about['metric']}.{name}",
            pipeline=about["pipeline"],
            value=number["value"],
            stderr=number["stderr"],
            method="mean" if number["stderr"] is not None else "",
            interval=None if number["interval"] is None else (number["interval"][0], number["interval"][1]),
            interval_method=number.get("interval_method", ""),
            clusters=about.get("clusters"),
            scored=about["documents"],
            higher_is_better=directions.get((about["task"], about["pipeline"], about["metric"])),
        )
        for about in run.facts.get("repeats", ())
        for name, number in about["numbers"].items()
    ]


def _flatten_pins(pins: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Return the MCP servers and programs of an agent task by name, to compare them; None if there are none."""
    if not pins:
        return None
    found: dict[str, str] = {}
    for name, server in pins.get("mcp", {}).items():
        found[f"server {name}"] = server["version"]
        found |= {f"{name}.{tool}": digest[:12] for tool, digest in server["tools"].items()}
    if "program" in pins:
        found |= {"program": pins["program"]["command"], "program files": pins["program"]["files"][:12]}
    return found
