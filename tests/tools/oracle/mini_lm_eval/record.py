"""Records this corpus with the real harness: `python record.py` where lm_eval 0.4.13 and datasets are installed.

The tasks and documents are Assay's own. What the harness asks, filters and computes is the truth the replay is
tested against; the format is that of `shared/oracle/lm_eval/FORMAT.md`.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from pathlib import Path
from typing import Any

import datasets
import numpy
from lm_eval.api.model import LM
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager

HERE = Path(__file__).parent
LIMIT, ITERATIONS = 6, 10
SYSTEM = "You answer briefly."
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "fs3": {"num_fewshot": 3},
    "chat_mt_sys_fs3": {"num_fewshot": 3, "chat": True, "multiturn": True, "system": SYSTEM},
    "chat": {"chat": True},
}
WORDS = ["river", "stone", "green", "it's", "( word )", "seven", "7", "-3", "12", "Answer: 5"]


def rows() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The documents, made up from a fixed seed."""
    draw = random.Random(7)
    numbers = [{"a": draw.randint(0, 9), "b": draw.randint(0, 9)} for _ in range(12)]
    facts = [
        {
            "question": f"Which is number {at}?",
            "choices": draw.sample(WORDS, 3 + at % 2),
            "gold": draw.randint(0, 2),
        }
        for at in range(11)
    ]
    facts[6]["gold"] = 7
    words = [{"words": " ".join(draw.choices(WORDS, k=3)), "keep": at % 4 != 1} for at in range(10)]
    texts = [{"text": " ".join(draw.choices(WORDS, k=5)) + "\n"} for _ in range(3)]
    reading = [
        {
            "passage": " ".join(draw.choices(WORDS, k=4)),
            "question": f"What is {at}?",
            "answer": draw.choice(WORDS),
        }
        for at in range(7)
    ]
    return {
        "mini/add": {"train": numbers[:5], "test": numbers[5:]},
        "mini/facts": {"train": facts[:4], "test": facts[4:]},
        "mini/words": {"test": words},
        "mini/stories": {"validation": texts},
        "mini/reading": {"validation": reading},
    }


ROWS = rows()


def load_dataset(path: str, name: str | None = None, **_: Any) -> Any:
    made = {split: datasets.Dataset.from_list(rows) for split, rows in ROWS[path].items()}
    return datasets.DatasetDict(made)


