"""Parsing of `--model_args`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pytest

from assay.core.errors import InvalidOption
from assay.models.argument_parsing import argument, parse_argument, parse_count, parse_flag, parse_mapping


@pytest.mark.parametrize(("value", "expected"), [(True, True), ("true", True), ("False", False), ("1", True)])
def test_flags_are_parsed(value: Any, expected: bool) -> None:
    assert parse_flag(value) is expected


@pytest.mark.parametrize("value", [-1, "1.5", "many", True])
def test_a_count_is_a_non_negative_integer(value: Any) -> None:
    assert parse_count("3") == 3
    with pytest.raises(ValueError, match=r"not a non-negative integer|invalid literal"):
        parse_count(value)


def test_a_mapping_can_be_json() -> None:
    assert parse_mapping('{"a": 1}') == parse_mapping({"a": 1}) == {"a": 1}
    with pytest.raises(ValueError, match="not a mapping"):
        parse_mapping("[1]")


def test_an_invalid_value_is_an_error_with_the_names_of_argument_and_model() -> None:
    with pytest.raises(InvalidOption, match="argument `max_length` of `hf`"):
        parse_argument("max_length", "-1", parse_count, model="hf")


def test_a_field_knows_its_parser_and_whether_it_changes_answers() -> None:
    @dataclass(frozen=True)
    class Arguments:
        limit: int = argument(parse_count, 5)
        options: dict[str, Any] = argument(parse_mapping, {}, changes_answers=False)

    assert Arguments() == Arguments(limit=5, options={})
    limit, options = fields(Arguments)
    assert limit.metadata["parse"] is parse_count and limit.metadata["changes_answers"]
    assert not options.metadata["changes_answers"]
