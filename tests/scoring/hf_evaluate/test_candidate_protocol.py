"""Tests of how tests reach a candidate."""

from __future__ import annotations

import pytest

from assay.scoring.hf_evaluate.candidate_protocol import choose_protocol


@pytest.mark.parametrize(
    ("tests", "names"),
    [
        ("assert add(2, 3) == 5", ("add",)),
        ("def check(candidate):\n    assert candidate(1) == 2\ncheck(inc)", ("inc",)),
        ("import math\nassert math.isclose(half(1), 0.5)", ("half",)),
        ("assert {key: f(key) for key in range(3)} == g()", ("f", "g")),
        ("try:\n    f()\nexcept ValueError as error:\n    assert str(error)", ("f",)),
        ("assert sum(10, 15) == 6", ("sum",)),
        ("assert sorted(f([2, 1])) == sum_all(3)", ("f", "sum_all")),
        ("", ()),
    ],
)
def test_functions_are_called_across_a_pipe(tests: str, names: tuple[str, ...]) -> None:
    found = choose_protocol(tests)
    assert (found.mode, found.names) == ("function_level", names)


@pytest.mark.parametrize(
    "tests",
    [
        "import unittest",
        "from unittest.mock import patch",
        "import pandas as pd",
        "from math import *",
        "class Node: pass",
        "async def go(): pass",
        "math.pi = 3\nassert f() == 3",
        "def check():\n    global counter\n    counter = 1",
        "assert eval('f(1)') == 2",
        "assert globals()['f'](1) == 2",
    ],
)
def test_tests_that_need_the_process_of_the_candidate_run_in_it(tests: str) -> None:
    assert choose_protocol(tests).mode == "in_process"
    assert choose_protocol(tests).separate


def test_tests_that_are_no_program_of_their_own_continue_the_candidate() -> None:
    found = choose_protocol("    return 5\nassert f() == 5")
    assert (found.mode, found.separate) == ("in_process", False)


@pytest.mark.parametrize(
    ("tests", "mode"),
    [
        ("stack = Stack()\nstack.push(1)\nassert stack.pop() == 1", "class_level"),
        ("assert Point(1, 2).x == 1", "class_level"),
        ("found = f([2, 1])\nfound.sort()\nassert found == [1, 2]", "function_level"),
        ("assert f('a').upper() == 'A'", "function_level"),
    ],
)
def test_attributes_tell_objects_from_data(tests: str, mode: str) -> None:
    assert choose_protocol(tests).mode == mode


def test_modules_that_the_candidate_imports_are_imported_again() -> None:
    found = choose_protocol("assert np.allclose(f(), math.pi) and helper.check(3)")
    assert dict(found.modules) == {"np": "numpy", "math": "math"}
    assert found.names == ("f", "helper", "math", "np")
    assert found.to_json()["modules"] == {"np": "numpy", "math": "math"}
