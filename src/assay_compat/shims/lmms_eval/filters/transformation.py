"""Shim for `lmms_eval.filters.transformation`: base classes for filters of task helpers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lmms_eval.api.filter import Filter

from assay.scoring.filters.transformation import Lowercase, Map, StripThinking, Uppercase

__all__ = ["Filter", "LowercaseFilter", "MapFilter", "StripThinkingFilter", "UppercaseFilter"]


class LowercaseFilter(Lowercase):
    """The `lowercase` filter, to derive from."""

    per_document = False


class UppercaseFilter(Uppercase):
    """The `uppercase` filter, to derive from."""

    per_document = False


class StripThinkingFilter(StripThinking):
    """The `strip_thinking` filter, to derive from."""

    per_document = False


class MapFilter(Map):
    """The `map` filter under the attribute names derived classes use."""

    per_document = False

    def __init__(self, mapping_dict: Mapping[Any, Any] | None = None, default_value: Any = None) -> None:
        super().__init__(mapping_dict, default_value)
        self.mapping_dict, self.default_value = self.mapping, default_value

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[list[Any]]:
        return [[self.mapping_dict.get(one, self.default_value) for one in several] for several in responses]
