from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.core.errors import InvalidOption
from assay.tasks.files.index import TaskIndex, builtin_root, entry_from_file, find_task_roots
from assay.tasks.files.yaml_reader import read_task_file

Write = Callable[..., Path]


def test_every_task_group_and_tag_under_the_roots_is_found(write: Write, tmp_path: Path) -> None:
    write("one/a.yaml", "task: a\ntag: [small, new]\n")
    write("two/deep/b.yaml", "task: b\ntag: small\n")
    write("two/all.yaml", "group: all\ntask: [b, a]\n")
    write("two/base_yaml", "task: not_seen\n")
    write("two/template.yaml", "dataset_path: json\n")
    index = TaskIndex.build([tmp_path / "one", tmp_path / "two"])
    assert index.names() == ["a", "all", "b", "new", "small"]
    assert (index.names("task"), index.names("group"), index.names("tag")) == (
        ["a", "b"],
        ["all"],
        ["new", "small"],
    )
    assert index.names("task", "group") == ["a", "all", "b"]
    assert index.entries["all"].members == ("b", "a")
    assert index.entries["small"].members == ("a", "b")
    assert index.entries["a"].path == tmp_path / "one" / "a.yaml"


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("task: a", "task", "a"),
        ("task: a\ngroup: g", "task", "a"),
        ("group: g\ntask: [a, b]", "group", "g"),
        ("group: g\ntask: a\naggregate_metric_list: [{metric: acc}]", "group", "g"),
        ("group: g\ntask: []", "group", "g"),
        ("group: g", "group", "g"),
        ("group: g\nclass: !function u.C\ntask: a", "task", "a"),
        ("task: [a, b]", None, None),
        ("dataset_path: json", None, None),
        ("task: ''", None, None),
        ("task: 5", None, None),
    ],
)
def test_a_file_is_a_task_a_group_or_nothing(
    write: Write, text: str, kind: str | None, name: str | None
) -> None:
    entry = entry_from_file(read_task_file(write("x.yaml", text + "\n")))
    assert (entry and entry.kind, entry and entry.name) == (kind, name)


def test_a_group_written_inside_a_task_is_a_tag(write: Write, tmp_path: Path) -> None:
    write("a.yaml", "task: a\ngroup: older\n")
    write("b.yaml", "task: b\ngroup: [older, other]\n")
    index = TaskIndex.build([tmp_path])
    assert index.entries["older"].kind == "tag"
    assert index.entries["older"].members == ("a", "b")
    assert index.entries["other"].members == ("b",)


def test_within_one_root_the_first_of_two_names_counts(write: Write, tmp_path: Path) -> None:
    first, second = write("a/x.yaml", "task: t\n"), write("b/x.yaml", "task: t\n")
    index = TaskIndex.build([tmp_path])
    assert index.entries["t"].path == first
    assert index.shadowed == [("t", first, second)]


def test_a_later_root_wins_and_the_index_says_so(write: Write, tmp_path: Path) -> None:
    first, second = write("a/x.yaml", "task: t\n"), write("b/x.yaml", "task: t\n")
    index = TaskIndex.build([tmp_path / "a", tmp_path / "b"])
    assert index.entries["t"].path == second
    assert index.shadowed == [("t", second, first)]


def test_a_task_with_the_name_of_a_tag_stays_a_task(write: Write, tmp_path: Path) -> None:
    write("a.yaml", "task: a\ntag: b\n")
    write("b.yaml", "task: b\n")
    assert TaskIndex.build([tmp_path]).entries["b"].kind == "task"


def test_a_broken_file_hides_nothing_else(write: Write, tmp_path: Path) -> None:
    broken = write("broken.yaml", "task: [\n")
    write("good.yaml", "task: good\n")
    index = TaskIndex.build([tmp_path])
    assert index.names() == ["good"]
    assert [path for path, _ in index.broken] == [broken]


@pytest.mark.parametrize(
    "text", ["task: a\ntag: 5\n", "task: a\ngroup: true\n", "group: g\ntask: 5\n", "task: {a: 1}\n"]
)
def test_keys_of_a_wrong_kind_do_not_stop_the_index(write: Write, tmp_path: Path, text: str) -> None:
    write("odd.yaml", text)
    write("zgood.yaml", "task: good\n")
    assert "good" in TaskIndex.build([tmp_path]).names()


def test_the_roots_are_the_builtin_tasks_then_the_environment_then_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("env one", "env two", "option")]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setenv("ASSAY_TASKS", os.pathsep.join(str(folder) for folder in folders[:2]))
    assert find_task_roots([str(folders[2])])[-4:] == [builtin_root(), *folders]


def test_the_builtin_tasks_are_all_readable() -> None:
    index = TaskIndex.build([builtin_root()])
    assert not index.broken
    assert not index.shadowed
    assert "quickstart" in index.names("group")


def test_a_root_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOption, match="nowhere") as caught:
        find_task_roots([str(tmp_path / "nowhere")])
    assert caught.value.where == "--include_path"
    monkeypatch.setenv("ASSAY_TASKS", str(tmp_path / "gone"))
    with pytest.raises(InvalidOption, match="gone") as caught:
        find_task_roots()
    assert caught.value.where == "ASSAY_TASKS"


def test_two_well_known_folders_with_the_same_names_are_told_apart(write: Write, tmp_path: Path) -> None:
    write("a/lmms_eval/tasks/x.yaml", "task: sums\n")
    write("b/lm_eval/tasks/x.yaml", "task: sums\n")
    write("b/lm_eval/tasks/all.yaml", "group: all\ntask: [sums]\n")
    roots = find_task_roots([str(tmp_path / "a"), str(tmp_path / "b")])
    index = TaskIndex.build(roots)
    assert index.labels.keys() == {"assay", "lmms_eval", "lm_eval"}
    entry = index.entries["sums"]
    assert index.find_label(Path(entry.file)) == "lm_eval"
    assert index.find_alternative(entry) == "lmms_eval/sums"
    seen = index.view_from(index.labels["lmms_eval"]).entries["sums"]
    assert index.find_label(Path(seen.file)) == "lmms_eval"
    assert index.view_from(index.labels["lm_eval"]) is index
