from __future__ import annotations

import sys
from pathlib import Path

import pytest

from assay.core.errors import InvalidOption, UnknownName
from assay.core.registry import Registry


class Lowercase:
    """A thing to register."""


class Uppercase:
    """Another one."""


@pytest.fixture
def filters() -> Registry[object]:
    return Registry("filter")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path, as `pip install` would fill it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def install(site: Path, package: str, entry_points: str, code: str = "") -> None:
    """A distribution with these entry points and one module."""
    metadata = site / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[assay.filters]\n{entry_points}\n")
    (site / f"{package}.py").write_text(code)


def test_what_is_registered_is_found_under_each_of_its_names(filters: Registry[object]) -> None:
    filters.register("lowercase", "lower")(Lowercase)
    assert filters.get("lowercase") is filters.get("lower") is Lowercase


def test_the_decorator_gives_the_thing_back(filters: Registry[object]) -> None:
    assert filters.register("lowercase")(Lowercase) is Lowercase


def test_names_are_sorted(filters: Registry[object]) -> None:
    filters.add("b", Lowercase)
    filters.add_lazy("a", "json:loads")
    assert filters.names() == list(filters) == ["a", "b"]


def test_two_owners_of_one_name_are_both_named(filters: Registry[object]) -> None:
    filters.add("lowercase", Lowercase)
    with pytest.raises(InvalidOption, match="two filters are called `lowercase`") as caught:
        filters.add("lowercase", Uppercase)
    assert "Lowercase" in caught.value.what
    assert "Uppercase" in caught.value.what
    assert filters.get("lowercase") is Lowercase


def test_the_same_definition_loaded_twice_is_one_thing(filters: Registry[object]) -> None:
    filters.add("lowercase", Lowercase)
    filters.add("lowercase", Lowercase)
    assert filters.names() == ["lowercase"]


def test_replacing_has_to_be_asked_for(filters: Registry[object]) -> None:
    filters.add("lowercase", Lowercase)
    filters.add("lowercase", Uppercase, replace=True)
    assert filters.get("lowercase") is Uppercase


def test_an_unknown_name_is_an_error_with_place_and_nearest_name(filters: Registry[object]) -> None:
    filters.add("lowercase", Lowercase)
    with pytest.raises(UnknownName) as caught:
        filters.get("lowcase", where="sums.yaml:9, filter_list[0]")
    assert caught.value.where == "sums.yaml:9, filter_list[0]"
    assert "did you mean `lowercase`" in caught.value.hint


def test_membership_is_by_name(filters: Registry[object]) -> None:
    filters.add("lowercase", Lowercase)
    assert "lowercase" in filters
    assert "uppercase" not in filters
    assert 3 not in filters


def test_built_ins_are_imported_when_somebody_asks(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "my_builtins.py").write_text("loaded = True\n")
    registry: Registry[object] = Registry("filter", builtin_modules=("my_builtins",))
    assert "my_builtins" not in sys.modules
    assert registry.names() == []
    assert "my_builtins" in sys.modules
    monkeypatch.delitem(sys.modules, "my_builtins")


def test_a_lazy_thing_is_listed_without_importing_it(filters: Registry[object], site: Path) -> None:
    (site / "heavy_filter.py").write_text("raise RuntimeError('imported')\n")
    filters.add_lazy("heavy", "heavy_filter:Heavy")
    assert "heavy" in filters
    assert filters.names() == ["heavy"]
    with pytest.raises(RuntimeError, match="imported"):
        filters.get("heavy")


def test_a_lazy_thing_is_imported_once(filters: Registry[object]) -> None:
    filters.add_lazy("loads", "json:loads")
    assert filters.get("loads") is filters.get("loads")


def test_an_installed_plugin_is_listed_without_importing_it(filters: Registry[object], site: Path) -> None:
    install(site, "lazy_plugin", "shout = lazy_plugin:Shout", "raise RuntimeError('imported')\n")
    assert filters.names() == ["shout"]
    assert "shout" in filters
    assert "lazy_plugin" not in sys.modules


def test_an_installed_plugin_is_found_by_its_name(filters: Registry[object], site: Path) -> None:
    install(site, "shout_plugin", "shout = shout_plugin:Shout", "class Shout:\n    pass\n")
    shout = filters.get("shout")
    assert getattr(shout, "__module__", "") == "shout_plugin"
    assert filters.get("shout") is shout


def test_a_plugin_of_another_kind_is_not_found(site: Path) -> None:
    install(site, "other_plugin", "shout = other_plugin:Shout", "class Shout:\n    pass\n")
    assert Registry[object]("metric").names() == []


def test_two_plugins_of_one_name_are_both_named(filters: Registry[object], site: Path) -> None:
    install(site, "plugin_one", "shout = plugin_one:Shout")
    install(site, "plugin_two", "shout = plugin_two:Shout")
    with pytest.raises(InvalidOption, match="two filters are called `shout`") as caught:
        filters.get("shout")
    assert "plugin_one:Shout" in caught.value.what
    assert "plugin_two:Shout" in caught.value.what


def test_every_module_of_a_package_registers_its_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "found_builtins"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from assay.core.registry import Registry\nITEMS = Registry('item', builtin_package='found_builtins')\n"
    )
    for name in ("first", "second"):
        (package / f"{name}.py").write_text(
            f"from found_builtins import ITEMS\nITEMS.register('{name}')(len)\n"
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    from importlib import import_module

    registry = import_module("found_builtins").ITEMS
    assert "found_builtins.first" not in sys.modules
    assert registry.names() == ["first", "second"]


def test_an_extension_that_a_test_removed_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    registry: Registry[object] = Registry("metric")
    with monkeypatch.context() as patch:
        patch.setitem(registry._items, "temporary", object())
        registry.get("temporary")
    with pytest.raises(UnknownName):
        registry.get("temporary")
