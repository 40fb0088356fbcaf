"""lmms-eval hides pictures and sounds from texts and from judging."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image as Pictures

from assay.core.records.specs import TaskSpec
from assay.tasks.task import RenderingOptions, Task

datasets = pytest.importorskip("datasets")


def join_keys(fields: Any) -> str:
    return ",".join(sorted(fields))


@pytest.fixture
def splits() -> Any:
    features = datasets.Features(
        {
            "q": datasets.Value("string"),
            "picture": datasets.Image(),
            "pictures": datasets.List(datasets.Image()),
            "sound": datasets.Audio(decode=False),
        }
    )
    picture = Pictures.new("RGB", (2, 2))
    rows = {"q": ["Why?"], "picture": [picture], "pictures": [[picture]], "sound": [None]}
    return {"test": datasets.Dataset.from_dict(rows, features=features)}


def make_task(make_spec: Callable[..., TaskSpec], splits: Any, rendering: Any = None, **config: Any) -> Task:
    spec = make_spec(doc_to_text=join_keys, doc_to_target="q", dialect="lmms_eval", **config)
    return Task(spec, RenderingOptions(**(rendering or {})), splits)


def test_the_text_of_a_prompt_is_made_without_media(make_spec: Callable[..., TaskSpec], splits: Any) -> None:
    task = make_task(make_spec, splits, {"chat_messages": False}, doc_to_visual=lambda doc: [doc["picture"]])
    [(_, [request])] = task.render()
    assert request.prompt.text == "q"
    assert len(request.prompt.media) == 1


def test_messages_are_made_of_the_whole_document(make_spec: Callable[..., TaskSpec], splits: Any) -> None:
    task = make_task(make_spec, splits, doc_to_visual=lambda doc: [doc["picture"]])
    [(_, [request])] = task.render()
    assert request.prompt.text == "picture,pictures,q,sound"


@pytest.mark.parametrize(
    ("config", "rendering", "expected"),
    [
        ({}, {}, "q"),
        ({"process_results_use_image": True}, {}, "picture,pictures,q,sound"),
        ({}, {"process_with_media": True}, "picture,pictures,q,sound"),
    ],
)
def test_judging_sees_media_only_where_the_task_or_the_run_says_so(
    make_spec: Callable[..., TaskSpec], splits: Any, config: Any, rendering: Any, expected: str
) -> None:
    task = make_task(make_spec, splits, rendering, **config)
    assert join_keys(task.scoring_fields(task.rows[0])) == expected


def test_an_lm_eval_task_sees_everything(make_spec: Callable[..., TaskSpec], splits: Any) -> None:
    spec = make_spec(doc_to_text=join_keys, doc_to_target="q")
    task = Task(spec, RenderingOptions(), splits)
    assert join_keys(task.scoring_fields(task.rows[0])) == "picture,pictures,q,sound"
