"""Frozen records that are made as quickly as open ones.

A frozen dataclass fills each of its fields through `object.__setattr__`, which costs four times as much as an
assignment, and a run makes ten records for every document. Here the constructor fills the fields while the record is
still an instance of an open twin of its class; then it becomes what it is, and is as frozen as any other.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

__all__ = ["quickly_made"]

T = TypeVar("T")


def quickly_made(kind: type[T]) -> type[T]:
    """Give a frozen dataclass with slots a quicker constructor; it takes what the old one took.

        @quickly_made
        @dataclass(frozen=True, slots=True)
        class Point:
            x: float
            y: float = 0.0

    `__post_init__` still sees an open record.
    """
    open_twin = type(
        kind.__name__,
        (kind,),
        {"__slots__": (), "__setattr__": object.__setattr__, "__delattr__": object.__delattr__},
    )
    known: dict[str, Any] = {
        "_kind": kind,
        "_open_twin": open_twin,
        "_become": object.__dict__["__class__"].__set__,
        "_slow": kind.__init__,
        "_type": type,
        "_default": MISSING,
    }
    exec(_source(kind, known), known)  # as the `dataclasses` module makes its own
    made = known["__init__"]
    made.__qualname__ = f"{kind.__qualname__}.__init__"
    made.__module__ = kind.__module__
    made.__annotations__ = kind.__init__.__annotations__
    kind.__init__ = made  # type: ignore[method-assign]
    return kind


def _source(kind: type[Any], known: dict[str, Any]) -> str:
    """The text of the constructor; defaults become known under names of their own."""
    given = [item for item in fields(kind) if item.init]
    parameters = [_parameter(item, known) for item in given if not item.kw_only]
    by_name = [_parameter(item, known) for item in given if item.kw_only]
    parameters += ["*", *by_name] if by_name else []
    handed_on = ", ".join(f"{item.name}={item.name}" for item in given)
    lines = [
        f"def __init__(self, {', '.join(parameters)}):",
        "    if _type(self) is not _kind:",  # a subclass without a constructor of its own stays what it is
        f"        return _slow(self, {handed_on})",
        "    _become(self, _open_twin)",
        *[f"    self.{item.name} = {_value(item, known)}" for item in fields(kind) if _is_set(item)],
        *(["    self.__post_init__()"] if hasattr(kind, "__post_init__") else []),
        "    self.__class__ = _kind",
    ]
    return "\n".join(lines)


def _parameter(item: Field[Any], known: dict[str, Any]) -> str:
    if item.default is not MISSING:
        known[f"_default_{item.name}"] = item.default
        return f"{item.name}=_default_{item.name}"
    return f"{item.name}=_default" if item.default_factory is not MISSING else item.name


def _value(item: Field[Any], known: dict[str, Any]) -> str:
    if item.default_factory is not MISSING:
        known[f"_make_{item.name}"] = item.default_factory
        if not item.init:
            return f"_make_{item.name}()"
        return f"_make_{item.name}() if {item.name} is _default else {item.name}"
    if not item.init:
        known[f"_default_{item.name}"] = item.default
        return f"_default_{item.name}"
    return item.name


def _is_set(item: Field[Any]) -> bool:
    """Whether the constructor fills a field; others are left to `__post_init__`."""
    return item.init or item.default is not MISSING or item.default_factory is not MISSING
