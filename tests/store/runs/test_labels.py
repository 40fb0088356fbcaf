"""Human labels: append-only, by person, safe with several writers."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from assay.core.errors import InvalidOption
from assay.store.runs.labels import (
    LABELS_FILE,
    append_label,
    compute_labels_signature,
    find_labeller,
    group_labels,
    read_run_labels,
)


def test_the_last_change_of_each_value_counts(tmp_path: Path) -> None:
    before = compute_labels_signature(tmp_path)
    append_label(tmp_path, "sums", 3, who="ann", verdict="wrong")
    append_label(tmp_path, "sums", 3, who="ann", note="off by one")
    append_label(tmp_path, "sums", 3, who="ann", verdict="right", star=True)
    append_label(tmp_path, "sums", 3, who="bob", verdict="wrong")
    append_label(tmp_path, "sums", 1, who="bob", verdict="right")
    append_label(tmp_path, "sums", 1, who="bob", verdict="")
    assert compute_labels_signature(tmp_path) != before
    ann, bob = read_run_labels(tmp_path)
    assert (ann.who, ann.verdict, ann.note, ann.star, ann.value) == ("ann", "right", "off by one", True, 1.0)
    assert (bob.who, bob.verdict, bob.value) == ("bob", "wrong", 0.0)
    assert ann.at > 0
    assert list(group_labels([ann, bob])) == [("sums", 3)]
    assert len((tmp_path / LABELS_FILE).read_text().splitlines()) == 6


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(lambda n: append_label(tmp_path, "sums", n, who=f"p{n % 3}", verdict="right"), range(80))
        )
    assert [label.document for label in read_run_labels(tmp_path)] == list(range(80))


def test_a_line_that_was_cut_off_is_ignored(tmp_path: Path) -> None:
    append_label(tmp_path, "sums", 1, who="ann", verdict="right")
    with (tmp_path / LABELS_FILE).open("a") as file:
        file.write('{"task": "sums", "docu')
    append_label(tmp_path, "sums", 2, who="ann", verdict="wrong")
    with (tmp_path / LABELS_FILE).open("a") as file:
        file.write(
            json.dumps({"task": "sums", "document": 2, "who": "ann", "at": 1, "verdict": "?"}) + "\n[]\n"
        )
    assert [(label.document, label.verdict) for label in read_run_labels(tmp_path)] == [
        (1, "right"),
        (2, "wrong"),
    ]


def test_a_rescoring_shares_the_labels_of_its_run(tmp_path: Path) -> None:
    inside = tmp_path / "scorings" / "1"
    inside.mkdir(parents=True)
    append_label(inside, "sums", 1, who="ann", verdict="right")
    assert read_run_labels(tmp_path) == read_run_labels(inside) != []


@pytest.mark.parametrize("given", [{"verdict": "maybe"}, {"note": "x" * 5000}])
def test_invalid_values_are_rejected(tmp_path: Path, given: dict[str, str]) -> None:
    with pytest.raises(InvalidOption):
        append_label(tmp_path, "sums", 1, who="ann", verdict=given.get("verdict"), note=given.get("note"))
    with pytest.raises(InvalidOption):
        append_label(tmp_path, "sums", 1, who="  ", verdict="right")


def test_the_name_of_the_labeller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_LABELLER", " Ann ")
    assert find_labeller() == "Ann"
    monkeypatch.delenv("ASSAY_LABELLER")
    monkeypatch.setenv("LOGNAME", "bob")
    assert find_labeller() == "bob"
