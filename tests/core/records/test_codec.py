"""`core.codec` as the journal uses it: what goes in comes out."""

from __future__ import annotations

import enum
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from assay.core.records.codec import decode, encode, to_plain

TEXTS = st.text(st.characters(codec=None), max_size=8)
ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    TEXTS,
    st.sampled_from(["$tuple", "$float", "$"]),
)
HASHABLE = st.recursive(
    st.one_of(ATOMS, st.binary(max_size=4)),
    lambda inner: st.tuples(inner, inner) | st.tuples(inner),
    max_leaves=4,
)
VALUES = st.recursive(
    st.one_of(ATOMS, st.binary(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.sets(HASHABLE, max_size=3),
    ),
    max_leaves=12,
)


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    ONE = "one"


def kinds(value: Any) -> Any:
    """The types all the way down, because 1 == 1.0 == True."""
    if isinstance(value, (list, tuple)):
        return type(value), [kinds(item) for item in value]
    if isinstance(value, dict):
        return dict, [(kinds(key), kinds(item)) for key, item in value.items()]
    return type(value)


@given(value=VALUES)
@example(value={"$tuple": [1]})
@example(value={"$array": "int64", "values": [1]})
@example(value={"$float": "nan", "more": 1, "still": 2})
@example(value=[math.inf, -math.inf, -0.0, 5e-324])
def test_whatever_goes_in_comes_out(value: Any) -> None:
    found = decode(encode(value))
    assert found == value
    assert kinds(found) == kinds(value)


@pytest.mark.parametrize("value", [math.nan, [math.nan], {"a": (math.nan,)}, {math.inf: -math.inf}])
def test_what_json_has_no_word_for_survives(value: Any) -> None:
    text = encode(value)
    assert "NaN" not in text and "Infinity" not in text
    assert repr(decode(text)) == repr(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(0.1), 0.1),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        (np.array(2.5), 2.5),
        (bytearray(b"x"), b"x"),
        (Number.ONE, 1),
        (Word.ONE, "one"),
    ],
    ids=repr,
)
def test_relatives_of_plain_values_become_plain(value: Any, expected: Any) -> None:
    found = decode(encode(value))
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.array([0.5, math.nan, -math.inf]),
        np.array(["a", "bc"]),
        np.array([True, False]),
        np.array([0.1, 0.2], dtype=np.float32),
        np.zeros(0),
    ],
    ids=lambda array: str(array.dtype),
)
def test_an_array_stays_an_array(array: Any) -> None:
    found = decode(encode({"a": array}))["a"]
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("value", [{frozenset({1}): 2}, {frozenset({1})}, [frozenset({1})]], ids=repr)
def test_a_frozen_set_stays_one(value: Any) -> None:
    found = decode(encode(value))
    assert found == value


@pytest.mark.parametrize(
    "value", [object(), [object()], 1j, int, open], ids=lambda value: type(value).__name__
)
def test_an_unsupported_type_is_rejected(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot store a value"):
        encode(value)


def test_the_text_is_json() -> None:
    assert json.loads(encode({"a": [1, (2, None)]})) == {"a": [1, {"$tuple": [2, None]}]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"n": (1, 2)}, {"n": [1, 2]}),
        ({1: {2}}, {"1": [2]}),
        (b"abc", "<3 bytes>"),
        (np.arange(2), [0, 1]),
        (np.float32(0.5), 0.5),
        (object, "<class 'object'>"),
    ],
    ids=repr,
)
def test_the_plain_view_shows_or_describes(value: Any, expected: Any) -> None:
    assert to_plain(value) == expected


def test_a_picture_is_described() -> None:
    from PIL import Image

    assert to_plain({"image": Image.new("RGB", (3, 2))}) == {"image": "<picture 3x2 RGB>"}
