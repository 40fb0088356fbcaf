"""A person at the terminal, asked like any other model."""

from __future__ import annotations

from assay.models.human.adapter import HumanModel

__all__ = ["HumanModel"]
