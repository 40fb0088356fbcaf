"""A record that is made quickly is in everything else the record it was."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any

import pytest

from assay.core.records.fast_init import fast_init


@fast_init
@dataclass(frozen=True, slots=True)
class Place:
    x: float
    y: float = 0.0
    names: list[str] = field(default_factory=list)
    kept: str = field(default="as it was", init=False)
    label: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", f"{self.x}, {self.y}")


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    place: Place
    mark: str = "!"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    name: str


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Person(_Named):
    age: int = 0


class Child(Person):
    """A subclass without a constructor of its own."""

    __slots__ = ()


def test_it_takes_what_the_constructor_of_a_dataclass_takes() -> None:
    place = Place(1.0, names=["here"])
    assert (place.x, place.y, place.names, place.kept, place.label) == (
        1.0,
        0.0,
        ["here"],
        "as it was",
        "1.0, 0.0",
    )
    assert Place(1.0, 2.0) == Place(y=2.0, x=1.0)
    assert Place(1.0).names is not Place(1.0).names, "a default that is made is made for each"
    assert Person(name="Ada", age=36) == Person(age=36, name="Ada")


@pytest.mark.parametrize(
    ("arguments", "named"), [((), {}), ((1.0, 2.0, [], "more"), {}), ((1.0,), {"z": 3.0})], ids=str
)
def test_what_it_does_not_take_is_refused(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Place(*arguments, **named)


def test_fields_that_are_given_by_name_are_not_given_by_position() -> None:
    with pytest.raises(TypeError):
        Marked(Place(1.0))  # type: ignore[call-arg]


@pytest.mark.parametrize("record", [Place(1.0), Marked(place=Place(2.0)), Person(name="Ada")], ids=repr)
def test_it_is_frozen(record: Any) -> None:
    first = fields(record)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(record, first, 5.0)
    with pytest.raises(FrozenInstanceError):
        delattr(record, first)
    assert not hasattr(record, "__dict__")


@pytest.mark.parametrize(
    "record", [Place(1.0, 2.0, ["a"]), Marked(place=Place(2.0)), Person(name="Ada", age=3)], ids=repr
)
def test_it_is_of_its_class_and_can_be_copied_kept_and_changed(record: Any) -> None:
    kind = type(record)
    assert kind in (Place, Marked, Person)
    for other in (
        copy.copy(record),
        copy.deepcopy(record),
        pickle.loads(pickle.dumps(record)),
        replace(record),
    ):
        assert type(other) is kind
        assert other == record
        assert asdict(other) == asdict(record)


def test_records_that_are_equal_have_the_same_hash() -> None:
    assert len({Person(name="Ada"), Person(name="Ada"), Person(name="Eve")}) == 2


def test_an_instance_of_a_subclass_stays_one() -> None:
    child = Child(name="Eve", age=3)
    assert (type(child), child.name, child.age) == (Child, "Eve", 3)
    with pytest.raises(FrozenInstanceError):
        child.age = 4  # type: ignore[misc]
