from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.core.errors import AssayError, MissingPackage, TaskError
from assay.tasks.files.helper_functions import HelperFunction, load_module

Write = Callable[..., Path]


def function(reference: str, folder: Path) -> HelperFunction:
    return HelperFunction(reference, folder, "a.yaml:7")


def test_a_reference_leads_to_the_file_beside_the_yaml(write: Write, tmp_path: Path) -> None:
    write("utils.py", "def double(number, plus=0):\n    return 2 * number + plus\n")
    double = function("utils.double", tmp_path)
    assert double(4) == 8
    assert double(4, plus=1) == 9
    assert (double.__name__, double.path) == ("double", tmp_path / "utils.py")


def test_dots_are_folders(write: Write, tmp_path: Path) -> None:
    write("shared/text/clean.py", "def strip(text):\n    return text.strip()\n")
    assert function("shared.text.clean.strip", tmp_path)(" x ") == "x"


def test_what_is_not_beside_the_yaml_is_imported(tmp_path: Path) -> None:
    basename = function("os.path.basename", tmp_path)
    assert basename("a/b") == "b"
    assert basename.path is None


def test_a_file_beside_the_yaml_is_preferred_to_an_installed_module(write: Write, tmp_path: Path) -> None:
    write("json.py", "def dumps(value):\n    return 'mine'\n")
    assert function("json.dumps", tmp_path)({}) == "mine"


def test_nothing_is_executed_before_the_first_call_and_then_once(write: Write, tmp_path: Path) -> None:
    write(
        "utils.py",
        "with open(__file__ + '.log', 'a') as log: log.write('x')\ndef one(): return 1\ntwo = one\n",
    )
    log = tmp_path / "utils.py.log"
    one, two = function("utils.one", tmp_path), function("utils.two", tmp_path)
    assert one.digest
    assert one.path
    assert not log.exists()
    assert [one(), one(), two()] == [1, 1, 1]
    assert log.read_text() == "x"


def test_a_changed_helper_file_is_loaded_anew(write: Write, tmp_path: Path) -> None:
    path = write("utils.py", "def one():\n    return 1\n")
    assert function("utils.one", tmp_path)() == 1
    path.write_text("def one():\n    return 2\n")
    os.utime(path, ns=(1, 10**18))
    assert function("utils.one", tmp_path)() == 2


def test_two_helper_files_of_the_same_name_stay_apart(write: Write, tmp_path: Path) -> None:
    write("a/utils.py", "def who():\n    return 'a'\n")
    write("b/utils.py", "def who():\n    return 'b'\n")
    assert [function("utils.who", tmp_path / name)() for name in "ab"] == ["a", "b"]


def test_a_module_is_the_same_however_it_is_reached(write: Write, tmp_path: Path) -> None:
    path = write("sub/utils.py", "x = 1\n")
    assert load_module(path) is load_module(tmp_path / "sub" / ".." / "sub" / "utils.py")


def test_the_digest_changes_with_the_text_of_the_helper_file_and_with_the_reference(
    write: Write, tmp_path: Path
) -> None:
    path = write("utils.py", "def one():\n    return 1\n")
    before = function("utils.one", tmp_path).digest
    assert function("utils.one", tmp_path).digest == before
    assert function("utils.two", tmp_path).digest != before
    path.write_text("def one():\n    return 2\n")
    assert function("utils.one", tmp_path).digest != before


def test_a_reference_is_shown_as_it_was_written(tmp_path: Path) -> None:
    assert repr(function("utils.one", tmp_path)) == "!function utils.one"


