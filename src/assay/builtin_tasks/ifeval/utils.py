"""IFEval: how many of a prompt's instructions a response follows, strictly and loosely."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from assay.builtin_tasks.ifeval.checks import CHECKS


def process_results(document: dict[str, Any], results: list[str]) -> dict[str, Any]:
    """Whether each instruction was followed, and whether all were."""
    response = results[0]
    strict = _followed(document, [response])
    loose = _followed(document, list(forgiven(response)))
    return {
        "prompt_level_strict_acc": all(strict),
        "inst_level_strict_acc": strict,
        "prompt_level_loose_acc": all(loose),
        "inst_level_loose_acc": loose,
    }


def _followed(document: dict[str, Any], readings: list[str]) -> list[bool]:
    """For each instruction: does one of the readings of a response follow it? An empty one follows none."""
    full = [reading for reading in readings if reading.strip()]
    followed = []
    for kind, given in zip(document["instruction_id_list"], document["kwargs"], strict=True):
        if kind not in CHECKS:
            raise ValueError(f"IFEval has no instruction `{kind}`")
        arguments = {name: value for name, value in (given or {}).items() if value}
        followed.append(any(CHECKS[kind](reading, **arguments) for reading in full))
    return followed


def forgiven(response: str) -> Iterator[str]:
    r"""A response as it is and without its first, last, or first and last line; each with and without asterisks.

    >>> list(forgiven("Sure!\n*Yes*"))
    ['Sure!\n*Yes*', 'Sure!\nYes', '*Yes*', 'Yes', 'Sure!', 'Sure!', '', '']
    """
    lines = response.split("\n")
    for reading in (
        response,
        "\n".join(lines[1:]).strip(),
        "\n".join(lines[:-1]).strip(),
        "\n".join(lines[1:-1]).strip(),
    ):
        yield reading
        yield reading.replace("*", "")


def share_of_all(documents: Iterable[list[bool]]) -> float:
    """Of all instructions, not of all prompts.

    >>> share_of_all([[True, False, True], [True]])
    0.75
    """
    everything = [followed for document in documents for followed in document]
    return sum(everything) / len(everything)
