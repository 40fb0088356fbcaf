"""Write small tasks for tests: a YAML file, its data and its helpers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from assay.core.options.run_spec import RunSpec
from assay.core.ports import Model
from assay.core.records.requests import Request
from assay.core.records.responses import Outcome
from assay.engine.planning.plan import make_plan
from assay.engine.planning.records import Plan
from assay.testing import ScriptedModel

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(6)]
"""Six sums, for tests that do not depend on the questions."""


class Function(str):
    """A `!function` reference."""


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(Function, lambda dumper, value: dumper.represent_scalar("!function", str(value)))


def write_task(
    folder: Path,
    name: str = "sums",
    rows: Sequence[Mapping[str, Any]] = ROWS,
    *,
    helpers: str = "",
    **keys: Any,
) -> Path:
    """Write a generation task with exact_match and return its path. `keys` override the config; None removes a key."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    if helpers:
        (folder / "utils.py").write_text(helpers, "utf-8")
    config = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": data.name}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "Question: {{question}}\nAnswer:",
        "doc_to_target": "answer",
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1.0},
        **keys,
    }
    config = {key: value for key, value in config.items() if value is not None}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.dump(config, Dumper=_Dumper, sort_keys=False), "utf-8")
    return path


def write_choices(folder: Path, name: str = "choices", rows: int = 4, **keys: Any) -> Path:
    """Write a multiple-choice task with two choices per document."""
    data = [
        {"question": f"Is {n} even?", "choices": ["no", "yes"], "answer": (n + 1) % 2} for n in range(rows)
    ]
    return write_task(
        folder,
        name,
        data,
        **{
            "output_type": "multiple_choice",
            "doc_to_choice": "choices",
            "metric_list": [{"metric": "acc"}],
            **keys,
        },
    )


def write_texts(folder: Path, name: str = "texts", rows: int = 3, **keys: Any) -> Path:
    """Write a perplexity task."""
    data = [{"text": f"Once there were {n} frogs."} for n in range(rows)]
    return write_task(
        folder,
        name,
        data,
        **{
            "output_type": "loglikelihood_rolling",
            "doc_to_text": "",
            "doc_to_target": "{{text}}",
            "metric_list": [{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}],
            **keys,
        },
    )


def answer_correctly(request: Any) -> str:
    """Return the correct answer to a request for `ROWS`."""
    number = request.prompt.text.partition("What is ")[2].partition(" +")[0]
    return str(int(number) + 1)


def plan_run(model: Any = None, **options: Any) -> Plan:
    """Return a plan, made in a new event loop."""
    if isinstance(model, str):
        return asyncio.run(make_plan(RunSpec.of({**options, "model": model})))
    if model is not None:
        options["model"] = model.name
    return asyncio.run(make_plan(RunSpec.of(options), model=model))


def make_model(answers: Callable[[Any], Any] | None = answer_correctly, **details: Any) -> ScriptedModel:
    """Return a scripted model that answers correctly by default."""
    return ScriptedModel(answers, **details)


def ask(model: Model, *requests: Request) -> list[Outcome]:
    """Open a model, return its outcomes in request order, and close it."""

    async def collect() -> list[Outcome]:
        await model.open()
        try:
            found = {outcome.request_id: outcome async for outcome in model.answer(requests)}
        finally:
            await model.close()
        return [found[request.id] for request in requests]

    return asyncio.run(collect())
