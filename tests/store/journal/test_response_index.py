from __future__ import annotations

import pytest

from assay.store.journal import response_index
from assay.store.journal.response_index import ResponseIndex


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(response_index, "MAX_RECENT", 16)
    return 16


def test_a_name_leads_to_its_row_however_many_came_after_it(few: int) -> None:
    names = ResponseIndex()
    names.extend((f"name{row}", row) for row in range(1000))
    assert names.has_older
    assert names.next_row == 1000
    for row in range(1000):
        assert names.find_candidate_rows([f"name{row}"]) == [row]
    assert sorted(names.find_candidate_rows([f"name{row}" for row in range(0, 1000, 7)])) == list(
        range(0, 1000, 7)
    )


def test_a_name_that_was_never_added_leads_nowhere(few: int) -> None:
    names = ResponseIndex()
    assert names.find_candidate_rows(["x"]) == []
    names.extend((f"name{row}", row) for row in range(100))
    assert names.find_candidate_rows([f"other{row}" for row in range(1000)]) == []
    assert names.find_candidate_rows([]) == []


def test_only_the_last_names_are_kept_as_they_are(few: int) -> None:
    names = ResponseIndex()
    names.extend((f"name{row}", row) for row in range(few + 1))
    assert (names.is_recent("name0"), names.is_recent(f"name{few}")) == (False, True)


def test_rows_may_have_numbers_of_any_size(few: int) -> None:
    names = ResponseIndex()
    names.extend((f"name{row}", row + 2**32 - 8) for row in range(40))
    assert names.find_candidate_rows(["name0", "name39"]) in (
        [2**32 - 8, 2**32 + 31],
        [2**32 + 31, 2**32 - 8],
    )


def test_new_names_get_the_rows_after_the_last(few: int) -> None:
    names = ResponseIndex()
    names.add("first", 6)
    assert list(names.add_new(["a", "b"])) == [7, 8]
    assert list(names.add_new([f"name{row}" for row in range(2 * few)])) == list(range(9, 9 + 2 * few))
    assert list(names.add_new([])) == []
    assert (
        names.find_candidate_rows(["b"]),
        names.find_candidate_rows([f"name{2 * few - 1}"]),
        names.next_row,
    ) == (
        [8],
        [8 + 2 * few],
        9 + 2 * few,
    )
