"""Compare two JSON-like values, with a tolerance for floats."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["find_difference"]

_TOLERANCE = 1e-9


def find_difference(ours: Any, theirs: Any, path: str = "") -> str | None:
    """Describe where two values first differ; return None when they are equal.

    >>> find_difference({"acc": [1.0, 2.0]}, {"acc": [1.0, 3.0]})
    'acc[1]: 2.0, recorded 3.0'
    """
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.keys() != theirs.keys():
            unexpected = sorted(map(str, ours.keys() - theirs.keys()))
            missing = sorted(map(str, theirs.keys() - ours.keys()))
            return f"{path or 'keys'}: unexpected {unexpected}, missing {missing}"
        pairs = [(f"{path}.{key}" if path else str(key), ours[key], theirs[key]) for key in theirs]
        return next((found for where, a, b in pairs if (found := find_difference(a, b, where))), None)
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return f"{path}: {len(ours)} items, recorded {len(theirs)}"
        pairs = [(f"{path}[{index}]", a, b) for index, (a, b) in enumerate(zip(ours, theirs, strict=True))]
        return next((found for where, a, b in pairs if (found := find_difference(a, b, where))), None)
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        same = ours == theirs or math.isclose(ours, theirs, rel_tol=_TOLERANCE, abs_tol=1e-12)
        return None if same else f"{path}: {ours!r}, recorded {theirs!r}"
    return None if ours == theirs else f"{path}: {_describe_pair(ours, theirs)}"


def _describe_pair(ours: Any, theirs: Any) -> str:
    if isinstance(ours, str) and isinstance(theirs, str):
        position = next(
            (index for index, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
            min(len(ours), len(theirs)),
        )
        start, end = max(0, position - 20), position + 40
        return f"…{ours[start:end]!r}, recorded …{theirs[start:end]!r} (character {position})"
    return f"{ours!r:.200}, recorded {theirs!r:.200}"
