"""Records this corpus with the real harness: `python record.py` where lmms_eval 0.7.3 and what it needs is importable.

The tasks and documents are Assay's own. What the harness asks, filters and computes is the truth the replay is
tested against; the format is that of `shared/oracle/lmms_eval/FORMAT.md`.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import math
import os
import random
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent.resolve()
WORK = Path(tempfile.mkdtemp()).resolve()
os.environ["HF_HOME"] = str(WORK / "hf_home")
os.chdir(WORK)

import datasets  # noqa: E402
import numpy  # noqa: E402
import yaml  # noqa: E402
from lmms_eval import evaluator  # noqa: E402
from lmms_eval.api.model import lmms  # noqa: E402
from lmms_eval.tasks import TaskManager, get_task_dict  # noqa: E402
from PIL import Image  # noqa: E402

MODELS = ("default", "qwen2_5_vl", "qwen3_vl")
THOUGHT = "<think>a or b</think> "
TAGS = '[["<think>","</think>"],["<analysis>","</analysis>"]]'
MEDIA: dict[str, dict[str, Any]] = {}


def rows() -> dict[str, tuple[list[dict[str, Any]], Any]]:
    """The documents, made up from a fixed seed, with their columns."""
    draw = random.Random(11)

    def picture() -> Image.Image:
        return Image.frombytes("RGB", (3, 2), bytes(draw.randrange(256) for _ in range(18)))

    pictures = [
        {
            "id": at,
            "question": f"What is in room {at}",
            "answer": draw.choice("abc"),
            "room": f"room {at % 3}",
            "picture": picture(),
            "more": [picture() for _ in range(at % 2)],
        }
        for at in range(7)
    ]
    choices = [
        {
            "question": f"Which letter is {at}?",
            "letters": draw.sample("abcd", 3),
            "gold": draw.randrange(3),
            "sound": {"array": [draw.random() for _ in range(4)], "sampling_rate": 8000, "path": f"{at}.wav"},
        }
        for at in range(6)
    ]
    text, number = datasets.Value("string"), datasets.Value("int64")
    sound = {"array": datasets.List(datasets.Value("float32")), "sampling_rate": number, "path": text}
    return {
        "mini/pictures": (
            pictures,
            datasets.Features(
                id=number,
                question=text,
                answer=text,
                room=text,
                picture=datasets.Image(),
                more=datasets.List(datasets.Image()),
            ),
        ),
        "mini/choices": (
            choices,
            datasets.Features(question=text, letters=datasets.List(text), gold=number, sound=sound),
        ),
    }


ROWS = rows()


def load_dataset(path: str, *_: Any, **__: Any) -> Any:
    documents, features = ROWS[path]
    columns = {name: [row[name] for row in documents] for name in features}
    return datasets.DatasetDict({"test": datasets.Dataset.from_dict(columns, features=features)})


def encoded(value: Any) -> Any:
    """A value as the corpus writes it; media go into the table."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"__float__": str(value)}
    if isinstance(value, Image.Image):
        return _picture(value)
    if isinstance(value, dict) and "sampling_rate" in value:
        return _sound(value)
    if isinstance(value, dict):
        return {str(key): encoded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encoded(item) for item in value]
    if isinstance(value, numpy.generic):
        return encoded(value.item())
    return value.replace(str(WORK), "$WORK") if isinstance(value, str) else value


def _picture(value: Image.Image) -> Any:
    width, height = value.size
    sha = hashlib.sha256(f"{value.mode}:{width}x{height}:".encode() + value.tobytes()).hexdigest()
    stream = io.BytesIO()
    value.save(stream, "PNG")
    png = base64.b64encode(stream.getvalue()).decode()
    MEDIA[sha] = {"sha256": sha, "kind": "image", "mode": value.mode, "size": [width, height], "png_b64": png}
    return {"__media__": "image", "sha256": sha, "size": [width, height], "mode": value.mode}


def _sound(value: dict[str, Any]) -> Any:
    samples = numpy.asarray(value["array"], dtype="<f4")
    sha = hashlib.sha256(samples.tobytes()).hexdigest()
    data = base64.b64encode(samples.tobytes()).decode()
    MEDIA[sha] = {"sha256": sha, "kind": "audio", "n": samples.size, "f32_b64": data}
    rest = {key: item for key, item in value.items() if key not in ("array", "sampling_rate")}
    return {
        "__media__": "audio",
        "sha256": sha,
        "sampling_rate": value["sampling_rate"],
        "n": samples.size,
        "rest": rest,
    }


class Recorder(lmms):
    """Answers by a hash of the question, and remembers both."""

    def __init__(self, task: Any) -> None:
        super().__init__()
        self.task = task
        self.requests: list[dict[str, Any]] = []
        self.responses: dict[str, list[Any]] = {}

    def _remember(self, request: Any, **more: Any) -> int:
        context, doc_id, split = request.args[0], request.args[3], request.args[5]
        visuals = request.args[2](self.task.dataset[split][doc_id])
        entry = {"doc_id": doc_id, "idx": request.idx, "request_type": request.request_type, "ctx": context}
        self.requests.append({**entry, **encoded(more), "split": split, "visuals": encoded(visuals)})
        return int.from_bytes(hashlib.sha256(f"{context}{more}{len(self.requests)}".encode()).digest()[:4])

    def generate_until(self, requests: list[Any]) -> list[Any]:
        said = []
        for request in requests:
            number = self._remember(request, generation_kwargs=request.args[1])
            text = (THOUGHT if number % 3 == 0 else "") + "abcC"[number % 4] + (" " if number % 2 else "")
            self.responses.setdefault(str(request.args[3]), []).append(text)
            said.append(text)
        return said

    def loglikelihood(self, requests: list[Any]) -> list[Any]:
        said = []
        for request in requests:
            number = self._remember(request, continuation=request.args[1])
            value = (round(0.1 + number % 9000 / 1000, 4), bool(number & 1))
            self.responses.setdefault(str(request.args[3]), []).append(list(value))
            said.append(value)
        return said

    def generate_until_multi_round(self, requests: list[Any]) -> list[Any]:
        raise NotImplementedError


