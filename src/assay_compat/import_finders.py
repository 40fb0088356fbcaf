"""Import finders for the shims of other packages.

`HarnessFinder` resolves `lm_eval.*` and `lmms_eval.*`: first the shims in `shims/`, then task trees
(`lm_eval.tasks.x.utils`), then the installed package. `ThirdPartyFinder` resolves names that task helpers import from
`evaluate` and `transformers` if those packages lack them.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from assay.scoring.hf_evaluate import load_metric as served_load

__all__ = ["HarnessFinder", "ThirdPartyFinder", "patch_evaluate"]


class HarnessFinder:
    """Finder for `sys.meta_path`; see the module docstring."""

    def __init__(self, folder: Path, packages: tuple[str, ...]) -> None:
        self.packages = packages
        self._folder = folder
        self._task_trees: dict[str, list[str]] = {package: [] for package in packages}

    def add_tasks(self, package: str, tree: Path) -> None:
        """Add a folder to the search path of `<package>.tasks`."""
        trees = self._task_trees[package]
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
            return self._make_namespace(
                name, self._task_trees[package] or self._find_installed_folders(package, "tasks")
            )
        if rest.startswith("tasks."):
            return self._find_in_task_tree(name, path)
        shim = self._folder.joinpath(*name.split("."))
        if (shim / "__init__.py").is_file():
            return importlib.util.spec_from_file_location(
                name,
                shim / "__init__.py",
                submodule_search_locations=[str(shim), *self._find_installed_folders(package, rest)],
            )
        if shim.with_suffix(".py").is_file():
            return importlib.util.spec_from_file_location(name, shim.with_suffix(".py"))
        return None

    def _find_in_task_tree(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """Find a module or folder of a task tree."""
        return PathFinder.find_spec(name, list(path) if path is not None else None)

    def _make_namespace(self, name: str, locations: list[str]) -> ModuleSpec:
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = locations
        return spec

    def _find_installed_folders(self, package: str, rest: str) -> list[str]:
        """Return the folders of the installed package, if any."""
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


_SQUAD = "transformers.data.metrics"
_SQUAD_MODULES = (_SQUAD, f"{_SQUAD}.squad_metrics")
_SQUAD_PARENTS = ("transformers", "transformers.data")


class ThirdPartyFinder:
    """Finder for `sys.meta_path`; see the module docstring."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open_loads = 0

    @contextmanager
    def loading(self, path: Path) -> Iterator[None]:
        """Make the SQuAD functions of transformers importable while a helper file that uses them is loaded.

        Only during the load, so that transformers otherwise still appears to be missing.
        """
        uses_squad = _SQUAD.encode() in path.read_bytes()
        self._open_loads += uses_squad
        try:
            yield
        finally:
            self._open_loads -= uses_squad
            if not self._open_loads:
                self._unload_transformers()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "evaluate":
            return self._find_evaluate()
        if name in _SQUAD_MODULES or (name in _SQUAD_PARENTS and self._open_loads):
            return PathFinder.find_spec(name, path) or self._find_shim(name)
        return None

    def _find_evaluate(self) -> ModuleSpec | None:
        real = PathFinder.find_spec("evaluate")
        if real is None or real.loader is None:
            return self._find_shim("evaluate")
        real.loader = _EvaluateLoader(real.loader)
        return real

    def _find_shim(self, name: str) -> ModuleSpec | None:
        location = self._folder.joinpath(*name.split("."))
        if (location / "__init__.py").is_file():
            return importlib.util.spec_from_file_location(
                name, location / "__init__.py", submodule_search_locations=[str(location)]
            )
        return importlib.util.spec_from_file_location(name, location.with_suffix(".py"))

    def _unload_transformers(self) -> None:
        """Remove the shim for transformers from `sys.modules`; the helper keeps the functions it imported."""
        if PathFinder.find_spec("transformers") is None:
            for name in (*_SQUAD_PARENTS, *_SQUAD_MODULES):
                sys.modules.pop(name, None)


class _EvaluateLoader(Loader):
    """Loads the installed `evaluate` and patches its `load`."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        patch_evaluate(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def patch_evaluate(module: Any) -> None:
    """Make `evaluate.load` return Assay's own implementation of a metric if there is one, without the hub."""
    real = module.load
    if getattr(real, "is_assay_patch", False):
        return

    def load(path: str, config_name: str | None = None, *arguments: Any, **keywords: Any) -> Any:
        return served_load(path, config_name, real=lambda *_: real(path, config_name, *arguments, **keywords))

    load.is_assay_patch = True  # type: ignore[attr-defined]
    module.load = load
