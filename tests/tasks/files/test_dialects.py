"""Whose habits a task file follows, and what depends on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.core.dialects import Dialect
from assay.core.errors import TaskError
from assay.core.records.specs import TaskSpec
from assay.tasks.files.dialects import detect_dialect
from assay.tasks.files.task_loader import load_task, parse_group_metrics, task_from_config
from assay.tasks.files.yaml_reader import TaskFile, read_task_file
from assay.tasks.task import Task

Write = Callable[[str, str], Path]
COUNTER = """
    seen = []

    def text(doc):
        seen.append(doc)
        return f"{len(seen)}"

    def target(doc):
        return f"{len(seen)}"
"""


@pytest.mark.parametrize(
    ("path", "config", "expected"),
    [
        ("mine.yaml", {"task": "a"}, "lm_eval"),
        ("mine.yaml", {"task": "a", "doc_to_visual": "picture"}, "lmms_eval"),
        ("mine.yaml", {"task": "a", "output_type": "generate_until_agentic"}, "lmms_eval"),
        ("mine.yaml", {"task": "a", "doc_to_visual": "picture", "dialect": "lm_eval"}, "lm_eval"),
        ("/x/lmms_eval/tasks/a/b.yaml", {"task": "a"}, "lmms_eval"),
        ("/x/lm_eval/tasks/a/b.yaml", {"task": "a", "cluster_key": "x"}, "lm_eval"),
        ("/lmms_eval/tasks/lm_eval/tasks/b.yaml", {"task": "a"}, "lm_eval"),
    ],
)
def test_the_key_then_the_folder_then_the_other_keys_tell(path: str, config: Any, expected: str) -> None:
    assert detect_dialect(Path(path), config) == expected


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(TaskError, match="`latin` is not a dialect"):
        detect_dialect(Path("a.yaml"), {"dialect": "latin"})


def test_functions_of_an_lmms_task_share_no_globals(write: Write, make_spec: Callable[..., TaskSpec]) -> None:
    write("utils.py", COUNTER)
    file = read_task_file(
        write("a.yaml", "doc_to_text: !function utils.text\ndoc_to_target: !function utils.target\n")
    )
    own = {key: file.config[key] for key in ("doc_to_text", "doc_to_target")}
    shared = make_spec(**own)
    apart = make_spec(**own, dialect="lmms_eval")
    for spec, expected in ((shared, "1"), (apart, "0")):
        assert callable(spec.doc_to_text) and callable(spec.doc_to_target)
        spec.doc_to_text({})
        assert spec.doc_to_target({}) == expected


def test_an_lmms_file_includes_the_first_listed_last_and_looks_in_the_working_folder_first(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write("lmms_eval/tasks/a/one", "task: one\ntest_split: one\n")
    write("lmms_eval/tasks/a/two", "task: two\ntest_split: two\ndataset_path: two\n")
    path = write("lmms_eval/tasks/a/t.yaml", "include: [one, two]\n")
    assert dict(read_task_file(path).config) == {"task": "one", "test_split": "one", "dataset_path": "two"}
    write("here/one", "task: here\n")
    monkeypatch.chdir(tmp_path / "here")
    assert read_task_file(path).config["task"] == "here"


def test_generation_settings_have_the_defaults_of_their_harness(make_spec: Callable[..., TaskSpec]) -> None:
    assert make_spec(dialect="lmms_eval").generation_kwargs == {"until": ["\n\n"], "do_sample": False}
    assert make_spec().generation_kwargs["max_gen_toks"] == 256
    given = make_spec(dialect="lmms_eval", generation_kwargs={"max_new_tokens": 5, "temperature": 0})
    assert given.generation_kwargs == {"max_new_tokens": 5, "temperature": 0.0, "until": ["\n\n"]}


def test_an_lmms_template_loses_the_line_end_at_its_end(make_task: Callable[..., Task]) -> None:
    def text(**config: Any) -> str:
        return next(iter(make_task(doc_to_text="{{q}}\n", **config).render()))[1][0].prompt.text

    assert text(dialect="lmms_eval") == "Q0"
    assert text() == "Q0\n"


def test_a_group_of_lmms_counts_tasks_alike() -> None:
    entry = {"metric": "acc"}
    assert parse_group_metrics(entry, dialect=Dialect.LMMS_EVAL)[0].weight_by_size is False
    assert parse_group_metrics(entry)[0].weight_by_size is True


def test_the_dialect_may_be_written_in_the_file(write: Write) -> None:
    path = write(
        "t.yaml",
        "task: t\ndialect: lmms_eval\ndataset_path: x\ntest_split: test\ndoc_to_text: q\ndoc_to_target: a\n",
    )
    assert load_task(path).dialect == "lmms_eval"


def test_overrides_of_a_group_do_not_lose_the_dialect(tmp_path: Path) -> None:
    file = TaskFile(
        tmp_path / "lmms_eval" / "tasks" / "t.yaml",
        {"task": "t", "dataset_path": "x", "test_split": "test", "doc_to_text": "q", "doc_to_target": "a"},
    )
    assert task_from_config(file, {"num_fewshot": 0}).dialect == "lmms_eval"
