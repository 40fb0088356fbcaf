"""Discrepancies between two answers to the same requests, each between 0 (alike) and 1.

Five kinds ("channels") are measured on every document: the score, the text, the log probabilities of given continuations, the
validity of tool calls, and the reason why an answer ended. A record is that of `Run.records`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

from assay.core.json_schema import describe_invalid_value

__all__ = [
    "CHANNELS",
    "find_first_difference",
    "is_sampled",
    "list_repeats",
    "measure_noise",
    "measure_pair",
    "read_score",
]

Record = Mapping[str, Any]

CHANNELS = ("scores", "texts", "likelihoods", "tool calls", "endings")
CHARACTERS_PER_TOKEN = 4
"""Length of a token if the run does not store tokens."""


def measure_pair(first: Sequence[Record], second: Sequence[Record]) -> dict[str, float]:
    """Return the discrepancy of each channel between two answers to a document, each a list of requests; scores excluded."""
    found: dict[str, list[float]] = {}
    likelihoods: list[tuple[float, float]] = []
    for one, other in zip(first, second, strict=True):
        if one["kind"] == "generate":
            if one.get("response") is None or other.get("response") is None:
                continue
            position = find_first_difference(one, other)
            found.setdefault("texts", []).append(0.0 if position is None else 1 / position)
            if one.get("finish") and other.get("finish"):
                found.setdefault("endings", []).append(float(one["finish"] != other["finish"]))
            if "tools" in one:
                validity = [_has_valid_calls(request) for request in (one, other)]
                found.setdefault("tool calls", []).append(float(validity[0] != validity[1]))
        elif one.get("logprob") is not None and other.get("logprob") is not None:
            likelihoods.append((_per_unit(one), _per_unit(other)))
    if likelihoods:
        found["likelihoods"] = [_compare_likelihoods(likelihoods)]
    return {name: math.fsum(values) / len(values) for name, values in found.items()}


def measure_noise(answers: Sequence[Sequence[Record]]) -> dict[str, float]:
    """Return the mean discrepancy between the repeated answers of one model to a document."""
    pairs = [measure_pair(one, other) for one, other in combinations(answers, 2)]
    return average(pairs)


def measure_between(
    first: Sequence[Sequence[Record]], second: Sequence[Sequence[Record]]
) -> dict[str, float]:
    """Return the mean discrepancy between the repeated answers of two models to a document."""
    return average([measure_pair(one, other) for one, other in product(first, second)])


def average(pairs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each channel over the pairs that have it."""
    names = dict.fromkeys(name for pair in pairs for name in pair)
    found = {}
    for name in names:
        values = [pair[name] for pair in pairs if name in pair]
        found[name] = math.fsum(values) / len(values)
    return found


def find_first_difference(first: Record, second: Record) -> int | None:
    """Return the position of the first token that differs, from 1 on; None if the answers are equal.

    Positions are in tokens if both runs store them (`--token_logprobs`), else in units of four characters.

    >>> one = {"response": "The capital is Paris"}
    >>> find_first_difference(one, {"response": "The capital is Rome"})
    4
    """
    texts = [_to_text(request) for request in (first, second)]
    if texts[0] == texts[1]:
        return None
    if all(request.get("tokens") and not request.get("tool_calls") for request in (first, second)):
        tokens = [[piece for piece, _ in request["tokens"]] for request in (first, second)]
        for index, (one, other) in enumerate(zip(tokens[0], tokens[1], strict=False)):
            if one != other:
                return index + 1
        return min(map(len, tokens)) + 1
    shared = next(
        (index for index, (one, other) in enumerate(zip(*texts, strict=False)) if one != other),
        min(map(len, texts)),
    )
    return shared // CHARACTERS_PER_TOKEN + 1


def _to_text(request: Record) -> str:
    """Return the text of an answer; the tool calls as JSON if there are any."""
    text = str(request.get("response") or "")
    calls = request.get("tool_calls")
    return text if not calls else f"{text}{json.dumps(calls, sort_keys=True)}"


def _has_valid_calls(request: Record) -> bool:
    """Whether all tool calls name a known tool and their arguments fit its schema."""
    tools = {tool.get("name"): tool.get("parameters") for tool in request["tools"].get("tools", ())}
    for name, arguments, *_ in map(_read_call, request.get("tool_calls") or ()):
        if name not in tools or not isinstance(arguments, Mapping):
            return False
        if tools[name] and describe_invalid_value(arguments, tools[name]):
            return False
    return True


def _read_call(call: Any) -> tuple[str, Any]:
    """Return the name and the arguments of a stored call; None if they are not JSON."""
    name, arguments = (call.get("name"), call.get("arguments")) if isinstance(call, Mapping) else call[:2]
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError:
            arguments = None
    return str(name), arguments


def _per_unit(request: Record) -> float:
    """Return a log probability; that of a whole text per four characters, because rounding errors add up."""
    total = float(request["logprob"])
    if request["kind"] == "likelihood":
        return total
    return total / max(1.0, len(str(request["prompt"])) / CHARACTERS_PER_TOKEN)


def _compare_likelihoods(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the total variation distance between the probabilities of the choices; for a single continuation, how much its
    probability changes relative to the larger one.

    If a log probability is NaN, the discrepancy is 1 unless it is NaN on both sides.

    >>> round(_compare_likelihoods([(-1.0, -1.0), (-2.0, -1.0)]), 3)
    0.231
    """
    unknown = [(math.isnan(one), math.isnan(other)) for one, other in pairs]
    if any(map(any, unknown)):
        return float(any(one != other for one, other in unknown))
    if len(pairs) == 1:
        first, second = pairs[0]
        if first == second:  # also if both are -inf
            return 0.0
        return -math.expm1(-abs(first - second))
    shares = [_to_shares([pair[side] for pair in pairs]) for side in (0, 1)]
    return min(1.0, math.fsum(abs(one - other) for one, other in zip(*shares, strict=True)) / 2)


def _to_shares(logs: Sequence[float]) -> list[float]:
    top = max(logs)
    if top == -math.inf:
        return [1 / len(logs)] * len(logs)
    powers = [math.exp(one - top) for one in logs]
    return [power / math.fsum(powers) for power in powers]


def read_score(record: Record, key: tuple[str, str]) -> list[float] | None:
    """Return the score of each repeated answer, or the one score of a document; None if it has none between 0 and 1."""
    pipeline, metric = key
    for entry in record.get("repeats", ()):
        if entry["filter"] == pipeline and metric in entry["scores"]:
            scores = [float(score) for score in entry["scores"][metric]]
            return scores if all(0 <= score <= 1 for score in scores) else None
    for verdict in record["verdicts"]:
        if (verdict["filter"], verdict["metric"]) == key and verdict["kind"] == "score":
            value = verdict["value"]
            return [float(value)] if isinstance(value, (int, float)) and 0 <= value <= 1 else None
    return None


def list_repeats(record: Record) -> list[list[Record]]:
    """Return the requests of a document by repeat: one list per repeated answer."""
    found: dict[int, list[Record]] = {}
    for request in record["requests"]:
        found.setdefault(request.get("repeat", 0), []).append(request)
    return [found[number] for number in sorted(found)]


def is_sampled(record: Record) -> bool:
    """Whether answers are drawn at random: a positive temperature, or sampling without one."""
    for request in record["requests"]:
        settings = request.get("settings") or {}
        temperature = settings.get("temperature")
        if request["kind"] == "generate" and (
            (temperature is not None and float(temperature) > 0)
            or (temperature is None and settings.get("do_sample"))
        ):
            return True
    return False
