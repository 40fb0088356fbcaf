"""Run every code block of the documentation, or parse it if the page gives a reason why it cannot run."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import PAGES, PROJECT, read_page
from tests.docs.reader import LANGUAGES, Reader, matches_output
from tests.docs.stand_in import StandIn, write_datasets

from assay import models
from assay.cli import app
from assay.core.registry import Registry
from assay.scoring.filters import FILTERS
from assay.scoring.metrics import METRICS
from assay.viewer.sinks import SINKS

GENERATED = ("<!-- made by scripts/generate_reference.py", ") generates this page")
WITH_BLOCKS = [
    page
    for page in PAGES
    if read_page(page) and not any(words in page.read_text("utf-8") for words in GENERATED)
]


def format_path(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the datasets that the pages use."""
    root = tmp_path_factory.mktemp("hub")
    write_datasets(root)
    return root


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one home for all pages, so that they share the response cache."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def reader(workspace: Path, hub: Path, answers: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """Return a reader in an empty folder on the import path, so that packages of the page can be imported."""
    for name in ("datasets", "hub"):
        (workspace / name).symlink_to(hub)
    for name, value in {"HOME": workspace, "ASSAY_HOME": answers, "ASSAY_DATA": hub}.items():
        monkeypatch.setenv(name, str(value))
    for scheme in ("http", "https"):  # no page reaches the network
        for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper()):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.syspath_prepend(str(workspace))
    monkeypatch.setattr(models, "BUILTIN_MODELS", list(models.BUILTIN_MODELS))
    monkeypatch.setattr(app, "COMMANDS", dict(app.COMMANDS))
    known = set(sys.modules)
    registries: list[Registry[Any]] = [models.MODELS, SINKS, METRICS, FILTERS]
    for registry in registries:
        registry.names()  # loads the built-ins
        for attribute in ("_items", "_lazy_targets", "_resolved"):
            monkeypatch.setattr(registry, attribute, copy(getattr(registry, attribute)))
    monkeypatch.setitem(models.MODELS._items, "stand_in", StandIn)
    yield Reader(workspace, monkeypatch)
    for name in set(sys.modules) - known:
        if str(workspace) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=format_path)
def test_the_examples_of_the_page_work(page: Path, reader: Reader) -> None:
    reader.read(read_page(page))


@pytest.mark.parametrize("page", PAGES, ids=format_path)
def test_every_block_has_a_language(page: Path) -> None:
    for block in read_page(page):
        assert not block.code or block.language in LANGUAGES, f"{block.place}: the block has no language"
        marker = block.marker("not run")
        assert marker is None or len(marker.value) > 10, f"{block.place}: the reason is too short"
        for test in re.findall(r"\btests/[\w/.]+", marker.value if marker else ""):
            assert (PROJECT / test).exists(), f"{block.place}: {test} does not exist"


def test_most_blocks_are_executed() -> None:
    ran = Counter(
        block.marker("not run") is None or bool(block.marker("not run").lines)  # type: ignore[union-attr]
        for page in WITH_BLOCKS
        for block in read_page(page)
        if block.language
    )
    assert ran[True] > 2 * ran[False], ran


@pytest.mark.parametrize(
    ("output", "shown", "matches"),
    [
        pytest.param("a\nb\nc\n", "b\n", True, id="lines among others"),
        pytest.param("a\nb\nc\n", "a\nc\n", False, id="a line is missing"),
        pytest.param("a\nb\nc\n", "a\n…\nc\n", True, id="lines left out"),
        pytest.param("took 3 s\n", "took … s\n", True, id="a number left out"),
        pytest.param("took 3 s\n", "took 4 s\n", False, id="another number"),
    ],
)
def test_output_is_compared(output: str, shown: str, matches: bool) -> None:
    assert matches_output(output, shown) is matches
