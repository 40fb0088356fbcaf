"""When a run has asked enough: rules as people write them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from assay.core.errors import BadOption

__all__ = ["StopRule", "parse_stop_rule", "read_stop_rule"]

_NUMBER = r"[-+]?[\d.]+"
_RULE = re.compile(
    r"(?:(?P<metric>[^\s:<>=]+)\s*:\s*)?"
    rf"(?:ci\s*<=?\s*(?P<width>{_NUMBER})|gate:(?P<baseline>.+?)\s*>=?\s*(?P<drop>{_NUMBER}))"
    rf"(?:\s+in\s+(?P<low>{_NUMBER}?)\.\.(?P<high>{_NUMBER}))?$"
)
_HINT = (
    "`ci<=1.0` stops at ±1 point, `gate:RUN>=-1.0` when it is sure whether it is at most 1 point below that run;"
    " `METRIC: ci<=1.0` watches another metric than the first, `METRIC: ci<=1.0 in 1..10` one of that range"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """How sure is sure enough."""

    points: float
    """Hundredths of the metric's range: a half width, or the difference that is asked about."""

    baseline: str = ""
    """The run that is compared with; empty for an interval of the score itself."""

    metric: str = ""
    """Whose scores are watched, perhaps with its filter (`metric,filter`); empty: each task's first mean."""

    limits: tuple[float, float] | None = None
    """What its scores lie between, where the rule says so."""


def read_stop_rule(text: str) -> StopRule:
    """A rule from its text.

    >>> read_stop_rule("gate:main-run>=-1.0")
    StopRule(points=-1.0, baseline='main-run', metric='', limits=None)
    """
    text = text.strip()
    found = _RULE.match(text)
    try:
        if found is None:
            raise ValueError
        points = float(found["width"] or found["drop"])
        limits = (float(found["low"]), float(found["high"])) if found["low"] else None
    except ValueError:
        raise BadOption(f"`{text}` is not a rule for stopping", where="--stop_when", hint=_HINT) from None
    baseline = found["baseline"] or ""
    if not math.isfinite(points) or abs(points) >= 100 or (not baseline and not 0 < points < 50):
        raise BadOption(f"a score is never as far off as {points:g} points", where="--stop_when", hint=_HINT)
    if limits is not None and not limits[0] < limits[1]:
        raise BadOption(
            f"{limits[0]:g}..{limits[1]:g} is no range", where="--stop_when", hint="the smaller number first"
        )
    return StopRule(points=points, baseline=baseline, metric=found["metric"] or "", limits=limits)


def parse_stop_rule(text: str) -> str:
    """The text of a rule that can be read."""
    read_stop_rule(text)
    return text.strip()
