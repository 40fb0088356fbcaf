"""Shim for `lm_eval.filters.extraction`: filters that task helpers derive their own from."""

from __future__ import annotations

from lm_eval.api.filter import Filter

from assay.scoring.filters.extraction import Regex

__all__ = ["Filter", "RegexFilter"]


class RegexFilter(Regex):
    """The `regex` filter. A class derived from it may look across documents, so it is given all of them."""

    per_document = False
