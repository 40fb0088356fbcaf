"""Parsers of option values: one function per kind of value, each with its own error message."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.python_syntax import evaluate_literal
from assay.core.records.tools import TOOL_CALL_MODES
from assay.core.records.variants import FACTORS
from assay.core.secrets import redact_assignments

__all__ = [
    "check_limit",
    "group_mirrors",
    "parse_arguments",
    "parse_batch_size",
    "parse_bool",
    "parse_bootstrap_draws",
    "parse_chat_template",
    "parse_dollars",
    "parse_factors",
    "parse_fraction",
    "parse_limit",
    "parse_mirror",
    "parse_name_list",
    "parse_non_negative_integer",
    "parse_positive_integer",
    "parse_positive_number",
    "parse_reasoning_tags",
    "parse_samples",
    "parse_seconds",
    "parse_seed",
    "parse_subset",
    "parse_tool_mode",
    "parse_trace_mode",
    "parse_value",
]


def parse_value(text: str) -> Any:
    """Parse a value: true, 3, 0.5, [1,2], or text.

    >>> parse_value("true"), parse_value("0.5"), parse_value("a/b")
    (True, 0.5, 'a/b')
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.lower() in ("none", "null"):
        return None
    try:
        return evaluate_literal(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse `key=value,key=value` or a JSON object.

    >>> parse_arguments("pretrained=a/b,dtype=float32,n=3,stop=[1,2]")
    {'pretrained': 'a/b', 'dtype': 'float32', 'n': 3, 'stop': [1, 2]}
    """
    text = text.strip()
    if not text:
        return {}
    if text.startswith("{"):
        try:
            loaded = json.loads(text)
        except json.JSONDecodeError as error:
            place = "at the end" if error.pos >= len(text) else f"at character {error.pos + 1}"
            raise InvalidOption(
                f"invalid JSON: {error.msg} {place}",
                hint="write a complete JSON object in single quotes, or key=value,key=value",
            ) from None
        return dict(loaded)
    arguments = {}
    for piece in _split_top_level_commas(text):
        key, equals, value = piece.partition("=")
        if not equals or not key.strip():
            raise InvalidOption(
                f"`{redact_assignments(piece)}` is not of the form key=value",
                hint="write key=value,key=value, or a JSON object",
            )
        arguments[key.strip()] = parse_value(value.strip())
    return arguments


def _split_top_level_commas(text: str) -> list[str]:
    """Split at commas that are not inside brackets or quotes."""
    pieces, depth, quote, start = [], 0, "", 0
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'" and (position == 0 or text[position - 1] in "=,[{( "):
            quote = character
        elif character in "[{(":
            depth += 1
        elif character in ")}]":
            depth -= 1
        elif character == "," and depth <= 0:
            pieces.append(text[start:position])
            start = position + 1
    pieces.append(text[start:])
    return [piece for piece in pieces if piece.strip()]


def parse_limit(text: str) -> float | int | None:
    """Parse a number of documents, or a fraction of them if below 1.

    >>> parse_limit("10"), parse_limit("0.25")
    (10, 0.25)
    """
    try:
        value = float(text)
    except ValueError:
        raise InvalidOption(
            f"`{text}` is not a number",
            where="--limit",
            hint="use a number of documents (100) or a fraction (0.1)",
        ) from None
    return check_limit(value)


def check_limit(value: float) -> float | int | None:
    """Return a number of documents as an integer, a fraction unchanged, and None (all) for -1."""
    if value == -1:
        return None
    if not math.isfinite(value) or value <= 0 or (value > 1 and value != int(value)):
        raise InvalidOption(
            f"{value:g} is neither a number nor a fraction of documents",
            where="--limit",
            hint="for example 100 or 0.1",
        )
    return value if value < 1 else int(value)


def parse_seed(text: str) -> tuple[int | None, ...]:
    """Parse one seed for all generators, or four: python, numpy, torch, few-shot.

    >>> parse_seed("7"), parse_seed("0,1234,None,1234")
    ((7, 7, 7, 7), (0, 1234, None, 1234))
    """
    pieces = [piece.strip() for piece in text.split(",")]
    try:
        values = tuple(None if piece.lower() == "none" else int(piece) for piece in pieces)
    except ValueError:
        raise InvalidOption(
            f"`{text}` is not a seed", where="--seed", hint="use one integer or four: 0,1234,1234,1234"
        ) from None
    if any(value is not None and not 0 <= value < 2**32 for value in values):
        raise InvalidOption(
            f"`{text}` is not a seed", where="--seed", hint="seeds range from 0 to 4294967295"
        )
    if len(values) == 1:
        return values * 4
    if len(values) != 4:
        raise InvalidOption(
            f"expected 1 or 4 seeds, got {len(values)}",
            where="--seed",
            hint="use one integer or four: 0,1234,1234,1234",
        )
    return values


def parse_samples(text: str) -> dict[str, list[int]]:
    """Parse `{"task": [0, 3, 7]}`: JSON, or the path of a JSON file."""
    source = text
    if not text.lstrip().startswith("{"):
        try:
            with open(text, encoding="utf-8") as file:
                source = file.read()
        except OSError as error:
            raise InvalidOption(f"cannot read `{text}`: {error.strerror}", where="--samples") from None
    try:
        loaded = json.loads(source)
        return {str(task): [int(index) for index in indices] for task, indices in loaded.items()}
    except (ValueError, TypeError, AttributeError):
        raise InvalidOption(
            "expected a JSON object that maps task names to lists of document indices",
            where="--samples",
            hint='{"arc_easy": [0, 3, 7]}',
        ) from None


def parse_subset(text: str) -> dict[str, Any] | str:
    """Parse the subset of `--subset`: JSON, the path of a JSON file, or the name of a run, which stays text.

    >>> parse_subset("base-gsm8k-0a1b2c3d")
    'base-gsm8k-0a1b2c3d'
    """
    source = text.strip()
    if not source.startswith("{"):
        if not source.endswith(".json"):
            return source
        try:
            with open(source, encoding="utf-8") as file:
                source = file.read()
        except OSError as error:
            raise InvalidOption(f"cannot read `{text}`: {error.strerror}", where="--subset") from None
    try:
        loaded = json.loads(source)
    except ValueError as error:
        raise InvalidOption(f"the subset is not JSON: {error}", where="--subset") from None
    found = (
        loaded.get("subset", loaded) if isinstance(loaded, dict) else None
    )  # a results file contains the subset
    if not isinstance(found, dict) or not all(
        isinstance(one, dict) and "strata" in one for one in found.values()
    ):
        raise InvalidOption(
            "the file contains no subset",
            where="--subset",
            hint="pass the results file of a run with --budget",
        )
    return found


def parse_reasoning_tags(value: Any) -> tuple[tuple[str, str], ...]:
    """Parse pairs of tags around reasoning: a list, JSON, or `none`.

    >>> parse_reasoning_tags('[["<think>", "</think>"]]'), parse_reasoning_tags("none")
    ((('<think>', '</think>'),), ())
    """
    if value is False or (isinstance(value, str) and value.lower() == "none"):
        return ()
    try:
        pairs = json.loads(value) if isinstance(value, str) else value
        if all(isinstance(tag, str) and tag for pair in pairs for tag in pair):
            return tuple((opening, closing) for opening, closing in pairs)
    except (TypeError, ValueError):
        pass
    raise InvalidOption(
        f"invalid reasoning tags: {value!r:.80}", hint='use pairs of tags, [["<think>", "</think>"]], or none'
    )


def parse_batch_size(text: str) -> int | str:
    """Parse a number, `auto` or `auto:N`."""
    if text == "auto" or text.startswith("auto:"):
        return text
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise InvalidOption(
            f"`{text}` is not a batch size", where="--batch_size", hint="use a positive integer or `auto`"
        )
    return value


def parse_bool(text: str) -> bool:
    """Parse true/false, yes/no, on/off or 1/0."""
    lowered = text.lower()
    if lowered in ("true", "1", "yes", "on"):
        return True
    if lowered in ("false", "0", "no", "off"):
        return False
    raise InvalidOption(f"`{text}` is neither true nor false")


def parse_chat_template(text: str) -> bool | str:
    """Parse true, false, or the name of a chat template."""
    lowered = text.lower()
    return lowered == "true" if lowered in ("true", "false") else text


def parse_name_list(text: str) -> list[str]:
    """Parse a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_mirror(text: str) -> list[str]:
    """Parse `ID=OTHER`, another id or folder of a dataset."""
    name, separator, other = text.partition("=")
    if not (separator and name.strip() and other.strip()):
        raise InvalidOption(
            f"`{text}` does not name a mirror",
            hint="the id of the dataset and the other id: org/name=other/name",
        )
    return [f"{name.strip()}={other.strip()}"]


def group_mirrors(words: Iterable[str]) -> dict[str, list[str]]:
    """Return the other ids of each dataset, in order.

    >>> group_mirrors(["a/b=c/d", "a/b=e/f"])
    {'a/b': ['c/d', 'e/f']}
    """
    found: dict[str, list[str]] = {}
    for word in words:
        name, _, other = word.partition("=")
        found.setdefault(name, []).append(other)
    return found


def parse_fraction(text: str) -> float:
    """Parse a fraction between 0 and 1; `5%` is 0.05."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InvalidOption(f"`{text}` is not a fraction between 0 and 1", hint="for example 0.05 or 5%")
    return value


def parse_positive_number(text: str) -> float:
    """Parse a number greater than 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise InvalidOption(f"`{text}` is not a number greater than 0")
    return value


def parse_seconds(text: str) -> float:
    """Parse a number of seconds, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InvalidOption(f"`{text}` is not a number of seconds")
    return value


def parse_dollars(text: str) -> float:
    """Parse an amount of US dollars: `5`, `0.5` or `$5`."""
    try:
        value = float(text.strip().removeprefix("$"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InvalidOption(f"`{text}` is not an amount of US dollars", hint="for example 5 or 0.25")
    return value


def parse_non_negative_integer(text: str) -> int:
    """Parse an integer of at least 0."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise InvalidOption(f"`{text}` is not an integer of at least 0")
    return value


def parse_positive_integer(text: str) -> int:
    """Parse an integer of at least 1."""
    value = parse_non_negative_integer(text)
    if value == 0:
        raise InvalidOption("`0` is not an integer of at least 1")
    return value


def parse_bootstrap_draws(text: str) -> str:
    """Parse the bootstrap resampling method."""
    if text not in ("lm_eval", "own"):
        raise InvalidOption(
            f"unknown resampling method `{text}`", hint="use `lm_eval` (identical numbers) or `own` (faster)"
        )
    return text


def parse_tool_mode(text: str) -> str:
    """Parse how models get tools."""
    if text not in TOOL_CALL_MODES:
        raise InvalidOption(
            f"unknown mode of tool calls `{text}`", hint=f"use one of {', '.join(TOOL_CALL_MODES)}"
        )
    return text


def parse_trace_mode(text: str) -> str:
    """Parse how much of an agent trace the answer contains."""
    if text not in ("basic", "full"):
        raise InvalidOption(f"unknown trace mode `{text}`", hint="use `basic` or `full`")
    return text


def parse_factors(text: str) -> tuple[str, ...]:
    """Parse what varies between prompts, in a fixed order.

    >>> parse_factors("shots,order")
    ('order', 'shots')
    """
    given = [word.strip() for word in text.split(",") if word.strip()]
    for word in given:
        if word not in FACTORS:
            close = get_close_matches(word, FACTORS, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(FACTORS)}"
            raise InvalidOption(f"cannot vary `{word}`", hint=hint)
    return tuple(factor for factor in FACTORS if factor in given)
