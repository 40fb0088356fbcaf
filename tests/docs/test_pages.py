"""Every code block of the documentation is run, or says why it cannot be and is read by the parser."""

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
from tests.docs.reader import LANGUAGES, Reader, shows
from tests.docs.stand_in import StandIn, lay_out

from assay import models
from assay.cli import app
from assay.core.registry import Registry
from assay.scoring.filters import FILTERS
from assay.scoring.metrics import METRICS
from assay.viewer.sinks import SINKS

GENERATED = ("<!-- made by scripts/generate_reference.py", "\nWritten by `make ")
WITH_BLOCKS = [
    page
    for page in PAGES
    if read_page(page) and not any(words in page.read_text("utf-8") for words in GENERATED)
]


def name_of(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the datasets are that the pages speak of."""
    root = tmp_path_factory.mktemp("hub")
    lay_out(root)
    return root


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home for all pages: what one of them asked, the others have."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def reader(workspace: Path, hub: Path, answers: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """In an empty folder that is on the search path, so that a package the page shows is installed there."""
    for name in ("datasets", "hub"):
        (workspace / name).symlink_to(hub)
    for name, value in {"HOME": workspace, "ASSAY_HOME": answers, "ASSAY_DATA": hub}.items():
        monkeypatch.setenv(name, str(value))
    for scheme in ("http", "https"):  # nothing a page says reaches the network
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


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name_of)
def test_what_the_page_says_can_be_done(page: Path, reader: Reader) -> None:
    reader.read(read_page(page))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    for block in read_page(page):
        assert not block.code or block.language in LANGUAGES, f"{block.place}: a block without a language"
        excuse = block.marker("not run")
        assert excuse is None or len(excuse.value) > 10, f"{block.place}: why can it not be run?"
        for test in re.findall(r"\btests/[\w/.]+", excuse.value if excuse else ""):
            assert (PROJECT / test).exists(), f"{block.place}: {test} is not there"


def test_more_is_run_than_excused() -> None:
    run = Counter(
        block.marker("not run") is None or bool(block.marker("not run").lines)  # type: ignore[union-attr]
        for page in WITH_BLOCKS
        for block in read_page(page)
        if block.language
    )
    assert run[True] > 2 * run[False], run


@pytest.mark.parametrize(
    ("said", "shown", "fits"),
    [
        pytest.param("a\nb\nc\n", "b\n", True, id="lines among others"),
        pytest.param("a\nb\nc\n", "a\nc\n", False, id="a line is missing"),
        pytest.param("a\nb\nc\n", "a\n…\nc\n", True, id="lines left out"),
        pytest.param("took 3 s\n", "took … s\n", True, id="a number left out"),
        pytest.param("took 3 s\n", "took 4 s\n", False, id="another number"),
    ],
)
def test_output_is_compared(said: str, shown: str, fits: bool) -> None:
    assert shows(said, shown) is fits
