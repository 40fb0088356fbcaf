"""SQL is written in `assay.store` only; all other packages call its methods."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tests.architecture.syntax_trees import walk_module

SOURCE = Path(__file__).parents[2] / "src"
STATEMENT = re.compile(
    r"\bSELECT\s.+\sFROM\s|\bINSERT\s+(OR\s+\w+\s+)?INTO\s|\bDELETE\s+FROM\s|\bUPDATE\s+\w+\s+SET\s"
    r"|\bCREATE\s+(TEMP\s+)?(TABLE|VIEW|INDEX)\s|\bPRAGMA\s+\w+",
    re.DOTALL,
)


def find_sql(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Yield the lines with an SQL statement or a call of a `query` method."""
    for node in nodes:
        if (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.search(node.value)
        ) or (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "query"
        ):
            yield node.lineno


def test_sql_is_only_written_in_the_store() -> None:
    store = SOURCE / "assay" / "store"
    files = [path for path in SOURCE.rglob("*.py") if not path.is_relative_to(store)]
    assert len(files) > 100
    found = [f"{path.relative_to(SOURCE)}:{line}" for path in files for line in find_sql(walk_module(path))]
    assert not found, "add a method to a class of assay.store instead"


@pytest.mark.parametrize(
    "source",
    [
        'rows = "SELECT id FROM asked"',
        'rows = "INSERT OR IGNORE INTO tasks VALUES (?)"',
        'rows = f"DELETE FROM {table}"',
        "rows = run.journal.query(statement)",
    ],
)
def test_a_statement_outside_the_store_is_found(source: str) -> None:
    assert list(find_sql(ast.walk(ast.parse(source)))) == [1]


def test_prose_is_not_taken_for_sql() -> None:
    tree = ast.parse('text = "Select a task from the list and update it."')
    assert not list(find_sql(ast.walk(tree)))
