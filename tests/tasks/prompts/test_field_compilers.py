"""The rules by which a YAML value becomes a text, a target, choices, media: those of lm-evaluation-harness."""

from __future__ import annotations

from typing import Any

import pytest

from assay.core.errors import AssayError, TaskError
from assay.tasks.prompts.field_compilers import (
    compile_choices,
    compile_field,
    compile_media,
    compile_target,
    compile_text,
    copy_fields,
)

COLUMNS = ("q", "a", "n", "options", "none")
ROW: dict[str, Any] = {"q": "Why?", "a": "x", "n": 3, "options": ["x", "y"], "none": None}


def shout(fields: Any) -> str:
    return str(fields["q"]).upper()


@pytest.mark.parametrize(
    ("maker", "has_choices", "expected"),
    [
        ("q", False, "Why?"),
        ("n", False, 3),
        ("none", False, None),
        ("options", False, ["x", "y"]),
        ("Q: {{q}}", False, "Q: Why?"),
        ("question", False, "question"),
        ("", False, ""),
        ("{{n}}", False, "3"),
        ("{{n}}", True, 3),
        ("12", True, 12),
        ("12", False, "12"),
        (" 12", True, " 12"),
        ("-1", True, "-1"),
        ("1.0", True, "1.0"),
        (7, False, 7),
        (0, True, 0),
        (shout, False, "WHY?"),
    ],
)
def test_doc_to_text(maker: Any, has_choices: bool, expected: Any) -> None:
    made = compile_text(maker, COLUMNS, has_choices=has_choices)(ROW)
    assert (made, type(made)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("maker", "has_choices", "expected"),
    [
        ("a", False, "x"),
        ("n", False, 3),
        ("n", True, 3),
        ("options", False, ["x", "y"]),
        ("none", False, None),
        ("{{a}}", False, "x"),
        ("", False, ""),
        ("{{n}}", False, "3"),
        ("{{n}}", True, 3),
        ("{{options}}", False, ["x", "y"]),
        ("{{options}}", True, ["x", "y"]),
        ("['{{a}}', 'z']", False, ["x", "z"]),
        ("[not python]", False, "[not python]"),
        ("[", False, "["),
        ("[]", False, []),
        ("[1, 2] ", False, "[1, 2] "),
        ("(1, 2)", False, "(1, 2)"),
        (2, False, 2),
        ([1, 2], False, [1, 2]),
        (["x"], True, ["x"]),
        (shout, True, "WHY?"),
    ],
)
def test_doc_to_target(maker: Any, has_choices: bool, expected: Any) -> None:
    made = compile_target(maker, COLUMNS, has_choices=has_choices)(ROW)
    assert (made, type(made)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("maker", "expected"),
    [
        ("options", ["x", "y"]),
        ("{{options}}", ["x", "y"]),
        ("{{[a, q]}}", ["x", "Why?"]),
        ("['no', 'yes']", ["no", "yes"]),
        (["no", "yes"], ["no", "yes"]),
        ({"A": "no", "B": "yes"}, ["no", "yes"]),
        ({1: "no", 0: "yes"}, ["no", "yes"]),
        (lambda fields: list(fields["a"]), ["x"]),
    ],
)
def test_doc_to_choice(maker: Any, expected: list[str]) -> None:
    assert compile_choices(maker, COLUMNS)(ROW) == expected


@pytest.mark.parametrize(
    ("maker", "expected"),
    [
        ("q", "Why?"),
        (["q", "none", "a"], ["Why?", "x"]),
        ([["q"], "none"], [["Why?"]]),
        ("{{options}}", ["x", "y"]),
        (shout, "WHY?"),
        ([shout, "a"], ["WHY?", "x"]),
    ],
)
def test_doc_to_image_and_doc_to_audio(maker: Any, expected: Any) -> None:
    assert compile_media(maker, COLUMNS)(ROW) == expected


@pytest.mark.parametrize(
    ("maker", "expected"),
    [
        ("", ""),
        (None, None),
        ("q", "Why?"),
        ("On {{q}}\n", "On Why?\n"),
        ("plain", "plain"),
        (shout, "WHY?"),
    ],
)
def test_description_and_gen_prefix_of_an_example(maker: Any, expected: Any) -> None:
    assert compile_field(maker)(ROW) == expected


def test_a_description_is_a_field_only_where_the_document_has_it() -> None:
    make = compile_field("topic")
    assert (make({"topic": "birds"}), make({})) == ("birds", "topic")


@pytest.mark.parametrize("make", [compile_text, compile_target])
@pytest.mark.parametrize("text", ["²", "①", "٣"])
def test_what_only_looks_like_a_digit_is_text_or_a_number_never_a_crash(make: Any, text: str) -> None:
    assert make("{{q}}", (), has_choices=True)({"q": text}) in (text, 3)


@pytest.mark.parametrize(
    "text",
    ["[" * 5000 + "]" * 5000, "[{[]: 1}]", "[" + "-" * 5000 + "1]", "[" + "9" * 5000 + "]", "[\x00]"],
    ids=["deep", "unhashable", "minus", "long number", "nul"],
)
def test_a_target_that_looks_like_a_list_and_is_none_stays_text(text: str) -> None:
    assert compile_target("{{q}}", (), has_choices=False)({"q": text}) == text


@pytest.mark.parametrize(
    "text", ["no list", "", "[1", "f(x)", "{[]: 1}", "[" * 5000, "1 +"], ids=lambda text: text[:10] or "empty"
)
def test_choices_that_are_no_list_are_refused(text: str) -> None:
    with pytest.raises(TaskError, match="must render a list") as caught:
        compile_choices("{{q}}", (), where="a.yaml:5")({"q": text})
    assert caught.value.where == "a.yaml:5"


@pytest.mark.parametrize("text", ["5", "None"])
def test_choices_that_are_a_value_but_no_list_are_refused(text: str) -> None:
    with pytest.raises(TaskError, match="must render a list"):
        compile_choices("{{q}}", (), where="a.yaml:5")({"q": text})


@pytest.mark.parametrize(
    ("make", "maker"),
    [
        (compile_text, {"a": 1}),
        (compile_text, 1.5),
        (compile_text, ["x"]),
        (compile_target, {"a": 1}),
        (compile_target, 1.5),
    ],
)
def test_a_value_of_a_wrong_kind_is_refused(make: Any, maker: Any) -> None:
    with pytest.raises(TaskError, match="must be a template, a column or a function"):
        make(maker, COLUMNS, has_choices=False, where="a.yaml:5")


@pytest.mark.parametrize("make", [compile_choices, compile_media])
def test_a_number_is_neither_choices_nor_media(make: Any) -> None:
    with pytest.raises(AssayError):
        make(1.5, COLUMNS)(ROW)


def test_a_column_that_one_document_lacks_is_named() -> None:
    with pytest.raises(TaskError, match="no column `q`") as caught:
        compile_text("q", COLUMNS, has_choices=False, where="a.yaml:5")({"a": 1, "b": 2})
    assert (caught.value.where, caught.value.hint) == ("a.yaml:5", "columns: a, b")


def test_a_loan_may_be_scribbled_on() -> None:
    row = {"list": [1], "map": {"a": 1}, "text": "x"}
    lent = copy_fields(row)
    lent["list"].append(2)
    lent["map"]["b"] = 2
    lent["text"] = lent["new"] = "y"
    assert row == {"list": [1], "map": {"a": 1}, "text": "x"}
