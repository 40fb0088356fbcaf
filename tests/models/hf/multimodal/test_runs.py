"""Whole runs: the scores of the embedded model through transformers, and lmms-eval command lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.making import Function, write_task
from tests.making_media import write_video
from tests.models.hf.multimodal.tiny_multimodal import tiny

import assay
from assay.models.embedded.adapter import SHIPPED_WEIGHTS

pytestmark = pytest.mark.torch
HELPERS = """
from PIL import Image

def doc_to_visual(doc):
    return [Image.new("RGB", (40, 30), (int(doc["answer"]) * 30, 10, 200))]

def doc_to_video(doc):
    return [doc["video"]]

def doc_to_text(doc, lmms_eval_specific_kwargs):
    return doc["question"] + lmms_eval_specific_kwargs["post_prompt"]
"""
KEYWORDS = {"default": {"post_prompt": " (anyone)"}, "qwen2_5_vl": {"post_prompt": " (Qwen)"}}


def picture_task(folder: Path, **keys: Any) -> str:
    path = write_task(
        folder,
        helpers=HELPERS,
        **{
            "doc_to_visual": Function("utils.doc_to_visual"),
            "doc_to_text": Function("utils.doc_to_text"),
            "lmms_eval_specific_kwargs": KEYWORDS,
            "generation_kwargs": {"max_new_tokens": 4},
            **keys,
        },
    )
    return str(path)


def test_the_quickstart_scores_the_same_as_with_the_embedded_model(workspace: Path) -> None:
    tasks = ["quickstart_shapes", "quickstart_facts", "quickstart_copy", "quickstart_stories"]
    own = assay.run(tasks=tasks, limit=6)
    arguments = {"pretrained": str(SHIPPED_WEIGHTS), "batch_size": 6}
    through = assay.run(model="hf", model_args=arguments, tasks=tasks, limit=6)
    for task in tasks:
        numbers = {key: value for key, value in own.results[task].items() if isinstance(value, float)}
        assert numbers
        assert {key: through.results[task][key] for key in numbers} == pytest.approx(numbers, rel=1e-4), task


@pytest.mark.parametrize(("name", "ending"), [("qwen2_5_vl", "(Qwen)"), ("hf", "(anyone)")])
def test_a_task_selects_its_prompt_by_model_name(workspace: Path, name: str, ending: str) -> None:
    arguments = {"pretrained": str(tiny("qwen2_5_vl")), "max_pixels": 50_000}
    run = assay.run(
        model=name, model_args=arguments, tasks=[picture_task(workspace)], batch_size="3", limit=4
    )
    assert sum(run.outcomes("sums").values()) == 4 and not run.outcomes("sums").get("failed")
    plan = assay.plan(model=name, model_args=arguments, tasks=[picture_task(workspace)])
    document, requests = next(iter(plan.tasks["sums"].task.render()))
    assert document is not None and requests[0].prompt.text.endswith(ending)


def test_choices_about_an_image_are_scored_by_likelihood(workspace: Path) -> None:
    task = picture_task(
        workspace,
        output_type="multiple_choice",
        doc_to_choice=["1", "2", "none of these"],
        doc_to_target=0,
        metric_list=[{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        generation_kwargs=None,
    )
    run = assay.run(
        model="llava_onevision", model_args={"pretrained": str(tiny("llava_onevision"))}, tasks=[task]
    )
    assert run.outcomes("sums") == {"scored": 6}


def test_a_broken_video_fails_only_its_document(workspace: Path) -> None:
    pytest.importorskip("av")
    good, bad = workspace / "good.mp4", workspace / "bad.mp4"
    write_video(good)
    bad.write_bytes(b"no video")
    rows = [
        {"question": "What?", "answer": str(at), "video": str(path)} for at, path in enumerate((good, bad))
    ]
    path = write_task(
        workspace,
        rows=rows,
        helpers=HELPERS,
        doc_to_visual=Function("utils.doc_to_video"),
        generation_kwargs={"max_new_tokens": 4},
    )
    arguments = {"pretrained": str(tiny("qwen3_vl")), "max_num_frames": 4}
    run = assay.run(model="qwen3_vl", model_args=arguments, tasks=[str(path)], max_failures="1.0")
    assert run.outcomes("sums")["failed"] == 1