@pytest.mark.parametrize(
    ("helper", "reference", "kind", "message", "hint"),
    [
        pytest.param(
            None,
            "utils.one",
            TaskError,
            "helper file not found for `!function utils.one`",
            "utils.py",
            id="no file",
        ),
        pytest.param(None, "a.b.one", TaskError, "helper file not found", "a/b.py", id="no folder"),
        pytest.param(
            None, "os.path.basenam", TaskError, "no function `basenam`", "basename", id="not in a module"
        ),
        pytest.param("def one(): ...", "utils.onee", TaskError, "no function `onee`", "`one`", id="a typo"),
        pytest.param(
            "def one(): ...", "utils.zzzz", TaskError, "no function `zzzz`", "utils.py", id="nothing near"
        ),
        pytest.param(
            "def one(): ...", "one", TaskError, "does not name a module", "file.function", id="no module"
        ),
        pytest.param("one = 1", "utils.one", TaskError, "not a function", "", id="not callable"),
        pytest.param(
            "def one(:", "utils.one", TaskError, "syntax error in the helper file", "", id="a syntax error"
        ),
        pytest.param(
            "  x = 1\n y = 2",
            "utils.one",
            TaskError,
            "syntax error in the helper file",
            "",
            id="bad indentation",
        ),
        pytest.param(
            "import no_such_thing",
            "utils.one",
            MissingPackage,
            "no_such_thing",
            "pip install",
            id="a package",
        ),
        pytest.param(
            "import no_such.thing", "utils.one", MissingPackage, "no_such", "pip install", id="a subpackage"
        ),
        pytest.param("from os import nope", "utils.one", TaskError, "ImportError", "", id="a missing name"),
        pytest.param("undefined", "utils.one", TaskError, "NameError", "", id="a name error"),
        pytest.param(
            "raise ValueError('no')", "utils.one", TaskError, "ValueError: no", "", id="a value error"
        ),
        pytest.param(
            "raise RuntimeError('no key')", "utils.one", TaskError, "no key", "", id="a runtime error"
        ),
        pytest.param("1 / 0", "utils.one", TaskError, "ZeroDivisionError", "", id="a division"),
        pytest.param("assert False, 'why'", "utils.one", TaskError, "why", "", id="an assertion"),
        pytest.param("[][0]", "utils.one", TaskError, "IndexError", "", id="an index"),
        pytest.param(
            "from .other import x", "utils.one", TaskError, "relative import", "", id="a relative import"
        ),
    ],
)
def test_a_function_that_cannot_be_had_says_why_and_where(
    write: Write,
    tmp_path: Path,
    helper: str | None,
    reference: str,
    kind: type[AssayError],
    message: str,
    hint: str,
) -> None:
    if helper is not None:
        write("utils.py", helper.encode() + b"\n")
    with pytest.raises(kind, match=message) as caught:
        function(reference, tmp_path).load()
    assert hint in caught.value.hint
    assert "a.yaml:7" in caught.value.where or "utils.py" in caught.value.where


@pytest.mark.parametrize(
    ("folder", "kind", "hint"),
    [("site-packages", MissingPackage, "pip install sharedspace"), ("helpers", TaskError, "")],
    ids=["a folder of several distributions", "a folder of the task"],
)
def test_a_missing_part_of_a_shared_folder_is_a_missing_package(
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
    kind: type[AssayError],
    hint: str,
) -> None:
    """`from google import genai` raises `ImportError`, because protobuf has a folder `google` too."""
    (tmp_path / folder / "sharedspace" / "other").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / folder))
    write("utils.py", "from sharedspace import part\n")
    with pytest.raises(kind, match="sharedspace") as caught:
        function("utils.one", tmp_path).load()
    assert type(caught.value) is kind
    assert hint in caught.value.hint and "utils.py" in caught.value.where


def test_a_syntax_error_names_its_line(write: Write, tmp_path: Path) -> None:
    path = write("utils.py", "x = 1\ny = 2\ndef broken(:\n")
    with pytest.raises(TaskError) as caught:
        function("utils.x", tmp_path).load()
    assert caught.value.where == f"{path}:3"


def test_a_helper_file_that_failed_is_tried_again(write: Write, tmp_path: Path) -> None:
    path = write("utils.py", "raise ValueError('no')\n")
    one = function("utils.one", tmp_path)
    with pytest.raises(TaskError):
        one.load()
    path.write_text("def one():\n    return 1\n")
    os.utime(path, ns=(1, 10**18))
    assert one() == 1


def test_what_a_helper_raises_when_called_is_not_disguised(write: Write, tmp_path: Path) -> None:
    write("utils.py", "def one(row):\n    return row['missing']\n")
    with pytest.raises(KeyError):
        function("utils.one", tmp_path)({})


def test_the_digest_of_a_helper_that_is_not_utf8_is_an_error_of_ours_or_a_digest(
    write: Write, tmp_path: Path
) -> None:
    write("utils.py", b"# -*- coding: latin-1 -*-\n# gr\xfc\xdfe\ndef one():\n    return 1\n")
    one = function("utils.one", tmp_path)
    assert one() == 1
    assert one.digest
