"""Import finders for the shims of other packages.

`HarnessFinder` resolves `lm_eval.*` and `lmms_eval.*`: first the shims in `shims/`, then task trees
(`lm_eval.tasks.x.utils`), then the installed package. If the package is installed, a name that a shim lacks comes from
the module of the package, which is loaded then: its model classes find everything they import. `ThirdPartyFinder`
resolves names that task helpers import from `evaluate`, `transformers` and `datasets` if those packages lack them.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from assay.scoring.hf_evaluate import load_metric as served_load
from assay.tasks.files.index import find_task_roots

_TREE_CHILD = 2
"""Number of dots in the name of a module directly in a task tree: `lm_eval.tasks.unitxt`."""

__all__ = ["HarnessFinder", "ThirdPartyFinder", "patch_evaluate", "import_submodule"]


class HarnessFinder:
    """Finder for `sys.meta_path`; see the module docstring."""

    def __init__(self, folder: Path, packages: tuple[str, ...]) -> None:
        self.packages = packages
        self._folder = folder
        self._task_trees: dict[str, list[str]] = {package: [] for package in packages}
        self._with_roots: set[str] = set()

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
        if rest.startswith("tasks."):
            return self._find_in_task_tree(name, path)
        shim = self._folder.joinpath(*name.split("."))
        installed = self._find_installed_folders(package, rest)
        if rest == "tasks":
            return _spec_from_shim(name, shim / "__init__.py", self._task_trees[package] or installed)
        if (shim / "__init__.py").is_file():
            return _spec_from_shim(name, shim / "__init__.py", [str(shim), *installed])
        file = shim.with_suffix(".py")
        if not file.is_file():
            return None
        if name in _FALLBACKS and self._has_installed_module(package, rest):
            parent = rest.rpartition(".")[0]  # its `__path__` names the folder of the shim first
            return PathFinder.find_spec(name, self._find_installed_folders(package, parent))
        return _spec_from_shim(name, file)

    def _find_in_task_tree(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """Find a module or folder of a task tree; of one that `ASSAY_TASKS` names if a script imports it before a run."""
        found = PathFinder.find_spec(name, list(path) if path is not None else None)
        package, *rest = name.split(".")
        if found is not None or len(rest) != _TREE_CHILD or not self._add_task_roots(package):
            return found
        return PathFinder.find_spec(name, self._task_trees[package])

    def _add_task_roots(self, package: str) -> bool:
        """Add the task folders that Assay finds without options, once; return whether there are any of this package."""
        if package not in self._with_roots:
            self._with_roots.add(package)
            for root in find_task_roots([]):
                if root.parts[-2:] == (package, "tasks"):
                    self.add_tasks(package, root)
        return bool(self._task_trees[package])

    def _has_installed_module(self, package: str, rest: str) -> bool:
        """Whether the installed package has this module, as a file or as a folder."""
        parent, _, name = rest.rpartition(".")
        folders = map(Path, self._find_installed_folders(package, parent))
        return any((folder / f"{name}.py").is_file() or (folder / name).is_dir() for folder in folders)

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


_FALLBACKS = frozenset(
    f"{package}.{module}"
    for package in ("lm_eval", "lmms_eval")
    for module in (
        "api.model",
        "evaluator",
        "models.api_models",
        "models.openai_completions",
        "models.utils",
        "protocol",
    )
)
"""Shims that stand back if the installed package has the module: its model classes derive from its own bases."""


def _spec_from_shim(name: str, file: Path, locations: list[str] | None = None) -> ModuleSpec | None:
    loader = _ShimLoader(name, str(file))
    return importlib.util.spec_from_file_location(
        name, file, loader=loader, submodule_search_locations=locations
    )


class _ShimLoader(SourceFileLoader):
    """Loads a shim. Names that it lacks come from the module of the installed package, if there is one."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        own = module.__dict__.get("__getattr__")
        installed = _InstalledModule(module.__name__)

        def get_attribute(name: str) -> Any:
            if own is not None:
                try:
                    return own(name)
                except AttributeError:
                    pass
            return installed.get(name)

        module.__dict__["__getattr__"] = get_attribute


class _InstalledModule:
    """The module of the installed package that a shim replaces. Loaded when a name is first read."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None
        self._lock = threading.RLock()

    def get(self, name: str) -> Any:
        """Return an attribute of the module.

        Raises:
            AttributeError: The package is not installed, or its module has no such name.
        """
        module = None
        if not name.startswith("__") or name == "__version__":
            module = self._load(name)
        if module is None:
            raise AttributeError(f"module {self._name!r} has no attribute {name!r}")
        return getattr(module, name)

    def _load(self, name: str) -> ModuleType | None:
        with self._lock:
            if self._module is not None:
                return self._module
            package, _, rest = self._name.partition(".")
            spec = _find_installed_spec(package, rest)
            if spec is None or spec.loader is None or _is_submodule(spec, name):
                return None
            module = importlib.util.module_from_spec(spec)
            self._module = module  # before it is executed: modules of the package import each other
            try:
                spec.loader.exec_module(module)
            except BaseException:
                self._module = None
                raise
            return module


def _find_installed_spec(package: str, rest: str) -> ModuleSpec | None:
    """Find a module of the installed package without importing its parents."""
    spec = PathFinder.find_spec(package)
    name = package
    for part in rest.split(".") if rest else ():
        if spec is None or not spec.submodule_search_locations:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec


def _is_submodule(spec: ModuleSpec, name: str) -> bool:
    """Whether a name of a package is a module in it, which the import system finds itself."""
    return any(
        (Path(folder) / f"{name}.py").is_file() or (Path(folder) / name).is_dir()
        for folder in spec.submodule_search_locations or ()
    )


def import_submodule(package: str, name: str) -> Any:
    """Import a submodule of an alias package for an attribute of the package.

    Raises:
        AttributeError: The package has no such submodule.
    """
    if name.startswith("__"):
        raise AttributeError(f"module `{package}` has no attribute `{name}`")
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{package}.{name}":
            raise
        raise AttributeError(f"module `{package}` has no attribute `{name}`") from None


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
        """Make what a helper file imports available while it is loaded: the SQuAD functions of transformers, and
        `load_metric` of datasets before 3.

        The functions only during the load, so that transformers otherwise still appears to be missing.
        """
        source = path.read_bytes()
        if b"load_metric" in source and b"datasets" in source:
            _provide_load_metric()
        uses_squad = _SQUAD.encode() in source
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


def _provide_load_metric() -> None:
    """Give `datasets` the function `load_metric`, which moved to `evaluate`, if the installed version lacks it."""
    try:
        import datasets
    except ModuleNotFoundError:  # the helper file reports it
        return
    if not hasattr(datasets, "load_metric"):
        datasets.load_metric = _load_metric


def _load_metric(path: str, config_name: str | None = None, *arguments: Any, **keywords: Any) -> Any:
    import evaluate

    return evaluate.load(path, config_name, *arguments, **keywords)


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
