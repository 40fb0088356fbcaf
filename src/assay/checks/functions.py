"""Check `!function` references: they exist, import, accept their arguments, and have their packages installed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.checks.findings import Findings
from assay.core.errors import AssayError, MissingPackage, TaskError
from assay.core.installation import find_distribution_name
from assay.core.records.specs import TaskSpec
from assay.tasks.files.helper_functions import HelperFunction
from assay.tasks.files.helper_imports import find_missing_imports

__all__ = ["BrokenFunctions", "FunctionChecker", "find_functions"]

_ARGUMENT_COUNTS: Mapping[str, tuple[int, ...]] = {
    "process_docs": (1,),
    "process_results": (2,),
    "doc_to_text": (1,),
    "doc_to_target": (1,),
    "doc_to_choice": (1,),
    "doc_to_image": (1,),
    "doc_to_audio": (1,),
    "doc_to_visual": (1,),
    "doc_to_messages": (1,),
    "doc_to_decontamination_query": (1,),
    "doc_to_tool_prompt": (1,),
    "tools": (1,),
    "description": (1,),
    "gen_prefix": (1,),
    "samples": (0,),
    "aggregation": (1, 2),
    "filter_fn": (2,),
}
"""Numbers of arguments that the function under a key may be called with."""

_ARGUMENT_COUNTS_WITH_KWARGS: Mapping[str, tuple[int, ...]] = {
    "doc_to_text": (2,),
    "doc_to_visual": (1, 2),
    "doc_to_messages": (1, 2),
}
"""The same for tasks with `lmms_eval_specific_kwargs`, which are passed to the functions."""


def find_functions(value: Any, place: str = "") -> Iterator[tuple[str, HelperFunction]]:
    """Yield every function reference inside a value with its key path."""
    if isinstance(value, HelperFunction):
        yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from find_functions(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from find_functions(item, f"{place}[{index}]")


@dataclass(slots=True)
class BrokenFunctions:
    """The functions of a task that cannot be loaded; each has a finding."""

    key_paths: set[str] = field(default_factory=set)
    has_broken_file: bool = False
    """Whether a whole file cannot be imported, so that names it registers are unknown."""


class FunctionChecker:
    """Loads the functions of many tasks; tries a broken helper file once, not once per task."""

    def __init__(self) -> None:
        self._failed: dict[tuple[str, str], tuple[str, AssayError]] = {}

    def check(self, spec: TaskSpec, findings: Findings) -> BrokenFunctions:
        """Check every function of a task and return those that cannot be loaded."""
        broken = BrokenFunctions()
        reported: set[tuple[str, str]] = set()
        missing: set[str] = set()
        for place, function in find_functions(spec.config):
            try:
                loaded = self._load(function, place)
            except AssayError as error:
                broken.key_paths.add(place)
                is_known = isinstance(error, MissingPackage) and error.hint in missing
                if _get_module_key(function) not in reported and not is_known:
                    findings.add_exception("function", error)
                if isinstance(error, MissingPackage):
                    missing.add(error.hint)
                    self._report_other_imports(function, missing, findings)
                    self._report_call_imports(function, missing, findings)
                if _get_module_key(function) in self._failed:
                    reported.add(_get_module_key(function))
                    broken.has_broken_file = True
                continue
            self._check_call(spec, place, function, loaded, findings)
            self._report_call_imports(function, missing, findings)
        return broken

    def _report_call_imports(self, function: HelperFunction, missing: set[str], findings: Findings) -> None:
        """Report the packages that a function imports when it is called."""
        for package, line in function.find_missing_call_imports():
            install = f"pip install {find_distribution_name(package)}"
            if install not in missing:
                missing.add(install)
                findings.warning(
                    "package",
                    f"the helper `{function.reference}` imports `{package}`, which is not installed",
                    f"{function.path}:{line}",
                    install,
                )

    def _report_other_imports(self, function: HelperFunction, missing: set[str], findings: Findings) -> None:
        """Report the packages that a helper file imports after the one that is missing, which ended its import."""
        for package, line in find_missing_imports(function.path) if function.path else ():
            install = f"pip install {find_distribution_name(package)}"
            if install not in missing:
                missing.add(install)
                findings.error(
                    "package",
                    f"the helper `{function.reference}` needs the package `{package}`",
                    f"{function.path}:{line}",
                    install,
                )

    def _load(self, function: HelperFunction, place: str) -> Callable[..., Any]:
        key = _get_module_key(function)
        if key in self._failed:
            reference, error = self._failed[key]
            raise type(error)(
                error.what.replace(f"`{reference}`", f"`{function.reference}`"),
                where=error.where,
                hint=error.hint,
            )
        try:
            if place.startswith("dataset_kwargs"):
                return function.value()  # type: ignore[no-any-return]  # any value, such as the features of a dataset
            return function.load()
        except AssayError as error:
            if isinstance(error, MissingPackage) or "helper file" in error.what:
                self._failed[key] = (function.reference, error)
            raise
        except SystemExit as stop:
            message = f": {stop.code}" if isinstance(stop.code, str) else ""
            what = f"helper file exits the process on import{message}".replace("\n", " ")
            exited = TaskError(what, where=key[0])
            self._failed[key] = (function.reference, exited)
            raise exited from None

    def _check_call(
        self, spec: TaskSpec, place: str, function: HelperFunction, loaded: Any, findings: Findings
    ) -> None:
        try:
            signature = inspect.signature(loaded)
        except (ValueError, TypeError):  # a C function without a signature
            return
        problem = _find_call_problem(spec, re.split(r"[.\[]", place), signature)
        if problem:
            findings.error(
                "parameters",
                f"`{function.reference}{signature}` cannot be called {problem}",
                f"{function.where}, {place}",
            )


def _get_module_key(function: HelperFunction) -> tuple[str, str]:
    return str(function.path or function.directory), function.reference.rpartition(".")[0]


def _find_call_problem(spec: TaskSpec, path: list[str], signature: inspect.Signature) -> str:
    """Return how the function under a key is called if its signature does not allow that, else an empty string."""
    key = path[-1]
    if key == "class" or (key == "function" and path[0] == "filter_list"):
        return ""  # a class, checked elsewhere
    if key == "metric" and path[0] == "metric_list":
        return (
            "" if _accepts_predictions(signature) else "with `references` and `predictions`, or with one pair"
        )
    if key == "custom_dataset":
        settings = {**spec.metadata, **spec.dataset_kwargs}
        names = ", ".join(f"`{name}`" for name in settings) or "no arguments"
        return "" if _can_bind(signature, 0, settings) else f"with {names} (`metadata` and `dataset_kwargs`)"
    counts = _ARGUMENT_COUNTS.get(key, ())
    if spec.lmms_eval_specific_kwargs is not None:
        counts = _ARGUMENT_COUNTS_WITH_KWARGS.get(key, counts)
    if key == "doc_to_target" and spec.model_specific_target_kwargs is not None:
        counts = (1, 2)
    if not counts or any(_can_bind(signature, count, {}) for count in counts):
        return ""
    return f"with {counts[0]} argument{'' if counts[0] == 1 else 's'}"


def _accepts_predictions(signature: inspect.Signature) -> bool:
    parameters = signature.parameters
    pairs = {"references", "predictions"} <= set(parameters)
    return (
        pairs or _can_bind(signature, 1, {}) or _can_bind(signature, 0, {"references": [], "predictions": []})
    )


def _can_bind(signature: inspect.Signature, count: int, keywords: Mapping[str, Any]) -> bool:
    try:
        signature.bind(*range(count), **keywords)
    except TypeError:
        return False
    return True
