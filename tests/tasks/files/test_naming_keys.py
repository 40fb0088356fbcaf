"""The quick look at task files must find what a full reading finds."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.core.errors import AssayError
from assay.tasks.files.index import TaskIndex, entry_from_file
from assay.tasks.files.yaml_reader import read_task_file

Write = Callable[..., Path]


def agrees_with_a_full_reading(path: Path) -> None:
    """Whatever a readable file names, the index of its folder names too."""
    index = TaskIndex.build([path.parent])
    with suppress(AssayError):
        entry = entry_from_file(read_task_file(path))
        found = [(one.name, one.kind, one.members) for one in index.entries.values() if one.kind != "tag"]
        assert found == ([] if entry is None else [(entry.name, entry.kind, entry.members)])


@pytest.mark.parametrize(
    "text",
    [
        "task: a\n",
        "task: a # a comment\n",
        "task: a\n# a comment\nrepeats: 1\n",
        '"task": "a"\n',
        "'task' : 'a b'\n",
        "task:\n  a\n",
        "task: &x a\ntag: *x\n",
        "x: &x a\ntask: *x\n",
        "task: 'it''s'\n",
        'task: "\\x41"\n',
        "task: 5\n",
        "task: 1e3\n",
        "task: yes\n",
        "task: null\n",
        "task: ''\n",
        "task: |\n  a\n",
        "task: >-\n  a\n  b\n",
        "group: g\ntask: [a, b]\n",
        "group: g\ntask:\n- a\n- b\n",
        "group: g\ntask:\n  - a # one\n  - task: b\n    num_fewshot: 1\n  - group: c\n    task: [d]\n",
        "group: g\ntask:\n  - a\n\n  - b\n",
        "group: g\ntask:\n  - yes\n  - 1\n",
        "{task: a, repeats: 1}\n",
        "---\ntask: a\n",
        "%YAML 1.1\n---\ntask: a\n",
        "\ufefftask: a\n",
        "? task\n: a\n",
        "x: &x {task: a}\n<<: *x\n",
        "task: a\r\ngroup: b\r\n",
        "description: 'one\n  task: b'\ntask: a\n",
        'description: "one\n\n  two"\ntask: a\n',
        "doc_to_text: |\n  task: b\n  group: c\ntask: a\n",
        "task: a\ntask: b\n",
        "task: a\nmetadata:\n  task: b\n",
        "class: !function u.C\ntask: a\n",
        "repeats: 1\n",
    ],
)
def test_a_quick_look_finds_what_a_full_reading_finds(write: Write, text: str) -> None:
    agrees_with_a_full_reading(write("tasks/x.yaml", text.encode()))


NAMES = st.one_of(
    st.sampled_from(
        ["a", "b c", "yes", "1", "null", "a:b", "#a", "- a", "é", "*a", "&a", "!a", "a # b", "'", '"', "{"]
    ),
    st.text(max_size=6),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    config=st.fixed_dictionaries(
        {"doc_to_text": st.sampled_from(["x", "task: z", "a\ntask: z", "\n\ngroup: z\n"])},
        optional={
            "task": st.one_of(NAMES, st.lists(NAMES, max_size=3)),
            "group": NAMES,
            "tag": st.one_of(NAMES, st.lists(NAMES, max_size=2)),
        },
    ),
    flow=st.sampled_from([None, True, False]),
    width=st.sampled_from([5, 80]),
    style=st.sampled_from([None, '"', "'", "|"]),
)
def test_however_a_file_is_written_the_names_are_the_same(
    tmp_path: Path, config: dict[str, object], flow: bool | None, width: int, style: str | None
) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir(exist_ok=True)
    text = yaml.safe_dump(
        config, default_flow_style=flow, width=width, default_style=style, allow_unicode=True
    )
    path = folder / "x.yaml"
    path.write_text(text, encoding="utf-8", errors="replace")
    changed = crc32(text.encode("utf-8", "replace"))
    os.utime(path, ns=(changed, changed))
    agrees_with_a_full_reading(path)


def test_an_included_name_counts(write: Write, tmp_path: Path) -> None:
    write("tasks/base_yaml", "tag: small\nrepeats: 2\n")
    write("tasks/a.yaml", "include: base_yaml\ntask: a\n")
    write("tasks/b.yaml", "include: a.yaml\ntask: b\n")
    index = TaskIndex.build([tmp_path / "tasks"])
    assert index.entries["small"].members == ("a", "b")


def names(folder: Path) -> list[str]:
    return TaskIndex.build([folder]).names()


def test_what_is_remembered_is_forgotten_when_a_file_changes(write: Write, tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    base = write("tasks/base_yaml", "tag: small\n")
    path = write("tasks/a.yaml", "include: base_yaml\ntask: a\n")
    assert names(folder) == names(folder) == ["a", "small"]
    path.write_text("include: base_yaml\ntask: another\n")
    assert names(folder) == ["another", "small"]
    base.write_text("tag: larger\n")
    assert names(folder) == ["another", "larger"]
    path.unlink()
    assert names(folder) == []


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"format": 1, "files": 5}', '{"format": 1, "files": {"x": 5}}', "\x00"],
)
def test_a_damaged_memory_is_no_obstacle(
    write: Write, tmp_path: Path, assay_home: Path, content: str
) -> None:
    path = write("tasks/a.yaml", "task: a\n")
    assert names(tmp_path / "tasks") == ["a"]
    kept = [file for file in assay_home.rglob("*") if file.is_file()]
    for file in kept:
        file.write_text(content.replace('"x"', f'"{path}"'))
    assert names(tmp_path / "tasks") == ["a"]


def test_a_home_that_cannot_be_written_is_no_obstacle(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_HOME", os.devnull)
    write("tasks/a.yaml", "task: a\n")
    assert names(tmp_path / "tasks") == ["a"]


def test_links_that_lead_nowhere_or_round_in_circles_are_no_obstacle(write: Write, tmp_path: Path) -> None:
    folder = write("tasks/a.yaml", "task: a\n").parent
    (folder / "gone.yaml").symlink_to(folder / "nowhere.yaml")
    (folder / "round").symlink_to(folder)
    assert names(folder) == ["a"]
