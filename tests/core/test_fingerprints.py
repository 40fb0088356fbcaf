from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from assay.core.fingerprints import canonical_json, digest_bytes, digest_json, digest_text

words = st.lists(st.text(), max_size=5)
plain: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


# Responses are kept under these names for years: a change here orphans every cache there is.
@pytest.mark.parametrize(
    ("digest", "expected"),
    [
        (digest_text(), "de75f5edfabdb0477e652512e4287161"),
        (digest_text(""), "87ebda15e5e28b77d08060992e0c765b"),
        (digest_text("ab", "c"), "7ab06ac19fd197fcda75c2e976157534"),
        (digest_text("Wie heißt du?"), "6da5e41aad7fed02800864b7af560d74"),
        (digest_bytes(b""), "cae66941d9efbd404e4d88758ea67670"),
        (digest_bytes(b"assay"), "245bdaed2b0670a662fc8f0688863eb2"),
        (
            digest_json({"until": ["\n"], "temperature": 0.7, "do_sample": True}),
            "0ad0977ec878f3a4c2dbdfa65b4163dc",
        ),
        (digest_json(None), "4efbdbba745127f8328170eb1fe0fc92"),
    ],
)
def test_names_are_the_same_in_every_release(digest: str, expected: str) -> None:
    assert digest == expected


@given(words, words)
def test_different_texts_have_different_names(first: list[str], second: list[str]) -> None:
    assume(first != second)
    assert digest_text(*first) != digest_text(*second)


@given(st.text(), st.text(min_size=1), st.text())
def test_where_one_text_ends_and_the_next_starts_counts(left: str, middle: str, right: str) -> None:
    assert digest_text(left + middle, right) != digest_text(left, middle + right)


@given(plain)
def test_a_name_has_32_hexadecimal_characters(value: Any) -> None:
    name = digest_json(value)
    assert len(name) == 32
    assert set(name) <= set("0123456789abcdef")


@given(st.dictionaries(st.text(), plain))
def test_the_order_of_keys_does_not_count(value: dict[str, Any]) -> None:
    assert digest_json(dict(reversed(value.items()))) == digest_json(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param((1, 2), "[1,2]", id="a tuple is a list"),
        pytest.param({"b": 1, "a": 2}, '{"a":2,"b":1}', id="keys are sorted"),
        pytest.param("ä\n", '"ä\\n"', id="text stays text"),
        pytest.param({3, 1, 2}, "[1,2,3]", id="a set is sorted"),
        pytest.param(frozenset("ba"), '["a","b"]', id="a frozen set too"),
        pytest.param(True, "true", id="true is not 1"),
        pytest.param(1.0, "1.0", id="a float is not an integer"),
        pytest.param(math.sqrt, '"math.sqrt"', id="a function is its name"),
        pytest.param(canonical_json, '"assay.core.fingerprints.canonical_json"', id="with its module"),
        pytest.param(b"assay", '"245bdaed2b0670a662fc8f0688863eb2"', id="bytes are their hash"),
    ],
)
def test_canonical_json(value: Any, expected: str) -> None:
    assert canonical_json(value) == expected


def test_numpy_numbers_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    assert canonical_json({"a": numpy.int64(3), "b": numpy.array([1.5, 2.0])}) == '{"a":3,"b":[1.5,2.0]}'


def test_a_thing_with_a_digest_is_its_digest() -> None:
    class Picture:
        digest = "abc"

    assert canonical_json([Picture()]) == '["abc"]'


def test_lone_surrogates_have_a_name_too() -> None:
    assert digest_text("\ud800") != digest_text("\ud801")
