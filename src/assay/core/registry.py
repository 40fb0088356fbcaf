"""Registries of extensions by name: the only plugin mechanism.

Built-ins register with a decorator, installed packages through the entry point group `assay.<kinds>`. Both are loaded
on first use. It is an error if two extensions have the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Generic, TypeVar

from assay.core.entry_points import EntryPoint, find_entry_points
from assay.core.errors import InvalidOption, MissingPackage, UnknownName

__all__ = ["Registry"]

T = TypeVar("T")


class Registry(Generic[T]):
    """The extensions of one kind. The modules of the built-ins are imported on first use.

    >>> filters: Registry[str] = Registry("filter")
    >>> filters.register("lowercase")("the thing")
    'the thing'
    >>> filters.get("lowercase")
    'the thing'
    """

    def __init__(
        self,
        kind: str,
        *,
        plural: str = "",
        builtin_modules: tuple[str, ...] = (),
        builtin_package: str = "",
    ) -> None:
        """`builtin_package` names a package in which every module registers built-ins: a new file is enough."""
        self.kind = kind
        self.plural = plural or f"{kind}s"
        self._builtin_modules = builtin_modules
        self._builtin_package = builtin_package
        self._items: dict[str, T] = {}
        self._lazy_targets: dict[str, str] = {}
        self._plugins: dict[str, str] = {}
        self._builtins_loaded = False
        self._resolved: set[str] = set()
        """Names that were looked up and are unique."""

    def register(self, *names: str) -> Callable[[T], T]:
        """Return a decorator that registers an object under these names."""

        def decorate(item: T) -> T:
            for name in names:
                self.add(name, item)
            return item

        return decorate

    def add(self, name: str, item: T, *, replace: bool = False) -> None:
        """Register `item` under `name`. Loading the same definition twice is not a conflict."""
        known = self._items.get(name)
        if known is not None and not replace and _origin(known) != _origin(item):
            raise InvalidOption(
                f"two {self.plural} are called `{name}`: {_origin(known)} and {_origin(item)}",
                hint="rename one of them",
            )
        self._items[name] = item

    def add_lazy(self, name: str, target: str) -> None:
        """Register `package.module:attribute` under `name`; it is imported on first use."""
        if self._lazy_targets.get(name, target) != target:
            raise InvalidOption(
                f"two {self.plural} are called `{name}`: {self._lazy_targets[name]} and {target}"
            )
        self._lazy_targets[name] = target

    def add_plugin(self, distribution: str, *names: str) -> None:
        """Record that an optional plugin provides these names, so that errors can say what to install."""
        self._plugins.update(dict.fromkeys(names, distribution))

    def missing_plugins(self) -> dict[str, list[str]]:
        """Return the recorded plugins that are not installed, each with its names."""
        missing: dict[str, list[str]] = {}
        for name, distribution in self._plugins.items():
            if name not in self:
                missing.setdefault(distribution, []).append(name)
        return missing

    def get(self, name: str, *, where: str = "") -> T:
        """Return the extension called `name`.

        Raises:
            UnknownName: There is none; the hint shows the closest name.
            MissingPackage: A plugin provides it that is not installed.
        """
        self._load_builtins()
        if name in self._resolved and name in self._items:
            return self._items[name]
        origins = [plugin.value for plugin in self._matching_entry_points(name)]
        origins += [_origin(self._items[name])] if name in self._items else []
        origins += [self._lazy_targets[name]] if name in self._lazy_targets else []
        if not origins and name in self._plugins:
            from assay.core.installation import format_plugin_install_command

            plugin = self._plugins[name]
            message = f"the {self.kind} `{name}` is part of the plugin `{plugin}`, which is not installed"
            raise MissingPackage(message, where=where, hint=format_plugin_install_command(plugin))
        if not origins:
            raise UnknownName.of(self.kind, name, self.names(), where=where, ls=self.plural)
        if len(origins) > 1:
            raise InvalidOption(
                f"two {self.plural} are called `{name}`: {' and '.join(origins)}",
                where=where,
                hint="uninstall or rename one",
            )
        if name not in self._items:
            module, _, attribute = origins[0].partition(":")
            self._items[name] = getattr(import_module(module), attribute)
        self._resolved.add(name)
        return self._items[name]

    def about(self, name: str) -> str:
        """Return a one-line description: the `about` of the extension, else what the first line of its docstring says it returns."""
        item = self.get(name)
        about = getattr(item, "about", "") or (getattr(item, "__doc__", "") or "").strip().partition("\n")[0]
        returned = about.removeprefix("Return ")
        return f"{returned[:1].upper()}{returned[1:]}" if returned != about else about

    def __contains__(self, name: object) -> bool:
        self._load_builtins()
        if not isinstance(name, str):
            return False
        return name in self._items or name in self._lazy_targets or bool(self._matching_entry_points(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> list[str]:
        """Return all names, built-in and installed, sorted."""
        self._load_builtins()
        installed = {plugin.name for plugin in find_entry_points(f"assay.{self.plural}")}
        return sorted({*self._items, *self._lazy_targets, *installed})

    def _matching_entry_points(self, name: str) -> list[EntryPoint]:
        return [plugin for plugin in find_entry_points(f"assay.{self.plural}") if plugin.name == name]

    def _load_builtins(self) -> None:
        if not self._builtins_loaded:
            self._builtins_loaded = True
            for module in (*self._builtin_modules, *_list_modules(self._builtin_package)):
                import_module(module)


def _list_modules(package: str) -> list[str]:
    """Return the names of the modules in a package, sorted."""
    if not package:
        return []
    return sorted(f"{package}.{module.name}" for module in iter_modules(import_module(package).__path__))


def _origin(item: object) -> str:
    """Return where an object was defined."""
    module = getattr(item, "__module__", type(item).__module__)
    name = getattr(item, "__qualname__", type(item).__qualname__)
    return f"{module}.{name}"
