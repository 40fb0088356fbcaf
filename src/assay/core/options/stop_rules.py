"""Stop rules: when a run has asked enough documents."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from assay.core.errors import InvalidOption

__all__ = ["StopRule", "parse_stop_rule", "validate_stop_rule"]

_NUMBER = r"[-+]?[\d.]+"
_RULE = re.compile(
    r"(?:(?P<metric>[^\s:<>=]+)\s*:\s*)?"
    rf"(?:ci\s*<=?\s*(?P<width>{_NUMBER})|gate:(?P<baseline>.+?)\s*>=?\s*(?P<drop>{_NUMBER}))"
    rf"(?:\s+in\s+(?P<low>{_NUMBER}?)\.\.(?P<high>{_NUMBER}))?$"
)
_HINT = (
    "`ci<=1.0` stops when the interval is ±1 point; `gate:RUN>=-1.0` stops when it is certain whether the score is at most"
    " 1 point below that run; `METRIC: ci<=1.0` uses another metric than the first; `METRIC: ci<=1.0 in 1..10` sets its range"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """The precision at which a run stops."""

    points: float
    """Half width of the interval, or difference from the baseline, in hundredths of the range of the metric."""

    baseline: str = ""
    """The run to compare with; empty for an interval of the score itself."""

    metric: str = ""
    """The metric, optionally with its filter (`metric,filter`); empty: the first mean of each task."""

    limits: tuple[float, float] | None = None
    """Range of the scores, if the rule states it."""


def parse_stop_rule(text: str) -> StopRule:
    """Parse a stop rule.

    >>> parse_stop_rule("gate:main-run>=-1.0")
    StopRule(points=-1.0, baseline='main-run', metric='', limits=None)
    """
    text = text.strip()
    match = _RULE.match(text)
    try:
        if match is None:
            raise ValueError
        points = float(match["width"] or match["drop"])
        limits = (float(match["low"]), float(match["high"])) if match["low"] else None
    except ValueError:
        raise InvalidOption(f"invalid stop rule `{text}`", where="--stop_when", hint=_HINT) from None
    baseline = match["baseline"] or ""
    if not math.isfinite(points) or abs(points) >= 100 or (not baseline and not 0 < points < 50):
        raise InvalidOption(f"{points:g} points is out of range", where="--stop_when", hint=_HINT)
    if limits is not None and not limits[0] < limits[1]:
        raise InvalidOption(
            f"{limits[0]:g}..{limits[1]:g} is not a range",
            where="--stop_when",
            hint="put the smaller number first",
        )
    return StopRule(points=points, baseline=baseline, metric=match["metric"] or "", limits=limits)


def validate_stop_rule(text: str) -> str:
    """Return the text of a stop rule if it is valid."""
    parse_stop_rule(text)
    return text.strip()
