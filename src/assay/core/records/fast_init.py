"""Frozen dataclasses with a fast constructor.

The constructor of a frozen dataclass sets each field through `object.__setattr__`, which is four times as slow as an
assignment, and a run creates ten records per document. With `fast_init`, the constructor sets the fields while the
object is an instance of a mutable subclass, and then changes its class to the frozen one.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

__all__ = ["fast_init"]

T = TypeVar("T")


def fast_init(cls: type[T]) -> type[T]:
    """Give a frozen dataclass with slots a faster constructor with the same signature.

        @fast_init
        @dataclass(frozen=True, slots=True)
        class Point:
            x: float
            y: float = 0.0

    `__post_init__` can still assign fields.
    """
    mutable_subclass = type(
        cls.__name__,
        (cls,),
        {"__slots__": (), "__setattr__": object.__setattr__, "__delattr__": object.__delattr__},
    )
    namespace: dict[str, Any] = {
        "_frozen_class": cls,
        "_mutable_subclass": mutable_subclass,
        "_set_class": object.__dict__["__class__"].__set__,
        "_dataclass_init": cls.__init__,
        "_type": type,
        "_default": MISSING,
    }
    exec(_constructor_source(cls, namespace), namespace)  # `dataclasses` generates constructors the same way
    constructor = namespace["__init__"]
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    constructor.__module__ = cls.__module__
    constructor.__annotations__ = cls.__init__.__annotations__
    cls.__init__ = constructor  # type: ignore[method-assign]
    return cls


def _constructor_source(cls: type[Any], namespace: dict[str, Any]) -> str:
    """Return the source of the constructor; add the defaults it refers to to `namespace`."""
    init_fields = [item for item in fields(cls) if item.init]
    parameters = [_parameter(item, namespace) for item in init_fields if not item.kw_only]
    keyword_only = [_parameter(item, namespace) for item in init_fields if item.kw_only]
    parameters += ["*", *keyword_only] if keyword_only else []
    arguments = ", ".join(f"{item.name}={item.name}" for item in init_fields)
    lines = [
        f"def __init__(self, {', '.join(parameters)}):",
        "    if _type(self) is not _frozen_class:",  # a subclass without its own constructor keeps its class
        f"        return _dataclass_init(self, {arguments})",
        "    _set_class(self, _mutable_subclass)",
        *[
            f"    self.{item.name} = {_value_expression(item, namespace)}"
            for item in fields(cls)
            if _is_set_by_constructor(item)
        ],
        *(["    self.__post_init__()"] if hasattr(cls, "__post_init__") else []),
        "    self.__class__ = _frozen_class",
    ]
    return "\n".join(lines)


def _parameter(item: Field[Any], namespace: dict[str, Any]) -> str:
    if item.default is not MISSING:
        namespace[f"_default_{item.name}"] = item.default
        return f"{item.name}=_default_{item.name}"
    return f"{item.name}=_default" if item.default_factory is not MISSING else item.name


def _value_expression(item: Field[Any], namespace: dict[str, Any]) -> str:
    if item.default_factory is not MISSING:
        namespace[f"_make_{item.name}"] = item.default_factory
        if not item.init:
            return f"_make_{item.name}()"
        return f"_make_{item.name}() if {item.name} is _default else {item.name}"
    if not item.init:
        namespace[f"_default_{item.name}"] = item.default
        return f"_default_{item.name}"
    return item.name


def _is_set_by_constructor(item: Field[Any]) -> bool:
    """Whether the constructor sets a field; `__post_init__` sets the others."""
    return item.init or item.default is not MISSING or item.default_factory is not MISSING
