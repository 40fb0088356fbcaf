"""Prompt variants: other ways to ask the same documents."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BASE_VARIANT", "FACTORS", "VARIANT_SEPARATOR", "VariantSpec"]

FACTORS = ("order", "letters", "shots", "template", "delimiter", "system")
"""What `--vary` can vary."""

BASE_VARIANT = "base"
"""The name of the unchanged prompt."""

VARIANT_SEPARATOR = "@"
"""Between the name of a task and the name of a variant: `mmlu_anatomy@base`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSpec:
    """One way to ask the documents of a task. A setting that is empty or None is that of the task."""

    name: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the task file with other values: templates, delimiters, the number of few-shot examples."""

    choice_order: str = ""
    """`shuffle`, `reverse`, `rotate:N` (by N places) or `gold:N` (the correct choice swaps places with choice N)."""

    choice_letters: tuple[str, ...] = ()
    seed: int = 0
    """Seed of `shuffle`."""

    fewshot_seed: int | None = None
    """Draws other few-shot examples, in another order."""

    fewshot_order: str = ""
    """`reverse` or `shuffle`: the same few-shot examples in another order."""

    system_instruction: str | None = None
    factors: tuple[str, ...] = ()
    """What varies, of `FACTORS`."""

    @property
    def is_base(self) -> bool:
        return not self.factors

    def to_json(self) -> dict[str, Any]:
        """Return the settings that differ from the task."""
        settings: dict[str, Any] = dict(self.overrides)
        if self.choice_order:
            settings["choice_order"] = self.choice_order
            if self.choice_order == "shuffle":
                settings["seed"] = self.seed
        if self.choice_letters:
            settings["choice_letters"] = list(self.choice_letters)
        for key, unset in (("fewshot_seed", None), ("fewshot_order", ""), ("system_instruction", None)):
            if (value := getattr(self, key)) != unset:
                settings[key] = value
        return settings

    def describe(self, idle: Collection[str] = ()) -> str:
        """Return the settings as one short line, without those of `idle` factors, which do not change the prompts of a task.

        >>> VariantSpec(name="v1", choice_order="reverse", choice_letters=("1", "2"), factors=("order",)).describe()
        'order reverse, letters 1 2'
        """
        if self.is_base:
            return "unchanged"
        parts = []
        if self.choice_order and "order" not in idle:
            parts.append(f"order {self.choice_order}")
        if self.choice_letters and "letters" not in idle:
            shown = " ".join(self.choice_letters[:4])
            parts.append(f"letters {shown}{' …' if len(self.choice_letters) > 4 else ''}")
        if self.fewshot_seed is not None and "shots" not in idle:
            parts.append(f"few-shot seed {self.fewshot_seed}")
        if self.fewshot_order and "shots" not in idle:
            parts.append(f"few-shot order {self.fewshot_order}")
        if self.system_instruction is not None and "system" not in idle:
            parts.append(f"system {_shorten(self.system_instruction)}")
        parts += [f"{key} {_shorten(value)}" for key, value in self.overrides.items()]
        return ", ".join(parts) or "unchanged"


def _shorten(value: Any) -> str:
    if callable(value):
        return f"function {getattr(value, '__name__', '')}".rstrip()
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
