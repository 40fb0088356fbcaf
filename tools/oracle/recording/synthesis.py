"""Synthesize documents."""

from __future__ import annotations
from typing import Any


class Synthesizer:
    def build_splits(self, name: str, task: Any) -> Any:
        raise NotImplementedError
