"""When a run has asked enough: rules as people write them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from assay.core.errors import BadOption

__all__ = ["StopRule", "parse_stop_rule", "read_stop_rule"]

_CI = re.compile(r"ci\s*<=?\s*(?P<points>[\d.]+)$")
_GATE = re.compile(r"gate:(?P<baseline>.+?)\s*>=?\s*(?P<points>[-+]?[\d.]+)$")
_HINT = "`ci<=1.0` stops at ±1 point, `gate:RUN>=-1.0` when it is sure whether it is at most 1 point below that run"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """How sure is sure enough."""

    points: float
    """Hundredths of a score: a half width, or the difference that is asked about."""

    baseline: str = ""
    """The run that is compared with; empty for an interval of the score itself."""


def read_stop_rule(text: str) -> StopRule:
    """A rule from its text.

    >>> read_stop_rule("gate:main-run>=-1.0")
    StopRule(points=-1.0, baseline='main-run')
    """
    text = text.strip()
    found = _CI.match(text) or _GATE.match(text)
    try:
        if found is None:
            raise ValueError
        points = float(found["points"])
    except ValueError:
        raise BadOption(f"`{text}` is not a rule for stopping", where="--stop_when", hint=_HINT) from None
    baseline = found.groupdict().get("baseline") or ""
    if not math.isfinite(points) or abs(points) >= 100 or (not baseline and not 0 < points < 50):
        raise BadOption(f"a score is never as far off as {points:g} points", where="--stop_when", hint=_HINT)
    return StopRule(points=points, baseline=baseline)


def parse_stop_rule(text: str) -> str:
    """The text of a rule that can be read."""
    read_stop_rule(text)
    return text.strip()
