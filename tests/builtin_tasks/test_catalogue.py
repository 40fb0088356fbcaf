"""Every built-in task is described: in its own README and on the page that lists them."""

from __future__ import annotations

import doctest
import fnmatch
import re
from pathlib import Path

import pytest
from tests.builtin_tasks.fake_hub import FOLDER, helper

from assay.tasks.files.index import TaskIndex

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "built-in-tasks.md"
FOLDERS = sorted(
    path for path in FOLDER.iterdir() if path.is_dir() and path.name not in ("quickstart", "__pycache__")
)
FILES = sorted(path for folder in FOLDERS for path in folder.glob("*.yaml"))


def test_the_page_lists_every_task_and_group_and_no_other() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`([\w*]+)`", row)}
    names = {
        name
        for name in TaskIndex.build([FOLDER]).names("task", "group")
        if not name.startswith("quickstart_")
    }
    for name in listed:
        assert fnmatch.filter(names, name), f"the page lists {name}, which is not there"
    assert not [name for name in names if not any(fnmatch.fnmatchcase(name, one) for one in listed)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_folder_says_where_its_data_comes_from_and_how_it_is_scored(folder: Path) -> None:
    text = (folder / "README.md").read_text("utf-8")
    for word in (
        "**Source**",
        "**Licence**",
        "**Paper**",
        "**Prompt",
        "## How it is scored",
        "## Known scores",
        "## Known differences",
    ):
        assert word in text, f"{word} is missing"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_task_file_begins_by_saying_what_it_asks(path: Path) -> None:
    assert path.read_text("utf-8").startswith("# ")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_metric_is_explained_in_the_readme(path: Path) -> None:
    readme = (path.parent / "README.md").read_text("utf-8")
    for metric in re.findall(r"- metric: (\w+)", path.read_text("utf-8")):
        assert f"`{metric}`" in readme, f"{metric} is not explained"


HELPERS = sorted(
    path for folder in FOLDERS for path in folder.glob("*.py") if ">>>" in path.read_text("utf-8")
)


@pytest.mark.parametrize("path", HELPERS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_examples_in_helper_files_are_true(path: Path) -> None:
    done = doctest.testmod(helper(path.parent.name, path.stem), optionflags=doctest.REPORT_NDIFF)
    assert done.attempted > 0
    assert done.failed == 0
