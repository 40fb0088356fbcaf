"""The conditions of a gate: rules with tiers, from options or from a policy file.

baseline: [main-1, main-2, main-3]
required: [gsm8k]
rules:
  - {tasks: gsm8k, tier: must, min: 0.6, max_drop: 1.0}
  - {tasks: [arc_*], tier: should, max_relative_drop: 2}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Literal

from assay.core.errors import InvalidOption
from assay.stats.comparisons.multiplicity import CORRECTIONS
from assay.viewer.exports.junit import Threshold

__all__ = ["TIERS", "GateOptions", "GateRule", "parse_policy"]

Tier = Literal["must", "should", "watch"]
TIERS: tuple[Tier, ...] = ("must", "should", "watch")
"""A missed `must` fails the gate, a missed `should` is a warning (a failure with `--strict`), `watch` only reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRule:
    """What some tasks must fulfil."""

    tasks: tuple[str, ...] = ("*",)
    """Names or patterns such as `mmlu_*`."""

    metric: str = ""
    """Empty: the first metric of each task."""

    tier: Tier = "must"
    min: float | None = None
    """The bound of the score's 95 % interval must reach it: the lower one, or the upper one if lower is better."""

    min_point: float | None = None
    """The score itself must reach it."""

    max_drop: float | None = None
    """Allowed drop below the baseline: points for values between 0 and 1, else percent."""

    max_relative_drop: float | None = None
    """Allowed drop in percent of the baseline's score; the smaller of both drops counts."""

    where: str = ""

    def __post_init__(self) -> None:
        for name in ("max_drop", "max_relative_drop"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise InvalidOption("the allowed drop is negative", where=self.where or f"--{name}")

    @property
    def limits_drop(self) -> bool:
        return self.max_drop is not None or self.max_relative_drop is not None

    def matches(self, task: str, metric: str, *, first: bool) -> bool:
        """Whether a score belongs to the rule; `first` says whether the metric is the first of its task."""
        named = metric == self.metric if self.metric else first
        return named and self.covers(task)

    def covers(self, task: str) -> bool:
        """Whether the rule names a task or has a pattern that matches it."""
        return any(fnmatchcase(task, pattern) for pattern in self.tasks)

    @property
    def task_names(self) -> list[str]:
        """The tasks that are given by name, not by pattern."""
        return [task for task in self.tasks if not any(sign in task for sign in "*?[")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """All conditions of a gate."""

    floors: Sequence[Threshold] = ()
    """Minimums by interval."""

    point_floors: Sequence[Threshold] = ()
    """Minimums of the scores themselves."""

    max_drop: float = 0.0
    """The allowed drop below the baseline: percentage points for values between 0 and 1, else percent."""

    max_relative_drop: float | None = None
    rules: Sequence[GateRule] = ()
    """Rules of a policy file; they replace `max_drop` for the tasks they name, and other tasks are watched."""

    required: Sequence[str] = ()
    baselines: Sequence[str] = ()
    """The baseline of the policy file; further runs are repetitions of it."""

    alpha: float = 0.05
    """The probability of failing a run that is no worse than allowed, over all tasks together."""

    tasks: Sequence[str] = ()
    metrics: Sequence[str] = ()
    cluster_by: str = ""
    correction: str = "holm"
    allow: Sequence[str] = ()
    """Kinds of mismatches that are accepted, see `CompareOptions.allow`."""

    strict: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 0.5:
            raise InvalidOption(
                f"alpha {self.alpha:g} is not between 0 and 0.5",
                where="--alpha",
                hint="use a value such as 0.05",
            )
        _ = self.drop_rules  # checks the drops

    @property
    def has_floors(self) -> bool:
        return bool(self.floors or self.point_floors or self.required) or any(
            one is not None for rule in self.rules for one in (rule.min, rule.min_point)
        )

    @property
    def floor_rules(self) -> list[GateRule]:
        """The rules with a minimum, those of the options first."""
        given = [
            GateRule(tasks=(one.task,), metric=one.metric, min=one.value, where="--min")
            for one in self.floors
        ]
        given += [
            GateRule(tasks=(one.task,), metric=one.metric, min_point=one.value, where="--min_point")
            for one in self.point_floors
        ]
        return [*given, *(rule for rule in self.rules if (rule.min, rule.min_point) != (None, None))]

    @property
    def drop_rules(self) -> list[GateRule]:
        """The rules with an allowed drop; the first that matches a task applies."""
        own = [rule for rule in self.rules if rule.limits_drop]
        rest = GateRule(
            tier="watch" if self.rules else "must",
            max_drop=self.max_drop if self.max_drop or self.max_relative_drop is None else None,
            max_relative_drop=self.max_relative_drop,
        )
        return [*own, rest]


_POLICY_KEYS = (
    "baseline",
    "required",
    "rules",
    "alpha",
    "correction",
    "allow_mismatch",
    "cluster_by",
    "strict",
)
_RULE_KEYS = tuple(item.name for item in fields(GateRule) if item.name != "where")


def parse_policy(value: Any, where: str) -> dict[str, Any]:
    """Return the options of a policy file, as keyword arguments of `GateOptions`.

    Raises:
        InvalidOption: A key is unknown or has a value of the wrong type.
    """
    if not isinstance(value, Mapping):
        raise InvalidOption(
            "a policy is a mapping", where=where, hint="for example: `rules: [{tasks: gsm8k, min: 0.6}]`"
        )
    _check_keys(value, _POLICY_KEYS, where)
    rules = value.get("rules") or []
    if not isinstance(rules, list):
        raise InvalidOption("`rules` must be a list", where=where)
    correction = value.get("correction", "holm")
    if correction not in CORRECTIONS:
        raise InvalidOption(
            f"unknown correction `{correction}`", where=where, hint=f"one of: {', '.join(CORRECTIONS)}"
        )
    return {
        "rules": [_parse_rule(rule, f"{where}, rules[{index}]") for index, rule in enumerate(rules)],
        "required": _parse_names(value, "required", where),
        "baselines": _parse_names(value, "baseline", where),
        "alpha": _parse_number(value, "alpha", where) or 0.05,
        "correction": correction,
        "allow": _parse_names(value, "allow_mismatch", where),
        "cluster_by": str(value.get("cluster_by") or ""),
        "strict": bool(value.get("strict", False)),
    }


def _parse_rule(value: Any, where: str) -> GateRule:
    if not isinstance(value, Mapping):
        raise InvalidOption("a rule is a mapping", where=where, hint=f"keys: {', '.join(_RULE_KEYS)}")
    _check_keys(value, _RULE_KEYS, where)
    tier = value.get("tier", "must")
    if tier not in TIERS:
        raise InvalidOption(f"unknown tier `{tier}`", where=where, hint=f"one of: {', '.join(TIERS)}")
    numbers = {name: _parse_number(value, name, where) for name in _RULE_KEYS[3:]}
    if all(number is None for number in numbers.values()):
        raise InvalidOption("the rule checks nothing", where=where, hint=f"add one of: {', '.join(numbers)}")
    return GateRule(
        tasks=tuple(_parse_names(value, "tasks", where)) or ("*",),
        metric=str(value.get("metric") or ""),
        tier=tier,
        where=where,
        **numbers,
    )


def _check_keys(value: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in value:
        if key not in known:
            close = get_close_matches(str(key), known, n=1)
            guess = f"did you mean `{close[0]}`? " if close else ""
            raise InvalidOption(f"unknown key `{key}`", where=where, hint=f"{guess}keys: {', '.join(known)}")


def _parse_names(value: Mapping[str, Any], key: str, where: str) -> list[str]:
    found = value.get(key) or []
    names = [found] if isinstance(found, str) else found
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidOption(f"`{key}` must be a name or a list of names", where=where)
    return names


def _parse_number(value: Mapping[str, Any], key: str, where: str) -> float | None:
    found = value.get(key)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise InvalidOption(f"`{key}` must be a number, not {found!r}", where=where)
    return float(found)
