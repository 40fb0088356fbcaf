"""How a text becomes the value of an option: one small reader per kind, each with its own complaint."""

from __future__ import annotations

import ast
import json
import math
from typing import Any

from assay.core.errors import BadOption
from assay.core.secrets import mask_text

__all__ = [
    "check_limit",
    "parse_amount",
    "parse_arguments",
    "parse_batch_size",
    "parse_count",
    "parse_dollars",
    "parse_draws",
    "parse_limit",
    "parse_names",
    "parse_positive",
    "parse_samples",
    "parse_seconds",
    "parse_seed",
    "parse_share",
    "parse_switch",
    "parse_tags",
    "parse_template",
    "parse_trace_mode",
    "parse_value",
]


def parse_value(text: str) -> Any:
    """A value as people write it: true, 3, 0.5, [1,2], or text.

    >>> parse_value("true"), parse_value("0.5"), parse_value("a/b")
    (True, 0.5, 'a/b')
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.lower() in ("none", "null"):
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def parse_arguments(text: str) -> dict[str, Any]:
    """`key=value,key=value` or one JSON object.

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
            raise BadOption(
                f"this is not JSON: {error.msg} at character {error.pos}", where="--model_args"
            ) from None
        return dict(loaded)
    arguments = {}
    for piece in _split(text):
        key, equals, value = piece.partition("=")
        if not equals or not key.strip():
            raise BadOption(
                f"`{mask_text(piece)}` is not of the form key=value",
                hint="write key=value,key=value, or a JSON object",
            )
        arguments[key.strip()] = parse_value(value.strip())
    return arguments


def _split(text: str) -> list[str]:
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
    """A count of documents, or a share of them when below 1.

    >>> parse_limit("10"), parse_limit("0.25")
    (10, 0.25)
    """
    try:
        value = float(text)
    except ValueError:
        raise BadOption(
            f"`{text}` is not a number", where="--limit", hint="a count (100) or a share (0.1)"
        ) from None
    return check_limit(value)


def check_limit(value: float) -> float | int | None:
    """A count of documents as an integer, a share as it is; -1 means all."""
    if value == -1:
        return None
    if not math.isfinite(value) or value <= 0 or (value > 1 and value != int(value)):
        raise BadOption(
            f"{value:g} is neither a count nor a share of documents", where="--limit", hint="100, or 0.1"
        )
    return value if value < 1 else int(value)


def parse_seed(text: str) -> tuple[int | None, ...]:
    """One number for all generators, or four: python, numpy, torch, few-shot.

    >>> parse_seed("7"), parse_seed("0,1234,None,1234")
    ((7, 7, 7, 7), (0, 1234, None, 1234))
    """
    pieces = [piece.strip() for piece in text.split(",")]
    try:
        values = tuple(None if piece.lower() == "none" else int(piece) for piece in pieces)
    except ValueError:
        raise BadOption(
            f"`{text}` is not a seed", where="--seed", hint="one integer, or four: 0,1234,1234,1234"
        ) from None
    if any(value is not None and not 0 <= value < 2**32 for value in values):
        raise BadOption(f"`{text}` is not a seed", where="--seed", hint="seeds are from 0 to 4294967295")
    if len(values) == 1:
        return values * 4
    if len(values) != 4:
        raise BadOption(
            f"{len(values)} seeds given", where="--seed", hint="one integer, or four: 0,1234,1234,1234"
        )
    return values


def parse_samples(text: str) -> dict[str, list[int]]:
    """`{"task": [0, 3, 7]}` as JSON, or the path of such a file."""
    source = text
    if not text.lstrip().startswith("{"):
        try:
            with open(text, encoding="utf-8") as file:
                source = file.read()
        except OSError as error:
            raise BadOption(f"cannot read `{text}`: {error.strerror}", where="--samples") from None
    try:
        loaded = json.loads(source)
        return {str(task): [int(index) for index in indices] for task, indices in loaded.items()}
    except (ValueError, TypeError, AttributeError):
        raise BadOption(
            "the documents must be given as a JSON object of lists",
            where="--samples",
            hint='{"arc_easy": [0, 3, 7]}',
        ) from None


def parse_tags(given: Any) -> tuple[tuple[str, str], ...]:
    """Pairs of tags around a model's thoughts: a list, its JSON, or `none`.

    >>> parse_tags('[["<think>", "</think>"]]'), parse_tags("none")
    ((('<think>', '</think>'),), ())
    """
    if given is False or (isinstance(given, str) and given.lower() == "none"):
        return ()
    try:
        pairs = json.loads(given) if isinstance(given, str) else given
        if all(isinstance(tag, str) and tag for pair in pairs for tag in pair):
            return tuple((opening, closing) for opening, closing in pairs)
    except (TypeError, ValueError):
        pass
    raise BadOption(
        f"reasoning tags come in pairs, not as {given!r:.80}", hint='[["<think>", "</think>"]], or none'
    )


def parse_batch_size(text: str) -> int | str:
    """A number, `auto` or `auto:N`."""
    if text == "auto" or text.startswith("auto:"):
        return text
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise BadOption(
            f"`{text}` is not a batch size", where="--batch_size", hint="a positive integer, or `auto`"
        )
    return value


def parse_switch(text: str) -> bool:
    """true or false, in any of their spellings."""
    lowered = text.lower()
    if lowered in ("true", "1", "yes", "on"):
        return True
    if lowered in ("false", "0", "no", "off"):
        return False
    raise BadOption(f"`{text}` is neither true nor false")


def parse_template(text: str) -> bool | str:
    """true, false, or the name of a chat template."""
    lowered = text.lower()
    return lowered == "true" if lowered in ("true", "false") else text


def parse_names(text: str) -> list[str]:
    """A comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_share(text: str) -> float:
    """A share between 0 and 1; `5%` is 0.05."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise BadOption(f"`{text}` is not a share", hint="0.05 or 5%")
    return value


def parse_amount(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise BadOption(f"`{text}` is not a number above 0")
    return value


def parse_seconds(text: str) -> float:
    """Seconds, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise BadOption(f"`{text}` is not a number of seconds")
    return value


def parse_dollars(text: str) -> float:
    """An amount of money, `5`, `0.5` or `$5`."""
    try:
        value = float(text.strip().removeprefix("$"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise BadOption(f"`{text}` is not an amount of US dollars", hint="5 or 0.25")
    return value


def parse_count(text: str) -> int:
    """A whole number, 0 or more."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise BadOption(f"`{text}` is not a whole number of 0 or more")
    return value


def parse_positive(text: str) -> int:
    """A whole number, 1 or more."""
    value = parse_count(text)
    if value == 0:
        raise BadOption("`0` is not a whole number of 1 or more")
    return value


def parse_draws(text: str) -> str:
    """Whose draws a bootstrap makes."""
    if text not in ("lm_eval", "own"):
        raise BadOption(f"`{text}` is neither `lm_eval` nor `own`")
    return text


def parse_trace_mode(text: str) -> str:
    """How much of an agent's way its answer holds."""
    if text not in ("basic", "full"):
        raise BadOption(f"`{text}` is neither `basic` nor `full`")
    return text
