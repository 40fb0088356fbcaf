"""The quickstart files as a newcomer finds them: complete, small, and in the format of the guides."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from PIL import Image

import assay

FOLDER = Path(assay.__file__ or "").parent / "builtin_tasks" / "quickstart"
TASKS = sorted(path for path in FOLDER.glob("*.yaml") if path.name != "quickstart.yaml")


class Loader(yaml.SafeLoader):
    """Reads `!function name` as the name."""


Loader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))  # type: ignore[arg-type]


def read(path: Path) -> dict[str, Any]:
    content = yaml.load(path.read_text("utf-8"), Loader)
    assert isinstance(content, dict)
    return content


def rows(config: dict[str, Any], split: str = "test") -> list[dict[str, Any]]:
    text = (FOLDER / config["dataset_kwargs"]["data_files"][split]).read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def functions() -> ModuleType:
    spec = importlib.util.spec_from_file_location("quickstart_functions", FOLDER / "utils.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_group_names_every_task() -> None:
    group = read(FOLDER / "quickstart.yaml")
    assert sorted(group["task"]) == sorted(read(path)["task"] for path in TASKS)


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
def test_a_task_has_a_version_a_comment_and_enough_documents(path: Path) -> None:
    config = read(path)
    assert path.read_text("utf-8").startswith("# ")
    assert config["metadata"]["version"] == 1.0
    assert config["task"] == f"quickstart_{path.stem}"
    assert 40 <= len(rows(config)) <= 100


def test_the_choices_hold_the_answer_and_differ() -> None:
    for row in rows(read(FOLDER / "facts.yaml")):
        assert len(set(row["choices"])) == len(row["choices"])
        assert 0 <= row["answer"] < len(row["choices"])


def test_no_example_of_the_few_shot_split_is_a_test_document() -> None:
    config = read(FOLDER / "copy.yaml")
    examples = {row["word"] for row in rows(config, config["fewshot_split"])}
    assert len(examples) > config["num_fewshot"]
    assert not examples & {row["word"] for row in rows(config)}


def test_pictures_open_and_are_small(functions: ModuleType) -> None:
    for row in rows(read(FOLDER / "shapes.yaml")):
        (picture,) = functions.shapes_doc_to_visual(row)
        assert isinstance(picture, Image.Image)
        assert picture.size == (32, 32)


def test_messages_show_the_picture_before_the_question(functions: ModuleType) -> None:
    row = rows(read(FOLDER / "shapes.yaml"))[0]
    (message,) = functions.shapes_doc_to_messages(row, {"pre_prompt": "Look: ", "post_prompt": ""})
    assert [part["type"] for part in message["content"]] == ["image", "text"]
    assert message["content"][1]["text"] == f"Look: {row['question']}"


@pytest.mark.parametrize(
    ("kind", "answer", "response", "expected"),
    [
        ("one shape", "red", " Red.", {"exact_match": 1.0}),
        ("one shape", "red", "blue", {"exact_match": 0.0}),
        ("count", "3", "5", {"exact_match": 0.0, "count_error": 2.0}),
        ("count", "3", "many", {"exact_match": 0.0}),
    ],
)
def test_shapes_are_scored(
    functions: ModuleType, kind: str, answer: str, response: str, expected: dict[str, float]
) -> None:
    assert functions.shapes_process_results({"kind": kind, "answer": answer}, [response]) == expected
