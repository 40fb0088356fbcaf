"""A stored run as sheets: read in a few seconds for a hundred thousand documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from assay.core.errors import UnknownName
from assay.core.responses import LogProbability, Response
from assay.core.verdicts import Estimate
from assay.store.repeat_sheets import repeat_columns, repeat_estimates
from assay.store.rows import from_json, verdict_value
from assay.store.runs import Run
from assay.store.sheets import Column, Kind, Look, Sheet

__all__ = ["RunSheets"]

_TOGETHER = 2000
"""Documents whose verdicts are decoded as one text: three times as fast as one by one."""

_QUERY = """
SELECT a.id - t.first, a.fields, a.requests, j.outcome, j.verdicts
FROM tasks t JOIN asked a ON a.id BETWEEN t.first AND t.last LEFT JOIN judged j ON j.id = a.id
WHERE t.name = ? ORDER BY a.id
"""
_FIELD = """
SELECT json_extract(a.fields, ?) FROM tasks t JOIN asked a ON a.id BETWEEN t.first AND t.last
WHERE t.name = ? ORDER BY a.id
"""
_LOOK = """
SELECT a.id - t.first, a.target, a.requests, j.answers FROM tasks t JOIN asked a ON a.id = t.first + ?
LEFT JOIN judged j ON j.id = a.id WHERE t.name = ?
"""


class RunSheets:
    """What a run says of its documents."""

    def __init__(self, run: Run, name: str = "") -> None:
        self.run = run
        self.name = name or run.id
        self.model = run.model

    @property
    def tasks(self) -> list[str]:
        return list(self.run.tasks)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Options that reach into every prompt, under names people know."""
        spec, identity = self.run.facts.get("spec", {}), self.run.facts.get("identity", {})
        template = spec.get("apply_chat_template")
        return {
            "chat template": (identity.get("template_sha256") or template or True) if template else None,
            "system instruction": spec.get("system_instruction"),
            "few-shot as turns": bool(spec.get("fewshot_as_multiturn") or template) if template else False,
            "limit": spec.get("limit"),
            "gen_kwargs": spec.get("gen_kwargs") or None,
            "seed": spec.get("seed"),
        }

    def sheet(self, task: str, kind: Kind | None = None) -> Sheet:
        """All documents of a task that were asked, in order.

        Raises:
            UnknownName: The run has no such task.
        """
        if task not in self.run.tasks:
            raise UnknownName(
                f"the run `{self.name}` has no task `{task}`", hint=f"it has: {', '.join(self.run.tasks)}"
            )
        as_files = kind == "files"
        documents: list[int] = []
        contents: list[Any] = []
        prompts: list[Any] = []
        endings: list[str] = []
        columns: dict[tuple[str, str], list[Any]] = {}
        with self.run.journal.decoding():
            for chunk in self._chunks(task):
                verdicts = from_json(f"[{','.join(row[4] or '[]' for row in chunk)}]")
                start = len(documents)
                for at, (row, listed) in enumerate(zip(chunk, verdicts, strict=True), start):
                    documents.append(row[0])
                    contents.append(_content_sha(row[1]) if as_files else hash(row[1]))
                    prompts.append(
                        _prompt_sha(row[2]) if as_files else hash(row[2].rpartition('"requests": ')[0])
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
                        column.append(verdict_value(value) if type(value) is str else value)
        for column in columns.values():
            column.extend([None] * (len(documents) - len(column)))
        return Sheet(
            task=task,
            kind="files" if as_files else "assay",
            documents=documents,
            contents=contents,
            prompts=prompts,
            endings=endings,
            columns={**self._columns(task, columns), **repeat_columns(self.run, task, documents)},
            facts=self._task_facts(task),
            cluster_key=str(self._config(task).get("cluster_key") or ""),
        )

    def numbers(self) -> list[Estimate]:
        """The run's estimates, and what its repeats say."""
        return [*self.run.estimates, *repeat_estimates(self.run)]

    def field(self, task: str, name: str) -> list[Any]:
        """One field of each document; nested ones with dots."""
        path = "$." + ".".join(f'"{part}"' for part in name.split("."))
        return [value for (value,) in self.run.journal.query(_FIELD, (path, task))]

    def field_names(self, task: str) -> list[str]:
        """The fields of the first document."""
        first = next(self._chunks(task), [])
        return list(json.loads(first[0][1])) if first else []

    def looks(self, task: str, documents: Sequence[int]) -> dict[int, Look]:
        """Some documents with prompts, responses, answers."""
        return {look.document: look for look in self._looks(task, documents)}

    def close(self) -> None:
        self.run.close()

    def _chunks(self, task: str) -> Iterator[list[tuple[Any, ...]]]:
        rows = self.run.journal.query(_QUERY, (task,))
        while chunk := list(islice(rows, _TOGETHER)):
            yield chunk

    def _config(self, task: str) -> Mapping[str, Any]:
        config: Mapping[str, Any] = self.run.tasks.get(task, {}).get("config", {})
        return config

    def _columns(
        self, task: str, values: Mapping[tuple[str, str], list[Any]]
    ) -> dict[tuple[str, str], Column]:
        """The columns in the order of the run's table; those it reports nothing about come last."""
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
        made = {}
        for key in sorted(values, key=lambda key: [*numbers].index(key) if key in numbers else len(numbers)):
            number = numbers.get(key)
            made[key] = Column(
                pipeline=key[0],
                metric=key[1],
                values=values[key],
                aggregation=named.get(key[1], ""),
                higher_is_better=number.higher_is_better if number else None,
                reported=_number(number.value) if number else None,
                score_key=score_key,
            )
        return made

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
        }

    def _looks(self, task: str, documents: Sequence[int]) -> Iterator[Look]:
        facts = self.run.facts
        for document in documents:
            for place, target, requests, answers in self.run.journal.query(_LOOK, (document, task)):
                content = json.loads(requests)
                found = self.run.journal.find([request[5] for request in content["requests"]])
                responses = [found.get(request[5]) for request in content["requests"]]
                known = [one for one in responses if one is not None]
                arguments = {request[4] for request in content["requests"] if request[2] == "generate"}
                settings = [facts.get(f"settings:{mark}", {}) for mark in sorted(arguments)]
                usage = known[0].usage if known else None
                yield Look(
                    document=place,
                    prompt=content["prompts"][0] if content["prompts"] else "",
                    responses=tuple(_said(one) for one in responses),
                    answers={
                        name: str(_single(value)) for name, value in json.loads(answers or "{}").items()
                    },
                    target=str(json.loads(target)["target"]),
                    finish=known[0].finish if known else "",
                    input_tokens=None if usage is None else usage.input_tokens,
                    settings=json.dumps(settings[0], sort_keys=True, default=str) if settings else "",
                )


def _said(response: Response | None) -> str:
    if response is None:
        return ""
    value = response.value
    return f"{value.total:.4f}" if isinstance(value, LogProbability) else value


def _single(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _content_sha(fields: str) -> str:
    """The mark lm-evaluation-harness makes of a document."""
    text = json.dumps(json.loads(fields), indent=2, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _prompt_sha(requests: str) -> str:
    """The mark it makes of a prompt: of the first request's text."""
    content = json.loads(requests)
    first = content["requests"][0][3] if content["requests"] else 0
    text = content["prompts"][first] if content["prompts"] else ""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