def encoded(value: Any) -> Any:
    """A value as the corpus writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if isinstance(value, dict):
        return {str(key): encoded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encoded(item) for item in value]
    if isinstance(value, numpy.generic):
        return encoded(value.item())
    return value


class Recorder(LM):
    """Answers by a hash of the question, and remembers both."""

    tokenizer_name = "mini"

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[dict[str, Any]] = []
        self.responses: dict[str, list[Any]] = {}

    def apply_chat_template(self, messages: Any, add_generation_prompt: bool = True) -> str:
        text = "".join(f"<|{one['role']}|>\n{one['content']}<|end|>\n" for one in messages)
        return text + "<|assistant|>\n" if add_generation_prompt else text.removesuffix("<|end|>\n")

    def _answers(self, requests: list[Any], kind: str) -> list[Any]:
        said, seen = [], {}
        for request in requests:
            args = encoded(list(request.args))
            text = json.dumps([kind, args], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
            key = hashlib.sha256(text.encode()).hexdigest()
            digest = hashlib.sha256(key.encode()).digest()
            repeat = seen[id(request)] = seen.get(id(request), -1) + 1
            if repeat == 0:
                entry = {"type": kind, "args": args, "doc_id": request.doc_id, "idx": request.idx}
                self.requests.append({**entry, "repeats": request.repeats, "key": key})
                self.responses[key] = []
            if kind == "generate_until":
                value: Any = f"{WORDS[digest[repeat] % len(WORDS)]} {digest[repeat + 8] % 12}"
            elif kind == "loglikelihood":
                value = [
                    -round(0.01 + int.from_bytes(digest[:5], "big") % 200000 / 10000, 4),
                    bool(digest[5] & 1),
                ]
            else:
                value = -round(1 + int.from_bytes(digest[:5], "big") % 3000000 / 10000, 4)
            self.responses[key].append(value)
            said.append(tuple(value) if isinstance(value, list) else value)
        return said

    def loglikelihood(self, requests: list[Any], **_: Any) -> list[Any]:
        return self._answers(requests, "loglikelihood")

    def loglikelihood_rolling(self, requests: list[Any], **_: Any) -> list[Any]:
        return self._answers(requests, "loglikelihood_rolling")

    def generate_until(self, requests: list[Any], **_: Any) -> list[Any]:
        return self._answers(requests, "generate_until")


def run(name: str, variant: dict[str, Any]) -> tuple[Recorder, dict[str, Any], dict[str, Any]]:
    """One evaluation by the harness, with the seeds of its command line."""
    random.seed(0)
    numpy.random.seed(1234)
    loaded = TaskManager(include_path=HERE / "tasks", include_defaults=False).load([name])
    for task in loaded["tasks"].values():
        wanted, own = variant.get("num_fewshot"), task.config.num_fewshot
        if wanted is not None and own != 0:
            task.set_config("num_fewshot", wanted)
        elif own is None:
            task.set_config("num_fewshot", 0)
        task.set_fewshot_seed(1234)
    recorder = Recorder()
    results = evaluate(
        recorder,
        loaded,
        limit=LIMIT,
        bootstrap_iters=ITERATIONS,
        log_samples=True,
        system_instruction=variant.get("system"),
        apply_chat_template=variant.get("chat", False),
        fewshot_as_multiturn=variant.get("multiturn", False),
    )
    return recorder, results, loaded


def task_record(name: str, variant_name: str) -> dict[str, Any]:
    variant = VARIANTS[variant_name]
    recorder, results, loaded = run(name, variant)
    task = loaded["tasks"][name]
    order = {"generate_until": 0, "loglikelihood": 1, "loglikelihood_rolling": 2}
    recorder.requests.sort(key=lambda one: (one["doc_id"], one["idx"], order[one["type"]]))
    kept = ("doc_id", "filter", "target", "filtered_resps", "doc_hash", "prompt_hash", "target_hash")
    return {
        "task": name,
        "yaml_relpath": f"{name}.yaml",
        "variant": variant_name,
        "num_fewshot_arg": variant.get("num_fewshot"),
        "chat": variant.get("chat", False),
        "fewshot_as_multiturn": variant.get("multiturn", False),
        "system_instruction": variant.get("system"),
        "limit": LIMIT,
        "bootstrap_iters": ITERATIONS,
        "splits": ROWS[str(task.DATASET_PATH)] if variant_name == "default" else None,
        "requests": recorder.requests,
        "responses": recorder.responses,
        "samples": [
            {
                **{key: encoded(one[key]) for key in kept},
                "metrics": {key: encoded(one[key]) for key in one["metrics"]},
            }
            for one in results["samples"][name]
        ],
        "results": encoded(results["results"][name]),
        "n_shot": results["n-shot"][name],
        "version": results["versions"][name],
        "higher_is_better": results["higher_is_better"][name],
        "n_samples": results["n-samples"][name],
        "uses_global_rng": False,
    }


def group_record(name: str) -> dict[str, Any]:
    recorder, results, loaded = run(name, {})
    tasks = list(loaded["tasks"])
    return {
        "group": name,
        "yaml_relpath": f"{name}.yaml",
        "limit": LIMIT,
        "bootstrap_iters": ITERATIONS,
        "tasks": tasks,
        "results": encoded(results["results"]),
        "group_subtasks": results["group_subtasks"],
        "n_shot": results["n-shot"],
        "versions": results["versions"],
        "higher_is_better": results["higher_is_better"],
        "n_samples": results["n-samples"],
        "extra_responses": recorder.responses,
    }


def write(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records), "utf-8")


def main() -> None:
    datasets.load_dataset = load_dataset
    records = []
    for name in ("mini_add", "mini_facts", "mini_words", "mini_stories"):
        records += [
            task_record(name, variant)
            for variant in VARIANTS
            if name != "mini_stories" or variant == "default"
        ]
    records.append(task_record("mini_class", "default"))
    write(HERE / "tasks-00.jsonl", records)
    write(HERE / "groups.jsonl", [group_record("mini")])


if __name__ == "__main__":
    main()