def load(name: str, model: str, kind: str = "simple") -> Any:
    manager = TaskManager(include_path=str(HERE / "tasks"), include_defaults=False, model_name=model)
    task = get_task_dict([name], manager, kind)[name]
    if task.config.num_fewshot is None:
        task.set_config("num_fewshot", 0)
    task.set_fewshot_seed(1234)
    return task


def seed() -> None:
    random.seed(0)
    numpy.random.seed(1234)


def task_record(name: str) -> dict[str, Any]:
    seed()
    task = load(name, "default")
    recorder = Recorder(task)
    arguments = argparse.Namespace(
        output_path=str(WORK / "out"), process_with_media=False, reasoning_tags=TAGS, model="default"
    )
    results = evaluator.evaluate(
        recorder,
        {name: task},
        bootstrap_iters=1000,
        log_samples=True,
        cli_args=arguments,
        process_docs_parallel=1,
    )
    fields, features = ROWS[task.DATASET_PATH]
    names = [
        *dict.fromkeys(metric.rpartition(",")[0] for metric in results["results"][name] if "," in metric)
    ]
    metrics = {one for one in names if not one.endswith(("_stderr", "_stderr_clt", "_stderr_clustered"))}
    filters = [ensemble.name for ensemble in task._filters]
    samples = results["samples"][name]
    record = {
        "task": name,
        "yaml_relpath": f"tasks/{name}.yaml",
        "type": "task",
        "output_type": task.OUTPUT_TYPE,
        "features_hf": features.to_dict(),
        "docs": encoded(fields),
        "splits": {"test": "=docs"},
        "requests": recorder.requests,
        "responses": recorder.responses,
        "samples": [
            {
                "doc_id": one["doc_id"],
                "filter": filters[at // len(fields)],
                "filtered_resps": encoded(one["filtered_resps"]),
                "metrics": encoded({key: one[key] for key in one if key in metrics}),
            }
            for at, one in enumerate(samples)
        ],
        "results": encoded(
            {key: value for key, value in results["results"][name].items() if key != "samples"}
        ),
        "higher_is_better": results["higher_is_better"][name],
        "n_samples": results["n-samples"][name],
        "skipped_metrics": {},
        "flags": {},
        "deps": [],
        "files": {},
    }
    return {**record, **_per_document(name, task), **_per_model(name)}


def _per_document(name: str, task: Any) -> dict[str, Any]:
    documents = list(task.eval_docs)
    choices = task.config.doc_to_choice is not None
    seed()
    per_doc = [
        {
            "doc_id": at,
            "text": encoded(task.doc_to_text(doc)),
            "target": encoded(task.doc_to_target(doc)),
            "choices": encoded(task.doc_to_choice(doc)) if choices else None,
        }
        for at, doc in enumerate(documents)
    ]
    found: dict[str, Any] = {"per_doc": per_doc}
    if task.OUTPUT_TYPE == "generate_until":
        chat = load(name, "default", "chat")
        found["messages"] = [
            {"doc_id": at, "messages": encoded(chat.doc_to_messages(doc))} for at, doc in enumerate(documents)
        ]
        found["alt_samples"] = []
        for text in ("a", "b"):
            seed()
            judged = task.process_results(task.eval_docs_no_media[0], [text])
            found["alt_samples"].append({"doc_id": 0, "response": text, "metrics": encoded(judged)})
    return found


def _per_model(name: str) -> dict[str, Any]:
    tasks = {model: load(name, model) for model in MODELS}
    texts = {
        model: [encoded(task.doc_to_text(doc)) for doc in task.eval_docs]
        for model, task in tasks.items()
        if model != "default"
    }
    return {
        "specific_kwargs": {model: encoded(task.lmms_eval_specific_kwargs) for model, task in tasks.items()},
        "generation_kwargs": {model: encoded(task.config.generation_kwargs) for model, task in tasks.items()},
        "per_model_text": texts,
    }


def main() -> None:
    datasets.load_dataset = load_dataset
    real = evaluator.unwrap_generation_output
    evaluator.unwrap_generation_output = lambda value: (
        (value, None) if isinstance(value, tuple) else real(value)
    )
    names = ["mini_choices", "mini_letters", "mini_messages", "mini_pictures"]
    records = [task_record(name) for name in names]
    group = yaml.safe_load((HERE / "tasks" / "mini_group.yaml").read_text())
    groups = {
        "groups": {"mini_group": {"yaml_relpath": "tasks/mini_group.yaml", **group}},
        "tags": {"mini_tag": ["mini_choices", "mini_messages"]},
    }
    for file, lines in (("records-00.jsonl", records), ("media.jsonl", list(MEDIA.values()))):
        (HERE / file).write_text(
            "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in lines), "utf-8"
        )
    (HERE / "groups.json").write_text(json.dumps(groups, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
