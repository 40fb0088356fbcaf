"""Agentic tasks as lmms-eval recorded them: the same prompt in every step, the same last word, the same scores.

Only agentic ones were recorded: mmsearch_end2end and ovo_forward need packages and videos that were not there.
"""

from __future__ import annotations

import io
import json
import os
import re
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from tests.parity.conftest import find_shared

from assay.core.errors import AssayError
from assay.core.records.dialogues import DialogueResult
from assay.scoring.scorer import Scorer
from assay.tasks.data.rows import Rows
from assay.tasks.files.task_loader import load_task
from assay.tasks.task import RenderingOptions, Task

TASKS = ("tau2_bench_telecom", "vending_bench2")
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)


@pytest.fixture(scope="module")
def records() -> dict[str, Any]:
    """The recorded dialogues."""
    zstandard = pytest.importorskip("zstandard")
    shared = find_shared()
    path = shared and shared / "oracle" / "lmms_eval" / "records-00.jsonl.zst"
    if path is None or not path.is_file():
        pytest.skip("no recorded corpus: set ASSAY_SHARED to the folder that holds oracle/lmms_eval")
    found = {}
    with path.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        for line in lines:
            if '"generate_until_agentic"' in line:
                record = json.loads(line)
                found[record["task"]] = record
    return found


@pytest.fixture(scope="module")
def folder() -> Path:
    """The task files of lmms_eval, without importing it."""
    named = os.environ.get("ASSAY_LMMS_EVAL_TASKS")
    if named is None:
        try:
            named = str(distribution("lmms_eval").locate_file("lmms_eval/tasks"))
        except PackageNotFoundError:
            pytest.skip(
                "no task files of lmms_eval: install it, or set ASSAY_LMMS_EVAL_TASKS to an unpacked wheel"
            )
    return Path(named)


def open_recorded(record: dict[str, Any], folder: Path) -> Task:
    spec = load_task(folder.parent / record["yaml_relpath"])
    splits = {name: Rows(record["docs"]) for name in record["splits"]}
    return Task(spec, RenderingOptions(model_name="default"), splits)


@pytest.mark.parametrize("name", TASKS)
def test_every_step_and_the_last_answer_match_the_recording(
    records: dict[str, Any], folder: Path, name: str
) -> None:
    record = records[name]
    task = open_recorded(record, folder)
    scorer = Scorer.from_spec(task.spec)
    asked = 0
    for document, (first, *_) in task.render():
        wanted = [request for request in record["requests"] if request["doc_id"] == document.index]
        answers = record["responses"][str(document.index)]
        dialogue = task.open_dialogue(document, first)  # type: ignore[arg-type]
        turns: list[str] = []
        while not isinstance(step := dialogue.next(turns), DialogueResult):
            request = wanted[len(turns)]
            assert step.prompt.text == request["ctx"]
            assert dict(step.settings.values) == request["generation_kwargs"]
            assert step.round == len(turns)
            turns.append(answers[len(turns)])
        assert len(turns) == len(wanted)
        asked += len(turns)
        sample = next(one for one in record["samples"] if one["doc_id"] == document.index)
        answer = _THOUGHT.sub("", step.answer).strip()  # lmms-eval strips every answer before scoring
        assert [answer] == sample["filtered_resps"]
        judged = scorer.judge(fields=dict(document.fields), answers=[answer], target=None, choices=None)
        assert judged == sample["metrics"]
    assert asked == len(record["requests"]) > 20


def test_a_forward_video_task_asks_about_consecutive_segments(folder: Path, tmp_path: Path) -> None:
    """ovo_forward was not recorded for want of its videos; with small stand-ins its helper runs as it is."""
    for at in range(3):
        (tmp_path / f"7_{at}.mp4").write_bytes(b"video %d" % at)
    row = {
        "id": 7,
        "task": "SSR",
        "test_info": [{"step": f"step {at}", "type": 1} for at in range(3)],
        "answer": "",
    }
    spec = load_task(folder / "ovobench" / "ovo_forward.yaml")
    spec = replace(spec, lmms_eval_specific_kwargs={"default": {"data_dir": str(tmp_path)}})
    task = Task(spec, RenderingOptions(model_name="default"), {"test": Rows([row])})
    try:
        ((document, (first, *_)),) = task.render()
    except AssayError as error:
        pytest.skip(f"the helper cannot be loaded here: {error}")
    dialogue = task.open_dialogue(document, first)  # type: ignore[arg-type]
    turns: list[str] = []
    sources = []
    while not isinstance(step := dialogue.next(turns), DialogueResult):
        assert f"step {len(turns)}" in step.prompt.text
        sources += [part.source for part in step.prompt.media]
        turns.append(f"answer {len(turns)}")
    assert sources == [str(tmp_path / f"7_{at}.mp4") for at in range(3)]
    judged = Scorer.from_spec(spec).judge(
        fields=document.fields, answers=[step.answer], target=None, choices=None
    )
    assert [one["response"] for one in judged["forward_acc"]["test_info"]] == turns
