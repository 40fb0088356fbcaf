"""Saved views of the table of documents."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from assay.core.errors import InvalidOption
from assay.core.home import assay_home
from assay.store.runs.saved_views import read_saved_views, remove_view, save_view


def test_views_are_saved_replaced_and_removed() -> None:
    assert read_saved_views() == {}
    save_view(" wrong  ones ", "where=wrong")
    assert save_view("all", "") == {"all": "", "wrong ones": "where=wrong"}
    assert save_view("all", "sort=score")["all"] == "sort=score"
    assert remove_view("all") == read_saved_views() == {"wrong ones": "where=wrong"}
    assert remove_view("unknown") == {"wrong ones": "where=wrong"}


def test_views_that_are_saved_at_the_same_time_are_all_kept() -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: save_view(f"view {n}", str(n)), range(20)))
    assert len(read_saved_views()) == 20


def test_invalid_views_are_rejected_and_a_damaged_file_is_ignored() -> None:
    for name, query in ((" ", ""), ("x" * 61, ""), ("x", "q" * 9000)):
        with pytest.raises(InvalidOption):
            save_view(name, query)
    (assay_home() / "viewer").mkdir(parents=True, exist_ok=True)
    (assay_home() / "viewer" / "views.json").write_text("{")
    assert read_saved_views() == {}
