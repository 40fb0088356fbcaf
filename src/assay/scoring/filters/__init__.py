"""What happens to a response before it is judged: the filters a task's `filter_list` can name.

A filter has one method, `apply(responses, documents)`. `responses[i]` holds what was said to request *i*, one
value per repeat; `documents[i]` the fields of its document. It returns as many entries, in the same order:
lists again, or, from the step that picks one value (`take_first`), plain values.

`per_document = True` promises that entry *i* depends on entry *i* alone, so that documents can be filtered as
they come in. A class that does not say so sees the whole task at once.
"""

from __future__ import annotations

from collections.abc import Callable

from assay.core.ports import Filter
from assay.core.registry import Registry

__all__ = ["FILTERS"]

FILTERS: Registry[Callable[..., Filter]] = Registry(
    "filter",
    builtin_modules=(
        "assay.scoring.filters.choices",
        "assay.scoring.filters.custom",
        "assay.scoring.filters.extraction",
        "assay.scoring.filters.letters",
        "assay.scoring.filters.selection",
        "assay.scoring.filters.transformation",
    ),
)
"""Every filter a pipeline can name."""
