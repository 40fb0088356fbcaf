"""Shim for `lmms_eval.api.filter`: the base class of custom filters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["Filter"]


class Filter:
    """Turns the responses of all requests into answers. Override `apply`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes the arguments of the filter step."""

    def apply(self, resps: Any, docs: Any) -> Iterable[Any]:
        """Return the responses unchanged."""
        return resps  # type: ignore[no-any-return]
