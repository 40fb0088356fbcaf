"""The packages that a helper file imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.tasks.files import helper_imports
from assay.tasks.files.helper_imports import (
    find_import_draws,
    find_missing_call_imports,
    find_missing_imports,
    is_installed,
)

SOURCE = """
import json, no_package_one.part
from no_package_two import name
from beside import text
from .relative import other
try:
    import no_package_optional
except ImportError:
    pass
def function():
    import no_package_deferred
"""


def test_missing_imports_have_lines_and_leave_out_optional_ones(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("text = 1\n")
    helper = tmp_path / "utils.py"
    helper.write_text(SOURCE)
    assert find_missing_imports(helper) == [("no_package_one", 2), ("no_package_two", 3)]
    helper.write_text("def broken(:\n")
    assert find_missing_imports(helper) == []
    assert is_installed("pytest") and is_installed("json") and not is_installed("no_package_one")


CALLED = """
def function(doc):
    import beside, json, no_package_one
    if doc:
        import no_package_optional
    return inner(doc)

async def inner(doc):
    with doc:
        from no_package_two.part import name
    return function(doc)

class Task:
    def prepare(self):
        import no_package_three

def other():
    import no_package_four
"""


def test_imports_of_calls_follow_functions_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("")
    helper = tmp_path / "utils.py"
    helper.write_text(CALLED)
    assert find_missing_call_imports(helper, "function") == [("no_package_one", 3), ("no_package_two", 10)]
    assert find_missing_call_imports(helper, "Task") == [("no_package_three", 15)]
    assert find_missing_call_imports(helper, "absent") == []
    assert find_missing_call_imports(tmp_path / "absent.py", "function") == []


DRAWS = """
import random, numpy as np
from sklearn.metrics import f1_score
np.random.seed(7)
random.seed(42)
rng = random.Random(3)
random.seed(rng)
def function():
    random.seed(1)
"""


def test_draws_of_an_import_are_those_of_its_own_statements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "utils.py"
    helper.write_text(DRAWS)
    monkeypatch.setattr(helper_imports, "_imports_rich", lambda: True)
    assert find_import_draws(helper) == [("rich", None), ("numpy", 7), ("random", 42)]
    monkeypatch.setattr(helper_imports, "_imports_rich", lambda: False)
    assert find_import_draws(helper) == [("numpy", 7), ("random", 42)]
    assert find_import_draws(tmp_path / "missing.py") == []
