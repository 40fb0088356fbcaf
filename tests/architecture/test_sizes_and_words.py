"""Files stay small, names say something, and nothing of one machine gets in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
SOURCE = PROJECT / "src" / "assay"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "builtin_tasks" not in path.parts)
TEXTS = sorted(
    path
    for folder in ("src", "tests", "docs", "scripts", "tools", ".ci", "examples")
    for path in (PROJECT / folder).rglob("*")
    if path.is_file()
    and path != Path(__file__)
    and path.suffix in {"", ".cfg", ".jinja", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
) + sorted(path for path in PROJECT.iterdir() if path.suffix in {".md", ".toml"} or path.name == "Makefile")

MOST_LINES = 400
EMPTY_WORDS = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager"}
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
MACHINE_PATH = re.compile(r"(?<![\w.~<-])/(?:work|root|home/\w+|Users/\w+)/")


def name_of(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_file_is_one_thing(path: Path) -> None:
    lines = len(path.read_text("utf-8").splitlines())
    assert lines <= MOST_LINES, "past 400 lines, ask whether it is two things"


def test_no_module_has_an_empty_name() -> None:
    names = {word for path in MODULES for word in (path.stem, path.parent.name)}
    assert not names & EMPTY_WORDS


def test_nothing_is_left_for_later() -> None:
    found = [name_of(path) for path in TEXTS if UNFINISHED.search(path.read_text("utf-8"))]
    assert not found, "do it, or open an issue"


def test_no_path_of_one_machine_gets_in() -> None:
    found = [name_of(path) for path in TEXTS if MACHINE_PATH.search(path.read_text("utf-8"))]
    assert not found


@pytest.mark.parametrize(
    ("text", "found"),
    [("see /root/x", True), ("at /home/me/x", True), ("https://a.b/work/x", False), ("src/root/x", False)],
)
def test_the_search_for_paths_knows_one(text: str, found: bool) -> None:
    assert bool(MACHINE_PATH.search(text)) is found
