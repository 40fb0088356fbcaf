"""Models that judge: the kinds of judge a metric's `judge:` can name.

A kind is pure: it says what to ask about a case (`prompts`) and what the replies amount to (`rule`). It knows no model;
who is asked, how often, and what several judges make of it together is the jury's business
(`assay.scoring.judges.jury`), and every question goes through `Services`.
"""

from __future__ import annotations

from collections.abc import Callable

from assay.core.registry import Registry
from assay.scoring.judges.records import Case, Invalid, Judge, Ruling

__all__ = ["JUDGES", "Case", "Invalid", "Judge", "Ruling"]

JUDGES: Registry[Callable[..., Judge]] = Registry(
    "judge",
    builtin_modules=(
        "assay.scoring.judges.binary",
        "assay.scoring.judges.comparative",
        "assay.scoring.judges.rubric",
        "assay.scoring.judges.score",
    ),
)
"""Every kind of judge a task can name."""
