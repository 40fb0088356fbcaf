"""Every module with behaviour has its test file, or a row in tests/COVERED_BY_FLOWS.md that names the tests that cover it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.architecture.syntax_trees import walk_module

PROJECT = Path(__file__).parents[2]
TABLE = PROJECT / "tests" / "COVERED_BY_FLOWS.md"
WITHOUT_TESTS = {"__init__", "__main__"}
FOLDERS_WITHOUT_MIRROR = {"builtin_tasks", "shims"}
"""Task folders, whose tests are in tests/builtin_tasks, and import names of other harnesses, which only re-export."""


def read_rows() -> dict[str, list[str]]:
    """Return module -> test files and folders, as the table lists them."""
    rows = re.findall(r"^\| `([\w.]+)` \| (.+) \|$", TABLE.read_text("utf-8"), flags=re.M)
    return {module: [name.strip() for name in tests.split(",")] for module, tests in rows}


def find_modules() -> dict[str, Path]:
    """Return the modules that define a function."""
    found = {}
    for path in sorted((PROJECT / "src").rglob("*.py")):
        if path.stem in WITHOUT_TESTS or FOLDERS_WITHOUT_MIRROR & set(path.parts):
            continue
        if any(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in walk_module(path)):
            found[".".join(path.relative_to(PROJECT / "src").with_suffix("").parts)] = path
    return found


def find_mirror(path: Path) -> Path:
    relative = path.relative_to(PROJECT / "src")
    if relative.parts[0] == "assay":
        relative = Path(*relative.parts[1:])
    return PROJECT / "tests" / relative.parent / f"test_{relative.stem}.py"


def test_every_module_has_tests() -> None:
    rows = read_rows()
    missing = [
        module
        for module, path in find_modules().items()
        if module not in rows and not find_mirror(path).is_file()
    ]
    assert not missing, "add tests/<package>/test_<module>.py, or a row to tests/COVERED_BY_FLOWS.md"


def test_every_row_is_needed_and_names_tests_that_exist() -> None:
    modules = find_modules()
    for module, tests in read_rows().items():
        assert module in modules, f"{module} is no module with functions"
        assert not find_mirror(modules[module]).is_file(), f"{module} has its test file"
        for test in tests:
            assert (PROJECT / test).exists(), f"{module}: {test} does not exist"


def test_the_table_is_sorted() -> None:
    modules = list(read_rows())
    assert modules == sorted(modules)
