"""Parse `variants:` of a task file.

variants:
  - name: short
    doc_to_text: "{{question}}"
  - name: digits
    choice_letters: ["1", "2", "3", "4"]
    choice_order: shuffle
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from assay.core.errors import AssayError, TaskError
from assay.core.records.variants import BASE_VARIANT, VariantSpec

__all__ = ["DELIMITER_KEYS", "TEMPLATE_KEYS", "VARIANT_KEYS", "is_choice_order", "parse_variants"]

TEMPLATE_KEYS = frozenset(
    "doc_to_text doc_to_target doc_to_choice description gen_prefix filter_list generation_kwargs".split()
)
DELIMITER_KEYS = frozenset(("target_delimiter", "fewshot_delimiter"))
_SHOT_KEYS = frozenset(("num_fewshot", "fewshot_config", "fewshot_seed", "fewshot_order"))
VARIANT_KEYS = (
    TEMPLATE_KEYS
    | DELIMITER_KEYS
    | _SHOT_KEYS
    | {"name", "choice_order", "choice_letters", "seed", "system_instruction"}
)
_OWN_KEYS = frozenset(
    "name choice_order choice_letters seed fewshot_seed fewshot_order system_instruction".split()
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_FEWSHOT_ORDERS = ("reverse", "shuffle")


def is_choice_order(value: Any) -> bool:
    """Return whether a value is a `choice_order`.

    >>> [is_choice_order(value) for value in ("reverse", "rotate:1", "gold:0", "rotate", 3)]
    [True, True, True, False, False]
    """
    return isinstance(value, str) and bool(re.fullmatch(r"reverse|shuffle|rotate:\d+|gold:\d+", value))


def parse_variants(
    value: Any, where: Callable[[str], str]
) -> tuple[tuple[VariantSpec, ...], list[AssayError]]:
    """Return the variants and all problems. `where` returns the place of a key in the task file."""
    problems: list[AssayError] = []
    if value is None:
        return (), problems
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        hint = "`- {name: short, doc_to_text: …}`"
        return (), [TaskError("`variants` must be a list of mappings", where=where("variants"), hint=hint)]
    found: dict[str, VariantSpec] = {}
    for index, entry in enumerate(value):
        key = f"variants[{index}]"
        wrong = list(_find_problems(entry, key, where))
        if not wrong and entry["name"] in (*found, BASE_VARIANT):
            wrong = [
                TaskError(
                    f"the name of a variant is used twice: `{entry['name']}`"
                    if entry["name"] in found
                    else f"`{BASE_VARIANT}` is the name of the unchanged prompt",
                    where=where(key),
                    hint="choose another name",
                )
            ]
        problems += wrong
        if not wrong:
            found[entry["name"]] = _build_variant(entry)
    return tuple(found.values()), problems


def _find_problems(entry: Any, key: str, where: Callable[[str], str]) -> list[AssayError]:
    if not isinstance(entry, Mapping):
        return [TaskError("a variant must be a mapping of keys", where=where(key))]
    problems: list[AssayError] = []

    def add(what: str, name: str, hint: str = "") -> None:
        problems.append(TaskError(what, where=where(f"{key}.{name}" if name else key), hint=hint))

    name = entry.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        add(
            f"a variant needs a name of letters, digits, `_`, `-`, `.` and `+`, not {name!r}",
            "name",
            "`name: short`",
        )
    if len(entry) == 1:
        add("the variant changes nothing", "", "add `doc_to_text:` or another key")
    for given in entry:
        if given not in VARIANT_KEYS:
            close = get_close_matches(str(given), sorted(VARIANT_KEYS), n=1)
            hint = (
                f"did you mean `{close[0]}`?" if close else f"known keys: {', '.join(sorted(VARIANT_KEYS))}"
            )
            add(f"a variant has no key `{given}`", str(given), hint)
    if "choice_order" in entry and not is_choice_order(entry["choice_order"]):
        add(
            f"invalid `choice_order`: {entry['choice_order']!r}",
            "choice_order",
            "shuffle, reverse, rotate:N or gold:N",
        )
    letters = entry.get("choice_letters", ["A", "B"])
    if not isinstance(letters, (list, str)) or len(letters) < 2 or len(set(map(str, letters))) < len(letters):
        add("`choice_letters` must be a list of different texts", "choice_letters", '`["1", "2", "3", "4"]`')
    if entry.get("fewshot_order", "reverse") not in _FEWSHOT_ORDERS:
        add(f"invalid `fewshot_order`: {entry['fewshot_order']!r}", "fewshot_order", "reverse or shuffle")
    for number in ("seed", "fewshot_seed"):
        if not isinstance(entry.get(number, 0), int):
            add(f"`{number}` must be a whole number", number)
    if not isinstance(entry.get("system_instruction", ""), str):
        add("`system_instruction` must be a text", "system_instruction")
    return problems


def _build_variant(entry: Mapping[str, Any]) -> VariantSpec:
    keys = set(entry)
    factors = {
        "order": "choice_order" in keys,
        "letters": "choice_letters" in keys,
        "shots": bool(keys & _SHOT_KEYS),
        "template": bool(keys & TEMPLATE_KEYS),
        "delimiter": bool(keys & DELIMITER_KEYS),
        "system": "system_instruction" in keys,
    }
    return VariantSpec(
        name=entry["name"],
        overrides={key: value for key, value in entry.items() if key not in _OWN_KEYS},
        choice_order=entry.get("choice_order", ""),
        choice_letters=tuple(map(str, entry.get("choice_letters", ()))),
        seed=entry.get("seed", 0),
        fewshot_seed=entry.get("fewshot_seed"),
        fewshot_order=entry.get("fewshot_order", ""),
        system_instruction=entry.get("system_instruction"),
        factors=tuple(name for name, varies in factors.items() if varies),
    )
