"""Module names are meaningful, and texts contain no unfinished markers and no paths of a machine."""

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

MEANINGLESS_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager"}
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
MACHINE_PATH = re.compile(r"(?<![\w.~<-])/(?:work|root|home/\w+|Users/\w+)/")


def relative_name(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


def test_no_module_has_a_meaningless_name() -> None:
    names = {word for path in MODULES for word in (path.stem, path.parent.name)}
    assert not names & MEANINGLESS_NAMES


def test_no_unfinished_markers() -> None:
    found = [relative_name(path) for path in TEXTS if UNFINISHED.search(path.read_text("utf-8"))]
    assert not found, "finish it, or open an issue"


def test_no_machine_paths() -> None:
    found = [relative_name(path) for path in TEXTS if MACHINE_PATH.search(path.read_text("utf-8"))]
    assert not found


@pytest.mark.parametrize(
    ("text", "found"),
    [("see /root/x", True), ("at /home/me/x", True), ("https://a.b/work/x", False), ("src/root/x", False)],
)
def test_machine_path_pattern(text: str, found: bool) -> None:
    assert bool(MACHINE_PATH.search(text)) is found
