"""`!function` references: found, importable, and taking what they will be called with."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.checks.findings import Findings
from assay.checks.packages import missing_packages
from assay.core.errors import AssayError, BadTask, MissingPackage
from assay.core.specs import TaskSpec
from assay.tasks.functions import HelperFunction

__all__ = ["Broken", "FunctionCheck", "functions_in"]

_ARGUMENTS: Mapping[str, tuple[int, ...]] = {
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
    "description": (1,),
    "gen_prefix": (1,),
    "samples": (0,),
    "aggregation": (1, 2),
    "filter_fn": (2,),
}
"""How many arguments the function under a key gets: one of these."""

_WITH_KEYWORDS: Mapping[str, tuple[int, ...]] = {
    "doc_to_text": (2,),
    "doc_to_visual": (1, 2),
    "doc_to_messages": (1, 2),
}
"""The same where the task has `lmms_eval_specific_kwargs`, which its functions get too."""


def functions_in(value: Any, place: str = "") -> Iterator[tuple[str, HelperFunction]]:
    """Every reference below a value, with its key path."""
    if isinstance(value, HelperFunction):
        yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from functions_in(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from functions_in(item, f"{place}[{at}]")


@dataclass(slots=True)
class Broken:
    """The functions of a task that cannot be loaded: they have their finding already."""

    places: set[str] = field(default_factory=set)
    files: bool = False
    """Whether a whole file cannot be imported, and with it what it might register."""


class FunctionCheck:
    """Loads the functions of many tasks; a helper file that cannot be imported is tried once, not per task."""

    def __init__(self) -> None:
        self._failed: dict[tuple[str, str], tuple[str, AssayError]] = {}

    def check(self, spec: TaskSpec, findings: Findings) -> Broken:
        """Check every function of a task; returns those that cannot be loaded."""
        broken = Broken()
        told: set[tuple[str, str]] = set()
        for place, function in functions_in(spec.config):
            try:
                loaded = self._load(function, place)
            except AssayError as error:
                broken.places.add(place)
                if _module_of(function) not in told:
                    _tell(error, findings)
                if _module_of(function) in self._failed:
                    told.add(_module_of(function))
                    broken.files = True
                continue
            self._check_call(spec, place, function, loaded, findings)
            for package, line in missing_packages(function):
                findings.warning(
                    "package",
                    f"the helper `{function.reference}` imports `{package}` when it is called; it is not installed",
                    f"{function.path}:{line}",
                    f"pip install {package}",
                )
        return broken

    def _load(self, function: HelperFunction, place: str) -> Callable[..., Any]:
        key = _module_of(function)
        if key in self._failed:
            reference, error = self._failed[key]
            raise type(error)(
                error.what.replace(f"`{reference}`", f"`{function.reference}`"),
                where=error.where,
                hint=error.hint,
            )
        try:
            if place.startswith("dataset_kwargs"):
                return function.value()  # type: ignore[no-any-return]  # anything: the features of a dataset
            return function.load()
        except AssayError as error:
            if isinstance(error, MissingPackage) or "helper file" in error.what:
                self._failed[key] = (function.reference, error)
            raise
        except SystemExit as stop:
            said = f": {stop.code}" if isinstance(stop.code, str) else ""
            what = f"helper file ends the program when imported{said}".replace("\n", " ")
            ended = BadTask(what, where=key[0])
            self._failed[key] = (function.reference, ended)
            raise ended from None

    def _check_call(
        self, spec: TaskSpec, place: str, function: HelperFunction, loaded: Any, findings: Findings
    ) -> None:
        try:
            signature = inspect.signature(loaded)
        except (ValueError, TypeError):  # written in C: nothing to read
            return
        problem = _call_problem(spec, re.split(r"[.\[]", place), signature)
        if problem:
            findings.error(
                "parameters",
                f"`{function.reference}{signature}` cannot be called {problem}",
                f"{function.where}, {place}",
            )


def _module_of(function: HelperFunction) -> tuple[str, str]:
    return str(function.path or function.directory), function.reference.rpartition(".")[0]


def _tell(error: AssayError, findings: Findings) -> None:
    findings.raised("package" if isinstance(error, MissingPackage) else "function", error)


def _call_problem(spec: TaskSpec, path: list[str], signature: inspect.Signature) -> str:
    """How the function under a key is called, where that is not possible; else nothing."""
    key = path[-1]
    if key == "class" or (key == "function" and path[0] == "filter_list"):
        return ""  # a class, checked with what it is made from
    if key == "metric" and path[0] == "metric_list":
        return "" if _takes_answers(signature) else "with `references` and `predictions`, nor with one pair"
    if key == "custom_dataset":
        settings = {**spec.metadata, **spec.dataset_kwargs}
        names = ", ".join(f"`{name}`" for name in settings) or "no arguments"
        return "" if _binds(signature, 0, settings) else f"with {names} (`metadata` and `dataset_kwargs`)"
    counts = _ARGUMENTS.get(key, ())
    if spec.lmms_eval_specific_kwargs is not None:
        counts = _WITH_KEYWORDS.get(key, counts)
    if key == "doc_to_target" and spec.model_specific_target_kwargs is not None:
        counts = (1, 2)
    if not counts or any(_binds(signature, count, {}) for count in counts):
        return ""
    return f"with {counts[0]} argument{'' if counts[0] == 1 else 's'}"


def _takes_answers(signature: inspect.Signature) -> bool:
    parameters = signature.parameters
    pairs = {"references", "predictions"} <= set(parameters)
    return pairs or _binds(signature, 1, {}) or _binds(signature, 0, {"references": [], "predictions": []})


def _binds(signature: inspect.Signature, count: int, keywords: Mapping[str, Any]) -> bool:
    try:
        signature.bind(*range(count), **keywords)
    except TypeError:
        return False
    return True
