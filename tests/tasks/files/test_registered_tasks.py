from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.core.errors import UnknownName
from assay.tasks.files.index import TaskIndex
from assay.tasks.files.registered_tasks import find_registry_folder, has_registry
from assay.tasks.files.selection import Selection, select_tasks

Write = Callable[..., Path]
LEAST = "dataset_path: json\ntest_split: test\n"

REGISTERED = """
from lm_eval.api.registry import register_group, register_task

class Base: ...

@register_group("all")
@register_task("first_class")
class First(Base): ...

@register_task("second_class", "another_name")
class Second(Base): ...

@staticmethod
@register_task()
class Unnamed(Base): ...
"""


@pytest.fixture
def registry(write: Write, tmp_path: Path) -> Callable[..., Selection]:
    """Selects from a task folder as lm_eval 0.4.0 has it."""
    write("lm_eval/tasks/__init__.py", "from lm_eval.api.registry import GROUP_REGISTRY\n")
    write("lm_eval/tasks/classes/task.py", REGISTERED)
    write("lm_eval/tasks/classes/damaged.py", "@register_task(\n")
    write("lm_eval/tasks/classes/g.yaml", "group: g\ntask: [second_class, first_class]\n")
    write("lm_eval/tasks/a.yaml", f"task: a\n{LEAST}")
    return lambda *words: select_tasks(words, TaskIndex.build([tmp_path / "lm_eval" / "tasks"]))


def test_a_decorated_class_is_a_task_in_a_folder_with_a_registry(registry: Callable[..., Selection]) -> None:
    selection = registry("g")
    assert list(selection.tasks) == ["second_class", "first_class"]
    spec = selection.tasks["first_class"]
    assert spec.path.endswith("classes/task.py")
    assert spec.config["class"].reference == "task.First"
    assert registry("another_name").tasks["another_name"].config["class"].reference == "task.Second"


def test_a_decorated_class_needs_a_folder_with_a_registry(
    write: Write, registry: Callable[..., Selection]
) -> None:
    has_registry.cache_clear()
    write("lm_eval/tasks/__init__.py", "class TaskManager: ...\n")
    with pytest.raises(UnknownName, match="`first_class`"):
        registry("first_class")


def test_a_group_in_a_folder_with_a_registry_has_the_members_that_exist(
    write: Write, registry: Callable[..., Selection]
) -> None:
    write("lm_eval/tasks/some.yaml", "group: some\ntask: [gone, a]\n")
    selection = registry("some")
    assert selection.leaves("some") == ["a"]
    assert "without `gone`" in selection.notes[0]
    write("lm_eval/tasks/none.yaml", "group: none\ntask: [gone]\n")
    with pytest.raises(UnknownName, match="`gone`"):
        registry("none")


def test_a_member_is_also_found_by_the_name_that_begins_with_its_group(
    write: Write, registry: Callable[..., Selection]
) -> None:
    write("lm_eval/tasks/some.yaml", "group: some\ntask:\n  - {task: a, doc_to_text: changed}\n")
    assert registry("some_a").tasks["a"].doc_to_text == "changed"
    with pytest.raises(UnknownName, match="`some_b`"):
        registry("some_b")


def test_a_folder_without_a_harness_has_no_registry(tmp_path: Path, write: Write) -> None:
    inside = write("lm_eval/tasks/x/g.yaml", "group: g\n")
    assert find_registry_folder(inside) is None
    has_registry.cache_clear()
    folder = write("lm_eval/tasks/__init__.py", "GROUP_REGISTRY = {}\n").parent
    assert find_registry_folder(inside) == folder
    assert find_registry_folder(tmp_path / "tasks" / "g.yaml") is None
