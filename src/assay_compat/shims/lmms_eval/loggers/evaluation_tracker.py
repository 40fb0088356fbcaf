"""Shim for `lmms_eval.loggers.evaluation_tracker`: the name of a model among its arguments."""

from __future__ import annotations

__all__ = ["GeneralConfigTracker"]

_NAMING = (
    "peft",
    "delta",
    "pretrained",
    "model",
    "model_version",
    "model_name",
    "model_id",
    "path",
    "engine",
)


class GeneralConfigTracker:
    """Knows which of a model's arguments names it."""

    @staticmethod
    def _get_model_name(model_args: str) -> str:
        """The value of the first naming argument that occurs in `a=1,b=2`; empty where none does."""
        for key in _NAMING:
            if f"{key}=" in model_args:
                return model_args.split(f"{key}=")[1].partition(",")[0]
        return ""
