"""Shim for `lmms_eval.loggers.evaluation_tracker`: find the name of a model in its arguments."""

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
    """Finds the argument that names a model."""

    @staticmethod
    def _get_model_name(model_args: str) -> str:
        """Return the value of the first naming argument in `a=1,b=2`, or an empty string."""
        for key in _NAMING:
            if f"{key}=" in model_args:
                return model_args.split(f"{key}=")[1].partition(",")[0]
        return ""
