from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay.store.journal.document_set import DocumentSet


@given(numbers=st.sets(st.integers(0, 300)), asked=st.integers(-5, 400))
def test_positions_are_a_set(numbers: set[int], asked: int) -> None:
    positions = DocumentSet(numbers)
    assert set(positions) == numbers
    assert (asked in positions) == (asked in numbers)
    assert len(positions) == len(numbers)
    assert list(positions) == sorted(numbers)


def test_what_is_not_a_number_is_no_position() -> None:
    assert not DocumentSet([0]).__contains__("0")
