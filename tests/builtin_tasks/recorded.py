"""What lmms-eval made of the documents of one of its tasks, and whether ours makes the same of them."""

from __future__ import annotations

import base64
import io
import json
import os
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import pytest
from PIL import Image
from tools.oracle.comparison import find_difference
from tools.oracle.corpus import read_records

from assay.core.records.messages import Media, Part, Text
from assay.core.records.requests import Generate
from assay.scoring.scorer import Scorer
from assay.stats.aggregations import aggregate
from assay.tasks.files.index import TaskIndex, builtin_root
from assay.tasks.files.task_loader import load_task
from assay.tasks.task import RenderingOptions, Task

PROJECT = Path(__file__).parents[2]


def corpus_folder() -> Path:
    """The recorded corpus: ASSAY_SHARED, else `shared` beside the project."""
    shared = Path(os.environ.get("ASSAY_SHARED") or PROJECT.parent / "shared")
    folder = shared / "oracle" / "lmms_eval"
    if not folder.is_dir():
        pytest.skip("no recorded corpus: set ASSAY_SHARED to the folder that holds oracle/lmms_eval")
    pytest.importorskip("zstandard", reason="the corpus is compressed with zstandard")
    return folder


@lru_cache
def _record(folder: Path, task: str) -> str:
    """The line of one task: the others are not parsed."""
    import zstandard

    start = json.dumps({"task": task}).removesuffix("}")
    for path in sorted(folder.glob("records-*.jsonl.zst")):
        with path.open("rb") as file:
            reader = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(file)
            for line in io.TextIOWrapper(reader, encoding="utf-8"):
                if line.startswith(f"{start},"):
                    return line
    raise AssertionError(f"the corpus has no {task}")


@lru_cache(maxsize=1)
def _pictures(folder: Path) -> dict[str, str]:
    return {
        line["sha256"]: line["png_b64"]
        for line in read_records(folder, "media.jsonl*")
        if line["kind"] == "image"
    }


class Recorded:
    """One recorded task, and our task of the same name fed with its documents."""

    def __init__(self, task: str, home: Path) -> None:
        folder = corpus_folder()
        self.record: dict[str, Any] = json.loads(_record(folder, task))
        self._folder = folder
        self._home = home
        self._task = task
        for path, name in self.record["files"].items():
            target = Path(path.replace("$HF_HOME", str(home)))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((folder / "media" / name).read_bytes())

    def task(self, model_name: str = "default", *, chat_messages: bool = True) -> Task:
        """Our task over the recorded documents."""
        import datasets

        features = datasets.Features.from_dict(self.record["features_hf"])
        rows = [self._value(row) for row in self.record["docs"]]
        split = datasets.Dataset.from_list(rows, features=features)
        entry = TaskIndex.build([builtin_root()]).entries[self._task]
        assert entry.path is not None
        spec = load_task(entry.path)
        rendering = RenderingOptions(model_name=model_name, chat_messages=chat_messages)
        return Task(spec, rendering, dict.fromkeys(self.record["splits"], split))

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if isinstance(value, dict) and value.get("__media__") == "image":
            data = base64.b64decode(_pictures(self._folder)[value["sha256"]])
            return Image.open(io.BytesIO(data))
        return {key: self._value(item) for key, item in value.items()} if isinstance(value, dict) else value

    def check_prompts(self) -> None:
        """Texts, media and settings of every request; and the texts for other models."""
        requests = [
            request for _, all_of_it in self.task(chat_messages=False).render() for request in all_of_it
        ]
        assert len(requests) == len(self.record["requests"])
        for request, recorded in zip(requests, self.record["requests"], strict=True):
            assert isinstance(request, Generate)
            assert request.prompt.text == recorded["ctx"]
            assert [self._media(part) for part in request.prompt.media] == self._shown(recorded["visuals"])
            assert find_difference(dict(request.settings.values), recorded["generation_kwargs"]) is None
        for model_name, texts in self.record["per_model_text"].items():
            task = self.task(model_name)
            assert [task.question(document.fields) for document in task.documents()] == texts

    def check_messages(self) -> None:
        """The chat messages of every document, part by part."""
        for document, requests in self.task().render():
            (recorded,) = self.record["messages"][document.index]["messages"]
            (message,) = requests[0].prompt.messages
            ours = [self._show_part(part) for part in message.parts]
            theirs = [part["text"] if part["type"] == "text" else part["url"] for part in recorded["content"]]
            assert ours == self._shown(theirs)

    def check_everything(self, *metrics: str) -> None:
        """Prompts, messages, every verdict, and what the named metrics come to over the documents."""
        self.check_prompts()
        self.check_messages()
        judged = self.judged()
        assert len(judged) > 10
        for ours, theirs in judged:
            assert known_to(theirs, ours) == theirs
        first = [ours for ours, _ in judged[: self.record["n_eval_docs"]]]
        self.check_results({name: [ours[name] for ours in first if name in ours] for name in metrics})

    def judged(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """(ours, recorded) of `process_results` for every recorded response, the further ones included."""
        task = self.task()
        fields = [document.fields for document in task.documents()]
        pairs = []
        random.seed(0)
        for sample in self.record["samples"]:
            ours = self._process(task, fields[sample["doc_id"]], list(sample["filtered_resps"]))
            pairs.append((ours, sample["metrics"]))
        for sample in self.record["alt_samples"]:
            random.seed(0)
            if "metrics" in sample:
                ours = self._process(task, fields[sample["doc_id"]], [sample["response"].strip()])
                pairs.append((ours, sample["metrics"]))
        return pairs

    def check_results(self, values: Mapping[str, Sequence[Any]]) -> None:
        """The recorded number of each metric, from the evidence of each document."""
        scorer = Scorer.from_spec(self.task().spec)
        for metric, evidence in values.items():
            result = aggregate(scorer.find_report(metric).aggregation, list(evidence))
            assert find_difference(result, self.record["results"][f"{metric},none"]) is None

    @staticmethod
    def _process(task: Task, fields: Mapping[str, Any], results: list[str]) -> dict[str, Any]:
        assert task.spec.process_results is not None
        made: dict[str, Any] = task.spec.process_results(dict(fields), results)
        return made

    def _show_part(self, part: Part) -> str:
        return part.text if isinstance(part, Text) else self._media(cast("Media", part))

    def _media(self, part: Media) -> str:
        return part.source if type(part).__name__ == "Video" else part.digest

    def _shown(self, visuals: Sequence[Any]) -> list[Any]:
        return [
            one["sha256"] if isinstance(one, dict) else one.replace("$HF_HOME", str(self._home))
            for one in visuals
        ]


def known_to(recorded: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Our metrics without those the record does not know, in the record's types."""
    kept: dict[str, Any] = json.loads(json.dumps({key: ours[key] for key in ours if key in recorded}))
    return kept
