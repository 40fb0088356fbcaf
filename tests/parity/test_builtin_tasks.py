"""Tasks that ship with Assay and the files of the same names in lm-evaluation-harness: the same requests for real documents, and
the same scores.

The recorded corpus (`tests/builtin_tasks/test_as_lm_eval.py`) has made-up documents, and not every task."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.parity.conftest import find_shared
from tools.oracle.comparison import find_difference
from tools.oracle.lm_eval_format import format_requests, format_results
from tools.oracle.lm_eval_tasks import prepare_task, replay_task
from tools.oracle.lm_eval_values import encode_value, request_key

from assay.tasks.files.index import TaskIndex, builtin_root
from assay.tasks.files.task_loader import load_task
from assay.tasks.task import RenderingOptions, open_task

pytestmark = pytest.mark.parity

TASKS = (
    "gsm8k gsm8k_cot arc_easy arc_challenge hellaswag winogrande boolq openbookqa triviaqa "
    "truthfulqa_mc1 lambada_openai wikitext mmlu_anatomy bbh_cot_zeroshot_ruin_names bbh_cot_zeroshot_navigate hendrycks_math_geometry"
).split()


@pytest.fixture(scope="module")
def hub() -> Path:
    shared = find_shared()
    if shared is None or not (shared / "hub").is_dir():
        pytest.skip("no datasets: set ASSAY_SHARED to the folder that holds hub")
    pytest.importorskip("datasets")
    return shared / "hub"


@pytest.fixture(scope="module")
def files(lm_eval_tasks: Path) -> tuple[TaskIndex, TaskIndex]:
    return TaskIndex.build([builtin_root()]), TaskIndex.build([lm_eval_tasks])


def respond(shown: Mapping[str, Any], target: Any) -> list[Any]:
    """Made-up responses: the same for the same request; of generated ones every other is right in some way."""
    number = int(request_key(shown["type"], shown["args"])[:8], 16)
    if shown["type"] == "loglikelihood":
        return [[-(number % 1000) / 100, bool(number & 1)]]
    if shown["type"] == "loglikelihood_rolling":
        return [-(number % 100000) / 10]
    right = str(target[0] if isinstance(target, list) else target)
    return [[right, f"So, 1 + 1 = 2.\nThe answer is {right}.", "I do not know.", ""][number % 4]]


def run_documents(index: TaskIndex, task: str, splits: Any) -> tuple[list[Any], dict[str, Any]]:
    """Requests and targets of the first documents, and the scores of made-up responses to them."""
    path = index.entries[task].path
    assert path is not None
    planned = prepare_task(load_task(path), RenderingOptions(limit=40), splits)
    rendered = list(planned.task.render())
    shown = [
        [encode_value(planned.task.target(document.fields)), *format_requests(planned, document, requests)]
        for document, requests in rendered
    ]
    targets = {document.index: one[0] for (document, _), one in zip(rendered, shown, strict=True)}
    scored = replay_task(planned, rendered, lambda one: respond(one, targets[one["doc_id"]]), iterations=0)
    return shown, format_results(scored.estimates)


@pytest.mark.parametrize("task", TASKS)
def test_real_documents_give_the_same_requests_and_scores_as_the_lm_eval_task_files(
    task: str, files: tuple[TaskIndex, TaskIndex], hub: Path
) -> None:
    ours, theirs = files
    path = ours.entries[task].path
    assert path is not None
    splits = open_task(load_task(path), RenderingOptions(data_root=str(hub))).splits
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of helper files that are not ours
        their_requests, their_results = run_documents(theirs, task, splits)
    our_requests, our_results = run_documents(ours, task, splits)
    assert len(their_requests) > 30
    assert find_difference(our_requests, their_requests) is None
    assert find_difference(our_results, their_results) is None
