"""`!function module.name` references: created when the YAML is read, imported on the first call.

A reference names a file in the folder of the YAML file (`utils.doc_to_text` -> `utils.py`) or an importable module.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import itertools
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from difflib import get_close_matches
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Protocol

from assay.core.entry_points import find_entry_points
from assay.core.errors import AssayError, MissingPackage, TaskError
from assay.core.fingerprints import digest_bytes, digest_text
from assay.core.installation import find_distribution_name
from assay.core.records.specs import TaskSpec
from assay.tasks.files.helper_imports import (
    find_import_draws,
    find_missing_call_imports,
    find_missing_imports,
    find_missing_part,
)

__all__ = [
    "HelperFunction",
    "compatibility_layers",
    "describe_missing_packages",
    "execute_module",
    "find_functions",
    "import_helper_file",
    "iterate_import_draws",
    "load_module",
    "may_draw_at_random",
    "use_live_function",
]

_HARNESSES = ("lm_eval", "lmms_eval")
_module_numbers = itertools.count()
_modules: dict[tuple[str, int], ModuleType] = {}
_live_functions: dict[tuple[str, str], Callable[..., Any]] = {}
"""Functions of tasks that this process defined, by saved file and name. They replace the functions in the file."""

_stopped_imports: set[tuple[str, int]] = set()


def use_live_function(path: Path, name: str, function: Callable[..., Any]) -> None:
    """Call this function in this process wherever a task refers to the name in a saved helper file."""
    _live_functions[str(path.resolve()), name] = function


class HelperFunction:
    """A function of a task's helper file. The first call imports the file.

    Attributes:
        reference: As written in the YAML: `utils.process_docs`.
        directory: The folder of the YAML that contains the reference.
        where: `file:line` of the reference.
        own_module: Whether this reference executes the helper file in a module of its own, as lmms_eval does, so that
            functions of one file share no module globals.
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
        """The helper file in the folder of the YAML file, if it exists."""
        candidate = self.directory / (self.reference.rpartition(".")[0].replace(".", "/") + ".py")
        return candidate if candidate.is_file() else None

    @property
    def digest(self) -> str:
        """A hash of the reference and of all Python files in the helper file's folder, which it may import."""
        path = self.path
        beside = sorted(path.parent.glob("*.py")) if path is not None else []
        return digest_text(self.reference, *(digest_bytes(file.read_bytes()) for file in beside))

    def load(self) -> Callable[..., Any]:
        """Import and return the function.

        Raises:
            TaskError: The file, the module or the function does not exist.
        """
        if self._function is None:
            found = self.value()
            if not callable(found):
                raise TaskError(f"`{self.reference}` is not a function", where=self.where)
            self._function = found
        return self._function

    def value(self) -> Any:
        """Return the referenced object, which may be data: `dataset_kwargs` may refer to dataset features."""
        return self._resolve() if self._function is None else self._function

    def find_missing_call_imports(self) -> list[tuple[str, int]]:
        """Return (package, line) of the packages that a call of the function imports and that are not installed."""
        return [] if self.path is None else find_missing_call_imports(self.path, self.__name__)

    @property
    def may_draw_at_random(self) -> bool:
        """Whether the function, or a function of its file that it calls, uses the module `random` or `numpy.random`."""
        try:
            function = inspect.unwrap(self.load())
        except Exception:  # noqa: BLE001 - the error is reported where the function is called
            return False
        return _uses_random_module(function)

    def with_own_module(self) -> HelperFunction:
        """Return the same reference with a module of its own."""
        return HelperFunction(self.reference, self.directory, self.where, own_module=True)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.load()(*arguments, **keywords)

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature of the function."""
        return inspect.signature(self.load())

    def __repr__(self) -> str:
        return f"!function {self.reference}"

    def _resolve(self) -> Any:
        module_name, _, name = self.reference.rpartition(".")
        if not module_name:
            raise TaskError(
                f"`!function {self.reference}` does not name a module",
                where=self.where,
                hint="write `!function file.function`",
            )
        path = self.path
        if path is not None and (live := _live_functions.get((str(path.resolve()), name))) is not None:
            return live
        module = self._import_module(module_name)
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

    def _import_module(self, module_name: str) -> ModuleType:
        path = self.path
        try:
            if path is not None:
                return execute_module(path) if self.own_module else load_module(path)
            for layer in compatibility_layers():
                layer.module_name(
                    self.directory / "any.py"
                )  # registers the task tree that contains this file
            return importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if path is None and error.name in (module_name, module_name.partition(".")[0]):
                raise TaskError(
                    f"helper file not found for `!function {self.reference}`",
                    where=self.where,
                    hint=f"expected {self.directory / (module_name.replace('.', '/') + '.py')}",
                ) from None
            if error.name is None:  # raised by the helper file, with its own advice
                raise MissingPackage(
                    f"the helper `{self.reference}` needs a package: {error}", where=str(path)
                ) from None
            package, _, rest = error.name.partition(".")
            user = f"the helper `{self.reference}`"
            if rest and package in _HARNESSES:  # a name that this version of the harness does not have
                user = f"{user}, for `{error.name}`,"
            missing = MissingPackage.of(
                package if rest and package in _HARNESSES else error.name, user, where=str(path or self.where)
            )
            if path is not None:
                missing.others = [
                    f"pip install {find_distribution_name(other)}" for other, _ in find_missing_imports(path)
                ]
            raise missing from None
        except SyntaxError as error:
            raise TaskError(
                f"syntax error in the helper file: {error.msg}", where=f"{path}:{error.lineno}"
            ) from None
        except AssayError:
            raise
        except SystemExit as error:
            raise TaskError(
                f"the helper file exits the program on import: exit {error}", where=str(path)
            ) from None
        except Exception as error:  # importing task code may raise anything
            part = find_missing_part(error) if isinstance(error, ImportError) else ""
            if part:
                user = f"the helper `{self.reference}`"
                raise MissingPackage.of(part, user, where=str(path or self.where)) from None
            if isinstance(error, ImportError) and _is_missing_harness(error.name or ""):
                name = str(error).partition("'")[2].partition("'")[0]
                user = f"the helper `{self.reference}`, for `{name}` of `{error.name}`,"
                raise MissingPackage.of(str(error.name).partition(".")[0], user, where=str(path)) from None
            raise TaskError(
                f"the helper file fails on import: {type(error).__name__}: {error}", where=str(path)
            ) from error


def _is_missing_harness(module: str) -> bool:
    """Whether a module belongs to a harness that is not installed, so that only Assay's own names of it exist."""
    package = module.partition(".")[0]
    if package not in _HARNESSES:
        return False
    spec = PathFinder.find_spec(package)
    folders = (spec.submodule_search_locations or ()) if spec is not None else ()
    return not any((Path(folder) / "api").is_dir() for folder in folders)


