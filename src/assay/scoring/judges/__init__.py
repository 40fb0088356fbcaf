"""LLM judges: the kinds of judge that `judge:` of a metric can name.

A kind of judge is pure: it builds the prompts for an answer and parses the replies. It does not know which models are
asked or how often. The panel (`assay.scoring.judges.panel`) sends every prompt through `Services` and combines the
verdicts of several judges.

To add a kind of judge, add a file to the folder `kinds` and register the class with `@JUDGES.register("name")`.
"""

from __future__ import annotations

from collections.abc import Callable

from assay.core.registry import Registry
from assay.scoring.judges.records import InvalidReply, Judge, JudgeInput, JudgeVerdict

__all__ = ["JUDGES", "InvalidReply", "Judge", "JudgeInput", "JudgeVerdict"]

JUDGES: Registry[Callable[..., Judge]] = Registry("judge", builtin_package="assay.scoring.judges.kinds")
"""Every kind of judge that `judge:` can name. Each module of the folder `kinds` registers its judges."""
