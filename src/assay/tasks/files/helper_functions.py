"""`!function module.name` references: found when the YAML is read, imported when first called.

A reference names a file beside the YAML that contains it (`utils.doc_to_text` -> `utils.py`), else an
importable module. Nothing is executed before somebody needs the function.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import itertools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from assay.core.entry_points import find_entry_points
from assay.core.errors import AssayError, MissingPackage, TaskError
from assay.core.fingerprints import digest_bytes, digest_text
from assay.core.specs import TaskSpec

__all__ = ["HelperFunction", "execute_module", "load_module"]

_FOREIGN = ("lm_eval", "lmms_eval")
_NUMBERS = itertools.count()
_MODULES: dict[tuple[str, int], ModuleType] = {}


class HelperFunction:
    """A function of a task's helper file. Calling it loads the file once.

    Attributes:
        reference: As written in the YAML: `utils.process_docs`.
        directory: The folder of the YAML that contains the reference.
        where: `file:line` of the reference.
        own_module: Whether the helper file is executed for this reference alone, as lmms-eval does: functions
            of one file then share no module globals.
    """

    def __init__(self, reference: str, directory: Path, where: str, *, own_module: bool = False) -> None:
        self.reference = reference
        self.directory = directory
        self.where = where
        self.own_module = own_module
        self._function: Callable[..., Any] | None = None

    @property
    def __name__(self) -> str:
        return self.reference.rpartition(".")[2]

    @property
    def path(self) -> Path | None:
        """The helper file beside the YAML, if that is where the reference leads."""
        candidate = self.directory / (self.reference.rpartition(".")[0].replace(".", "/") + ".py")
        return candidate if candidate.is_file() else None

    @property
    def digest(self) -> str:
        """Changes when the reference, the helper file or a file beside it (which it may import) changes."""
        path = self.path
        beside = sorted(path.parent.glob("*.py")) if path is not None else []
        return digest_text(self.reference, *(digest_bytes(file.read_bytes()) for file in beside))

    def load(self) -> Callable[..., Any]:
        """The function itself.

        Raises:
            TaskError: The file, the module or the function is not there.
        """
        if self._function is None:
            found = self.value()
            if not callable(found):
                raise TaskError(f"`{self.reference}` is not a function", where=self.where)
            self._function = found
        return self._function

    def value(self) -> Any:
        """What the reference names, function or not: `dataset_kwargs` may want the features of a dataset."""
        return self._find() if self._function is None else self._function

    def with_own_module(self) -> HelperFunction:
        """The same reference with a module of its own."""
        return HelperFunction(self.reference, self.directory, self.where, own_module=True)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.load()(*arguments, **keywords)

    @property
    def __signature__(self) -> inspect.Signature:
        """What the function itself takes, for callers that ask before they call."""
        return inspect.signature(self.load())

    def __repr__(self) -> str:
        return f"!function {self.reference}"

    def _find(self) -> Any:
        module_name, _, name = self.reference.rpartition(".")
        if not module_name:
            raise TaskError(
                f"`!function {self.reference}` names no module",
                where=self.where,
                hint="write `!function file.function`",
            )
        module = self._module(module_name)
        if not hasattr(module, name):
            close = get_close_matches(name, dir(module), n=1)
            raise TaskError(
                f"`{module_name}` has no function `{name}`",
                where=self.where,
                hint=f"did you mean `{close[0]}`?"
                if close
                else f"looked in {getattr(module, '__file__', module_name)}",
            )
        return getattr(module, name)

    def _module(self, module_name: str) -> ModuleType:
        path = self.path
        try:
            if path is not None:
                return execute_module(path) if self.own_module else load_module(path)
            for layer in compatibility_layers():
                layer.module_name(self.directory / "any.py")  # makes known the task tree this file lies in
            return importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if path is None and error.name in (module_name, module_name.partition(".")[0]):
                raise TaskError(
                    f"there is no helper file for `!function {self.reference}`",
                    where=self.where,
                    hint=f"expected {self.directory / (module_name.replace('.', '/') + '.py')}",
                ) from None
            if error.name is None:  # raised by hand, with advice of its own
                raise MissingPackage(
                    f"the helper `{self.reference}` needs a package: {error}", where=str(path)
                ) from None
            package, _, rest = error.name.partition(".")
            user = f"the helper `{self.reference}`"
            if rest and package in _FOREIGN:  # a name this harness does not have, or no longer
                user = f"{user}, for `{error.name}`,"
            raise MissingPackage.of(
                package if rest and package in _FOREIGN else error.name, user, where=str(path or self.where)
            ) from None
        except SyntaxError as error:
            raise TaskError(
                f"helper file is not Python: {error.msg}", where=f"{path}:{error.lineno}"
            ) from None
        except AssayError:
            raise
        except SystemExit as error:
            raise TaskError(
                f"helper file ends the program when imported: exit {error}", where=str(path)
            ) from None
        except Exception as error:  # helper border: importing foreign code may raise anything
            raise TaskError(
                f"helper file fails when imported: {type(error).__name__}: {error}", where=str(path)
            ) from error


@lru_cache(maxsize=1)
def compatibility_layers() -> tuple[CompatibilityLayer, ...]:
    """Installed layers that make foreign import names work for helper files; made to work here, once."""
    layers: list[CompatibilityLayer] = [plugin.load() for plugin in find_entry_points("assay.compat")]
    for layer in layers:
        layer.install()
    return tuple(layers)


class CompatibilityLayer(Protocol):
    """A module that stands in for a foreign package."""

    def install(self) -> None: ...

    def module_name(self, path: Path) -> str | None:
        """The name a helper file has in its own harness, if it is one of its files."""
        ...

    def loading(self, path: Path) -> AbstractContextManager[None]:
        """Around the loading of a helper file."""
        ...

    def missing_judge(self, path: Path) -> str | None:
        """None when a helper file asks no judge; else what it lacks to ask one, empty when it lacks nothing."""
        ...

    def open_task(self, spec: TaskSpec, rendering: Any, splits: Any) -> Any:
        """The task a class named under `class:` describes; None when the class is not of this layer's kind."""
        ...


def load_module(path: Path) -> ModuleType:
    """Execute a helper file as a module; once per version of the file."""
    path = path.resolve()
    key = (str(path), path.stat().st_mtime_ns)
    if key not in _MODULES:
        _MODULES[key] = _execute(path, _module_name(path))
    return _MODULES[key]


def execute_module(path: Path) -> ModuleType:
    """Execute a helper file as one more module: nobody who imports the file by name gets this one."""
    path = path.resolve()
    return _execute(path, f"{_module_name(path)}@{next(_NUMBERS)}")


def _module_name(path: Path) -> str:
    foreign = (layer.module_name(path) for layer in compatibility_layers())
    return next(
        (found for found in foreign if found), f"assay_task_{digest_text(str(path))[:12]}_{path.stem}"
    )


def _execute(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TaskError("helper file cannot be imported", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with ExitStack() as stack:
            for layer in compatibility_layers():
                stack.enter_context(layer.loading(path))
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