@lru_cache(maxsize=1)
def compatibility_layers() -> tuple[CompatibilityLayer, ...]:
    """Load and install the layers that provide the import names of other harnesses, once."""
    layers: list[CompatibilityLayer] = [plugin.load() for plugin in find_entry_points("assay.compat")]
    for layer in layers:
        layer.install()
    return tuple(layers)


class CompatibilityLayer(Protocol):
    """A module that provides the import names of other harnesses."""

    def install(self) -> None: ...

    def module_name(self, path: Path) -> str | None:
        """Return the module name of a helper file in its own harness, if it belongs to one."""
        ...

    def loading(self, path: Path) -> AbstractContextManager[None]:
        """Return a context manager for importing a helper file."""
        ...

    def missing_judge(self, path: Path) -> str | None:
        """Return None if a helper file uses no judge, otherwise what is missing to use one (empty: nothing)."""
        ...

    def open_task(self, spec: TaskSpec, rendering: Any, splits: Any) -> Any:
        """Open the task of a class named by `class:`. Return None if this layer does not support the class."""
        ...

    def find_model(self, name: str) -> Callable[..., Any] | None:
        """Return a factory for a model class of another harness. Return None if the name is not one of its models."""
        ...


def import_helper_file(path: Path, *, where: str) -> ModuleType:
    """Import a Python file of the user that no task refers to: one of `--include_path`.

    Raises:
        AssayError: The file fails on import, or needs a package that is not installed.
    """
    return HelperFunction(f"{path.stem}.{path.stem}", path.parent, where)._import_module(path.stem)


