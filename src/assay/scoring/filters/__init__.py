"""Filters: the steps between a response and its score that `filter_list` of a task can name.

A filter has one method, `apply(responses, documents)`. `responses[i]` holds the values of request *i*, one per
repeat, and `documents[i]` holds the fields of its document. The filter returns as many entries in the same order:
lists again, or plain values from the step that selects one value (`take_first`).

`per_document = True` promises that entry *i* depends on entry *i* alone, so that documents can be filtered one by one.
A class without this attribute gets the whole task at once.

To add a filter, add a file to this folder and register the class with `@FILTERS.register("name")`.
"""

from __future__ import annotations

from collections.abc import Callable

from assay.core.ports import Filter
from assay.core.registry import Registry

__all__ = ["FILTERS"]

FILTERS: Registry[Callable[..., Filter]] = Registry("filter", builtin_package="assay.scoring.filters")
"""Every filter that `filter_list` can name. Each module of this folder registers its filters."""
