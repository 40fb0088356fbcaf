"""Imports of foreign packages, answered by the stand-ins in `foreign/`, the task trees, then the real package.

`lm_eval.api.filter` is a file here; `lm_eval.tasks.x.utils` is a file of a task tree; whatever else somebody
imports comes from the real package if it is installed, and is a clear ImportError if not.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

__all__ = ["ForeignFinder"]


class ForeignFinder:
    """A finder for `sys.meta_path`."""

    def __init__(self, folder: Path, packages: tuple[str, ...]) -> None:
        self.packages = packages
        self._folder = folder
        self._tasks: dict[str, list[str]] = {package: [] for package in packages}

    def add_tasks(self, package: str, tree: Path) -> None:
        """Let `<package>.tasks` also look into this folder."""
        trees = self._tasks[package]
        if str(tree) not in trees:
            trees.append(str(tree))
            loaded = sys.modules.get(f"{package}.tasks")
            if loaded is not None:
                loaded.__path__ = list(trees)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, rest = name.partition(".")
        if package not in self.packages:
            return None
        if rest == "tasks":
            return self._namespace(name, self._tasks[package] or self._real(package, "tasks"))
        if rest.startswith("tasks."):
            return self._in_tree(name, path)
        stand_in = self._folder.joinpath(*name.split("."))
        if (stand_in / "__init__.py").is_file():
            return importlib.util.spec_from_file_location(
                name,
                stand_in / "__init__.py",
                submodule_search_locations=[str(stand_in), *self._real(package, rest)],
            )
        if stand_in.with_suffix(".py").is_file():
            return importlib.util.spec_from_file_location(name, stand_in.with_suffix(".py"))
        return None

    def _in_tree(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """A module or folder of a task tree; a folder's `__init__.py` is executed only where it has one."""
        return PathFinder.find_spec(name, list(path) if path is not None else None)

    def _namespace(self, name: str, locations: list[str]) -> ModuleSpec:
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = locations
        return spec

    def _real(self, package: str, rest: str) -> list[str]:
        """Folders of the real package, if it is installed."""
        found = []
        for entry in sys.path:
            folder = (
                Path(entry or ".").joinpath(package, *rest.split("."))
                if rest
                else Path(entry or ".") / package
            )
            if folder.is_dir():
                found.append(str(folder))
        return found
