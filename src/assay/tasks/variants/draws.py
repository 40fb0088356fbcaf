"""Draw prompt variants for `--vary`: each variant draws a value of every factor at random.

The draws depend on the seed and the number of the variant only, so that all tasks and models of a study have the same variants.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.records.specs import TaskSpec
from assay.core.records.variants import BASE_VARIANT, VariantSpec
from assay.tasks.variants.definitions import DELIMITER_KEYS, TEMPLATE_KEYS

__all__ = ["DEFAULT_COUNT", "LETTER_SETS", "draw_variants"]

DEFAULT_COUNT = 5
"""Variants of `--vary` without `--variants`, the unchanged prompt included."""

_ROMAN = "I II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX XX".split()
LETTER_SETS: tuple[tuple[str, ...], ...] = (
    tuple(str(number) for number in range(1, 27)),
    tuple(ascii_lowercase),
    tuple(_ROMAN),
    tuple(ascii_uppercase[10:]),
)
_DELIMITERS: tuple[dict[str, str], ...] = (
    {"target_delimiter": "\n"},
    {"fewshot_delimiter": "\n"},
    {"fewshot_delimiter": "\n\n\n"},
    {"target_delimiter": "\n", "fewshot_delimiter": "\n\n\n"},
)
_SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are an expert. Answer the question.",
    "Read the question carefully and answer it as well as you can.",
    "You take an exam. Give the best answer.",
)


def draw_variants(spec: TaskSpec, factors: Sequence[str], count: int, seed: int) -> tuple[VariantSpec, ...]:
    """Return the unchanged prompt and `count` - 1 drawn variants. Combinations of values repeat only if all were drawn.

    Raises:
        InvalidOption: The task defines no templates to draw from.
    """
    pools = {factor: _build_pool(spec, factor, seed) for factor in factors}
    unused = dict.fromkeys(product(*(range(max(1, len(pools[factor]))) for factor in factors)))
    drawn = [VariantSpec(name=BASE_VARIANT)]
    for number in range(1, count):
        generator = random.Random(f"{seed}/{number}")
        variant = VariantSpec(name=f"v{number}", factors=tuple(factors))
        order_seed, fewshot_seed = generator.randrange(2**31), generator.randrange(2**31)
        places = tuple((number - 1) % max(1, len(pools[factor])) for factor in factors)
        if unused and places not in unused:
            places = generator.choice(list(unused))
        unused.pop(places, None)
        for factor, place in zip(factors, places, strict=True):
            chosen: Any = pools[factor][place] if pools[factor] else None
            match factor:
                case "order":
                    variant = replace(variant, choice_order="shuffle", seed=order_seed)
                case "letters":
                    variant = replace(variant, choice_letters=chosen)
                case "shots":
                    variant = replace(variant, fewshot_seed=fewshot_seed)
                case "system":
                    variant = replace(variant, system_instruction=chosen)
                case _:
                    variant = replace(variant, overrides={**variant.overrides, **(chosen or {})})
        drawn.append(variant)
    return tuple(drawn)


def _build_pool(spec: TaskSpec, factor: str, seed: int) -> list[Any]:
    """Return the values of a factor in random order; empty if a seed is its value."""
    declared = [one for one in spec.variants if factor in one.factors]
    pool: list[Any] = []
    match factor:
        case "letters":
            pool = list(dict.fromkeys((*(one.choice_letters for one in declared), *LETTER_SETS)))
        case "system":
            pool = [*(one.system_instruction for one in declared), *_SYSTEM_PROMPTS]
        case "delimiter":
            pool = [*(_pick(one, DELIMITER_KEYS) for one in declared), *_DELIMITERS]
        case "template":
            pool = [_pick(one, TEMPLATE_KEYS) for one in declared]
            if not pool:
                raise InvalidOption(
                    f"`{spec.name}` defines no other templates",
                    where="--vary template",
                    hint="add `variants:` with `doc_to_text` to the task, or leave out `template`",
                )
    random.Random(f"{seed}/{factor}").shuffle(pool)
    return pool


def _pick(variant: VariantSpec, keys: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in variant.overrides.items() if key in keys}
