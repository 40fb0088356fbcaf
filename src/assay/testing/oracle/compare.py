"""Are two values the same, but for the last digits of floats?"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["difference"]

_TOLERANCE = 1e-9


def difference(ours: Any, theirs: Any, path: str = "") -> str | None:
    """Where two values first differ, in words; None when they are the same.

    >>> difference({"acc": [1.0, 2.0]}, {"acc": [1.0, 3.0]})
    'acc[1]: 2.0, recorded 3.0'
    """
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.keys() != theirs.keys():
            extra, missing = (
                sorted(map(str, ours.keys() - theirs.keys())),
                sorted(map(str, theirs.keys() - ours.keys())),
            )
            return f"{path or 'keys'}: unexpected {extra}, missing {missing}"
        pairs = [(f"{path}.{key}" if path else str(key), ours[key], theirs[key]) for key in theirs]
        return next((found for where, a, b in pairs if (found := difference(a, b, where))), None)
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return f"{path}: {len(ours)} items, recorded {len(theirs)}"
        pairs = [(f"{path}[{at}]", a, b) for at, (a, b) in enumerate(zip(ours, theirs, strict=True))]
        return next((found for where, a, b in pairs if (found := difference(a, b, where))), None)
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        same = ours == theirs or math.isclose(ours, theirs, rel_tol=_TOLERANCE, abs_tol=1e-12)
        return None if same else f"{path}: {ours!r}, recorded {theirs!r}"
    return None if ours == theirs else f"{path}: {_short(ours, theirs)}"


def _short(ours: Any, theirs: Any) -> str:
    if isinstance(ours, str) and isinstance(theirs, str):
        at = next(
            (n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
            min(len(ours), len(theirs)),
        )
        start = max(0, at - 20)
        return f"…{ours[start : at + 40]!r}, recorded …{theirs[start : at + 40]!r} (character {at})"
    return f"{ours!r:.200}, recorded {theirs!r:.200}"
