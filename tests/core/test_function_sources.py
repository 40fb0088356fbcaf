from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from assay.core.errors import TaskError
from assay.core.function_sources import SourceFile, digest_function

LIMIT = 3
NUMBER = re.compile(r"\d+", re.IGNORECASE)


class Connection:
    """An object without source code."""

    def __repr__(self) -> str:
        return "<connection>"


CONNECTION = Connection()


class Cleaner:
    def clean(self, text: str) -> str:
        return text.strip() * LIMIT


def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


@decorate
def render(document: dict[str, Any], times: int = LIMIT) -> str:
    found = NUMBER.findall(document["text"])
    return json.dumps([Cleaner().clean(document["text"]), found, times])


def ask(document: dict[str, Any]) -> str:
    return f"{CONNECTION} {document}"


def make_suffix(suffix: str) -> Callable[[str], str]:
    def add(text: str) -> str:
        return text + suffix

    return add


def load(file: SourceFile) -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": "saved"}
    exec(file.render(), found)
    return found


def test_a_saved_function_does_what_the_function_does() -> None:
    file = SourceFile()
    file.add("doc_to_text", render)
    document = {"text": " 12 b "}
    assert load(file)["doc_to_text"](document) == render(document)
    assert not file.unsaved


def test_lambdas_on_one_line_are_told_apart() -> None:
    first, second = (lambda document: document["a"]), (lambda document: document["b"])
    file = SourceFile()
    file.add("one", first)
    file.add("other", second)
    saved = load(file)
    assert (saved["one"]({"a": 1}), saved["other"]({"b": 2})) == (1, 2)


def test_variables_of_the_outer_function_are_saved() -> None:
    file = SourceFile()
    file.add("add", make_suffix("!"))
    assert load(file)["add"]("a") == "a!"


def test_one_name_with_two_values_is_not_saved_twice() -> None:
    file = SourceFile()
    file.add("first", make_suffix("!"))
    file.add("second", make_suffix("?"))
    assert list(file.unsaved) == ["second"] and load(file)["first"]("a") == "a!"


def test_functions_of_packages_are_imported() -> None:
    file = SourceFile()
    file.add("dump", json.dumps)
    assert "from json import dumps" in file.render()
    file.add("strip", str.strip)
    saved = load(file)
    assert saved["dump"]([1]) == "[1]" and saved["strip"](" a ") == "a" and not file.unsaved


def test_a_function_that_uses_an_object_is_named_with_the_reason() -> None:
    file = SourceFile()
    file.add("ask", ask)
    file.add("twice", functools.partial(render, times=2))
    assert file.unsaved == {
        "ask": "it uses `CONNECTION`, a Connection object",
        "twice": "it is a partial object",
    }
    assert "# def ask(document" in file.render()
    with pytest.raises(TaskError, match="`ask` is not saved"):
        load(file)["__getattr__"]("ask")


def test_the_digest_follows_the_source_and_the_values() -> None:
    assert digest_function(make_suffix("!")) == digest_function(make_suffix("!"))
    assert digest_function(make_suffix("!")) != digest_function(make_suffix("?"))
    assert digest_function(render) != digest_function(ask)


def test_lambdas_on_one_line_are_distinguished() -> None:
    suffix = "!"
    first, second = [lambda text: text + str(text), lambda text: str(text) + text]
    third, fourth = [lambda text: text + suffix, lambda text: suffix + text]
    files = []
    for function in (first, second, third, fourth):
        file = SourceFile()
        file.add("answer", function)
        files.append(file.render() if not file.unsaved else repr(file.unsaved))
    assert files[0] != files[1]
    assert files[2] != files[3] or "look alike" in files[2]