def _uses_random_module(function: Any) -> bool:
    """Search the compiled code of a function and of the functions of its module that it names."""
    names = getattr(function, "__globals__", {})
    waiting, seen = [getattr(function, "__code__", None)], set()
    while waiting:
        code = waiting.pop()
        if code is None or code in seen:
            continue
        seen.add(code)
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for name in code.co_names:
            value = names.get(name)
            if name == "random" or isinstance(getattr(value, "__self__", None), random.Random):
                return True
            if getattr(value, "__module__", None) == names.get("__name__"):
                waiting.append(getattr(value, "__code__", None))
    return False


def load_module(path: Path) -> ModuleType:
    """Import a helper file, once per version of the file."""
    path = path.resolve()
    key = (str(path), path.stat().st_mtime_ns)
    if key in _stopped_imports:
        raise TaskError("the import of the helper file was stopped", where=str(path))
    if key not in _modules:
        try:
            _modules[key] = _execute(path, _module_name(path))
        except (Exception, SystemExit):
            raise
        except BaseException:  # stopped by the time limit or a signal: another attempt would take as long
            _stopped_imports.add(key)
            raise
    return _modules[key]


def execute_module(path: Path) -> ModuleType:
    """Import a helper file as a separate module, which imports by name do not find."""
    path = path.resolve()
    return _execute(path, f"{_module_name(path)}@{next(_module_numbers)}")


def _module_name(path: Path) -> str:
    names = (layer.module_name(path) for layer in compatibility_layers())
    return next((name for name in names if name), f"assay_task_{digest_text(str(path))[:12]}_{path.stem}")


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


def find_functions(value: Any) -> list[HelperFunction]:
    """Return every `!function` inside a value of a task file."""
    if isinstance(value, HelperFunction):
        return [value]
    if isinstance(value, Mapping):
        return [function for item in value.values() for function in find_functions(item)]
    if isinstance(value, (list, tuple)):
        return [function for item in value for function in find_functions(item)]
    return []


def describe_missing_packages(specs: Iterable[TaskSpec]) -> dict[str, str]:
    """Return a note for each package that functions of tasks import when they are called and that is not installed.

    The keys are the commands that install them.
    """
    found: dict[str, str] = {}
    functions = (function for spec in specs for function in find_functions(spec.config))
    for function in {(function.path, function.__name__): function for function in functions}.values():
        for package, line in function.find_missing_call_imports():
            found.setdefault(
                f"pip install {find_distribution_name(package)}",
                f"the helper `{function.reference}` imports `{package}`, which is not installed ({function.path}:{line})",
            )
    return found


def iterate_import_draws(spec: TaskSpec) -> Iterator[tuple[str, list[tuple[str, int | None]]]]:
    """Yield each helper file of a task, in the order of the task file, with what its import does to the random generators."""
    paths = dict.fromkeys(function.path for function in find_functions(spec.config))
    for path in paths:
        if path is not None:
            yield str(path.resolve()), find_import_draws(path)


_SCORING_KEYS = frozenset(("process_results", "metric_list", "filter_list"))


def may_draw_at_random(spec: TaskSpec) -> bool:
    """Whether the code that loads and renders documents may draw from the global random generators."""
    if spec.config.get("class") is not None:
        return False
    config = {key: value for key, value in spec.config.items() if key not in _SCORING_KEYS}
    return any(function.may_draw_at_random for function in find_functions(config))
