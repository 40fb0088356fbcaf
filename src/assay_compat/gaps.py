"""Names of third packages that task helpers need and that are gone, or may not be installed.

`evaluate.load` asks the hub for scripts that Assay has; `transformers.data.metrics.squad_metrics` left with
transformers 5. The real packages stay what they are wherever they have what is asked for.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from assay.scoring.hub import load as served_load

__all__ = ["GapFinder", "serve_metrics"]

_SQUAD = "transformers.data.metrics"
_GONE = (_SQUAD, f"{_SQUAD}.squad_metrics")
_PARENTS = ("transformers", "transformers.data")


class GapFinder:
    """A finder for `sys.meta_path`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parents_wanted = 0

    @contextmanager
    def loading(self, path: Path) -> Iterator[None]:
        """While a helper file is loaded that names the SQuAD functions, its imports work without transformers.

        Only then: elsewhere a missing package has to look missing.
        """
        wanted = _SQUAD.encode() in path.read_bytes()
        self._parents_wanted += wanted
        try:
            yield
        finally:
            self._parents_wanted -= wanted
            if not self._parents_wanted:
                self._forget()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "evaluate":
            return self._evaluate()
        if name in _GONE or (name in _PARENTS and self._parents_wanted):
            return PathFinder.find_spec(name, path) or self._stand_in(name)
        return None

    def _evaluate(self) -> ModuleSpec | None:
        real = PathFinder.find_spec("evaluate")
        if real is None or real.loader is None:
            return self._stand_in("evaluate")
        real.loader = _ServingLoader(real.loader)
        return real

    def _stand_in(self, name: str) -> ModuleSpec | None:
        place = self._folder.joinpath(*name.split("."))
        if (place / "__init__.py").is_file():
            return importlib.util.spec_from_file_location(
                name, place / "__init__.py", submodule_search_locations=[str(place)]
            )
        return importlib.util.spec_from_file_location(name, place.with_suffix(".py"))

    def _forget(self) -> None:
        """Take the stand-in for transformers back; the helper keeps the functions it imported."""
        if PathFinder.find_spec("transformers") is None:
            for name in (*_PARENTS, *_GONE):
                sys.modules.pop(name, None)


class _ServingLoader(Loader):
    """Loads the real `evaluate`, then lets it serve what Assay has."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        serve_metrics(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def serve_metrics(module: Any) -> None:
    """Make `evaluate.load` answer with Assay's metrics where it has them, without the hub."""
    real = module.load
    if getattr(real, "serves_assay", False):
        return

    def load(path: str, config_name: str | None = None, *arguments: Any, **keywords: Any) -> Any:
        return served_load(path, config_name, real=lambda *_: real(path, config_name, *arguments, **keywords))

    load.serves_assay = True  # type: ignore[attr-defined]
    module.load = load
