from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.tasks.digests import digest_content, digest_data, digest_spec
from assay.tasks.files.task_loader import load_task
from assay.tasks.task import RenderingOptions, Task

Write = Callable[..., Path]

FILES = {
    "a.yaml": "include: base\ntask: a\ndoc_to_text: q\nprocess_results: !function utils.judge\n",
    "base": "dataset_path: json\ndataset_kwargs: {data_files: {test: x.jsonl}}\ntest_split: test\nnum_fewshot: 1\n",
    "utils.py": "def judge(doc, results):\n    return {}\n",
    "x.jsonl": '{"q": "1"}\n{"q": "2"}\n',
}


def digests(
    write: Write, folder: str, changes: dict[str, str] | None = None, **rendering: Any
) -> tuple[str, str]:
    for name, text in {**FILES, **(changes or {})}.items():
        path = write(f"{folder}/{name}", text)
    spec = load_task(path.parent / "a.yaml")
    return digest_spec(spec), digest_data(Task(spec, RenderingOptions(**rendering)))


def test_the_digests_are_the_same_in_every_folder(write: Write) -> None:
    assert digests(write, "one") == digests(write, "two")


@pytest.mark.parametrize(
    ("name", "text", "changed"),
    [
        pytest.param("a.yaml", FILES["a.yaml"] + "description: D\n", (True, False), id="the task file"),
        pytest.param("a.yaml", FILES["a.yaml"] + "# a comment\n", (False, False), id="a comment"),
        pytest.param(
            "a.yaml", FILES["a.yaml"] + "tag: x\ntask_alias: y\n", (False, False), id="names for people"
        ),
        pytest.param("base", FILES["base"] + "repeats: 2\n", (True, False), id="an included file"),
        pytest.param("utils.py", FILES["utils.py"] + "# changed\n", (True, False), id="a helper file"),
        pytest.param("x.jsonl", '{"q": "1"}\n{"q": "3"}\n', (False, True), id="the data"),
        pytest.param("x.jsonl", '{"q": "2"}\n{"q": "1"}\n', (False, True), id="the order of the data"),
        pytest.param(
            "x.jsonl", '{"q":   "1"}\n\n{"q": "2"}\n', (False, True), id="white space in the data file"
        ),
    ],
)
def test_what_changes_the_task_changes_a_digest(
    write: Write, name: str, text: str, changed: tuple[bool, bool]
) -> None:
    before, after = digests(write, "before"), digests(write, "after", {name: text})
    assert (before[0] != after[0], before[1] != after[1]) == changed


def test_the_examples_count_only_where_there_are_some(write: Write) -> None:
    assert digests(write, "one")[1] != digests(write, "two", num_fewshot=0)[1]


def test_a_change_on_disk_is_seen_in_the_same_process(write: Write) -> None:
    before = digests(write, "same")
    after = digests(write, "same", {"x.jsonl": '{"q": "9"}\n', "utils.py": "def judge(): ...\n"})
    assert before[0] != after[0]
    assert before[1] != after[1]


@pytest.mark.parametrize(
    "text",
    [
        "metadata: {1: x, a: y}\n",
        "metadata: {2020-01-01: x}\n",
        "metadata: {when: 2020-01-01, raw: !!binary aGk=}\n",
    ],
)
def test_whatever_keys_yaml_allows_can_be_hashed(write: Write, text: str) -> None:
    assert digests(write, "odd", {"a.yaml": FILES["a.yaml"] + text})[0]


def test_the_content_digest_depends_on_values_and_not_on_the_place_or_the_format(write: Write) -> None:
    datasets = pytest.importorskip("datasets")
    rows: list[dict[str, Any]] = [{"q": "1", "n": 1, "tags": ["a"]}, {"q": "2", "n": None, "tags": []}]
    table = datasets.Dataset.from_list(rows)
    picked = datasets.Dataset.from_list([{"q": "0", "n": 0, "tags": []}, *rows]).select([1, 2])
    assert digest_content(rows) == digest_content(table) == digest_content(picked)
    assert digest_content(rows) != digest_content(rows[::-1])
    assert digest_content(rows) != digest_content([rows[0], {**rows[1], "n": 2}])


def test_stored_media_count_by_their_bytes(write: Write) -> None:
    path = write("sound.wav", "abc")
    inside = [{"audio": {"bytes": b"abc", "path": "elsewhere.wav"}}]
    assert digest_content(inside) == digest_content([{"audio": {"bytes": None, "path": str(path)}}])
    assert digest_content(inside) != digest_content([{"audio": {"bytes": b"abd", "path": "elsewhere.wav"}}])
