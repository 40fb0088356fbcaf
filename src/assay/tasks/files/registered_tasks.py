"""The task registry of old harness versions: lm_eval 0.4.0 and 0.4.1, lmms_eval 0.2.0 and 0.2.1.

In these versions, `@register_task("NAME")` in a Python file of the task folder defines a task, which no task file names, and
a group has those of its members that exist. A task folder of these versions is recognised by its `__init__.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from assay.tasks.files.dialects import find_harness_folder
from assay.tasks.files.helper_functions import HelperFunction
from assay.tasks.files.yaml_reader import TaskFile

__all__ = ["find_registered_task", "find_registry_folder", "has_registry"]


def find_registry_folder(path: Path) -> Path | None:
    """Return the task folder with a registry that contains a file, or None."""
    folder = find_harness_folder(path)
    return folder if folder is not None and has_registry(folder) else None


@lru_cache(maxsize=64)
def has_registry(folder: Path) -> bool:
    """Whether a task folder registers its tasks and groups when it is imported."""
    try:
        return b"GROUP_REGISTRY" in (folder / "__init__.py").read_bytes()
    except OSError:
        return False


def find_registered_task(name: str, folders: Iterable[Path]) -> TaskFile | None:
    """Return the task that a decorated class defines in one of the folders with a registry, or None."""
    for folder in filter(has_registry, folders):
        for path in sorted(folder.rglob("*.py")):
            for registered, class_name, line in _read_decorators(path):
                if registered == name:
                    where = f"{path}:{line}"
                    named = HelperFunction(f"{path.stem}.{class_name}", path.parent, where)
                    return TaskFile(path, {"task": name, "class": named}, {"task": where, "class": where})
    return None


def _read_decorators(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield the name, the class and the line of every class with `@register_task(…)` in a Python file."""
    try:
        source = path.read_bytes()
        tree = ast.parse(source) if b"@register_task(" in source else ast.Module([], [])
    except (OSError, SyntaxError, ValueError):
        return
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        for call in node.decorator_list:
            if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "register_task":
                continue
            for argument in call.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value, node.name, node.lineno
