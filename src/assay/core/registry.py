"""Extensions by name: the only plugin mechanism.

A name gives a thing. Built-ins register with a decorator; installed packages through the entry point
group `assay.<kinds>`; both are found only when somebody asks. Two owners of one name are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Generic, TypeVar

from assay.core.errors import BadOption, UnknownName
from assay.core.plugins import plugins

__all__ = ["Registry"]

T = TypeVar("T")


class Registry(Generic[T]):
    """The extensions of one kind. Modules that hold built-ins are imported on first use.

    >>> filters: Registry[str] = Registry("filter")
    >>> filters.register("lowercase")("the thing")
    'the thing'
    >>> filters.get("lowercase")
    'the thing'
    """

    def __init__(self, kind: str, *, plural: str = "", builtin_modules: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.plural = plural or f"{kind}s"
        self._builtin_modules = builtin_modules
        self._items: dict[str, T] = {}
        self._lazy: dict[str, str] = {}
        self._loaded = False
        self._found: set[str] = set()
        """Names that were looked up and have one owner."""

    def register(self, *names: str) -> Callable[[T], T]:
        """Decorator: keep the decorated thing under these names."""

        def keep(item: T) -> T:
            for name in names:
                self.add(name, item)
            return item

        return keep

    def add(self, name: str, item: T, *, replace: bool = False) -> None:
        """Keep `item` under `name`; the same definition loaded twice is one thing, not two owners."""
        known = self._items.get(name)
        if known is not None and not replace and _origin(known) != _origin(item):
            raise BadOption(
                f"two {self.plural} are called `{name}`: {_origin(known)} and {_origin(item)}",
                hint="rename one of them",
            )
        self._items[name] = item

    def add_lazy(self, name: str, target: str) -> None:
        """Keep `package.module:attribute` under `name`, imported when first asked for."""
        if self._lazy.get(name, target) != target:
            raise BadOption(f"two {self.plural} are called `{name}`: {self._lazy[name]} and {target}")
        self._lazy[name] = target

    def get(self, name: str, *, where: str = "") -> T:
        """The thing called `name`, or an error with the place and the nearest name."""
        self._load_builtins()
        if name in self._found:
            return self._items[name]
        owners = [plugin.value for plugin in self._plugins(name)]
        owners += [_origin(self._items[name])] if name in self._items else []
        owners += [self._lazy[name]] if name in self._lazy else []
        if not owners:
            raise UnknownName.of(self.kind, name, self.names(), where=where, ls=self.plural)
        if len(owners) > 1:
            raise BadOption(
                f"two {self.plural} are called `{name}`: {' and '.join(owners)}",
                where=where,
                hint="uninstall or rename one",
            )
        if name not in self._items:
            module, _, attribute = owners[0].partition(":")
            self._items[name] = getattr(import_module(module), attribute)
        self._found.add(name)
        return self._items[name]

    def about(self, name: str) -> str:
        """One line on the thing called `name`: its own `about`, else the first line of its docstring."""
        thing = self.get(name)
        return getattr(thing, "about", "") or (getattr(thing, "__doc__", "") or "").strip().partition("\n")[0]

    def __contains__(self, name: object) -> bool:
        self._load_builtins()
        if not isinstance(name, str):
            return False
        return name in self._items or name in self._lazy or bool(self._plugins(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> list[str]:
        """Every name, built-in or installed, sorted."""
        self._load_builtins()
        installed = {plugin.name for plugin in plugins(f"assay.{self.plural}")}
        return sorted({*self._items, *self._lazy, *installed})

    def _plugins(self, name: str) -> list[EntryPoint]:
        return [plugin for plugin in plugins(f"assay.{self.plural}") if plugin.name == name]

    def _load_builtins(self) -> None:
        if not self._loaded:
            self._loaded = True
            for module in self._builtin_modules:
                import_module(module)


def _origin(item: object) -> str:
    """Where a thing was defined, for telling two owners apart."""
    module = getattr(item, "__module__", type(item).__module__)
    name = getattr(item, "__qualname__", type(item).__qualname__)
    return f"{module}.{name}"
