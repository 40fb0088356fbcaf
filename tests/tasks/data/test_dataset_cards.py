"""Tests of the headers of dataset cards. `test_parquet_files.py` compares what is read by them with the `datasets` library."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay.tasks.data.dataset_cards import find_config_info, find_parquet_config, read_card

CARD = """---
configs:
- config_name: main
  data_files:
  - {split: test, path: "data/*.parquet"}
- config_name: other
  data_files: [{split: test, path: data/b.parquet}]
dataset_info:
- config_name: other
  features: [{name: a, dtype: string}]
  splits: [{name: test, num_examples: 3}]
---
----
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    for name in ("b", "a", "__c"):
        (tmp_path / "data" / f"{name}.parquet").touch()
    (tmp_path / "README.md").write_text(CARD)
    return tmp_path


def test_files_of_a_configuration_are_found_in_order(folder: Path) -> None:
    main, other = (find_parquet_config(folder, name) for name in ("main", "other"))
    assert main is not None
    assert other is not None
    assert main.files == {"test": [folder / "data" / "a.parquet", folder / "data" / "b.parquet"]}
    assert (main.features, main.counts) == (None, None)
    assert other.files == {"test": [folder / "data" / "b.parquet"]}
    assert (other.features, other.counts) == ([{"name": "a", "dtype": "string"}], {"test": 3})


@pytest.mark.parametrize("name", [None, "absent", "default"])
def test_a_configuration_must_be_certain(folder: Path, name: str | None) -> None:
    assert find_parquet_config(folder, name) is None


def test_a_configuration_that_is_described_twice_is_not_certain(folder: Path) -> None:
    twice = "- config_name: other\n  features: []\n---\n----"
    (folder / "README.md").write_text(CARD.replace("---\n----", twice))
    assert find_parquet_config(folder, "other") is None
    assert find_parquet_config(folder, "main") is not None


def test_a_changed_card_is_read_again(folder: Path) -> None:
    assert find_config_info(read_card(folder), "other")["splits"] == [{"name": "test", "num_examples": 3}]
    card = folder / "README.md"
    card.write_text(CARD.replace("num_examples: 3", "num_examples: 4"))
    os.utime(card, ns=(1, 1))
    assert find_config_info(read_card(folder), "other")["splits"] == [{"name": "test", "num_examples": 4}]


@pytest.mark.parametrize("text", ["", "no header", "---\nconfigs: [\n---\n", "---\n- a\n---\n"])
def test_a_card_without_a_header_is_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / "README.md").write_text(text)
    assert read_card(tmp_path) == {}
    assert find_parquet_config(tmp_path, None) is None
