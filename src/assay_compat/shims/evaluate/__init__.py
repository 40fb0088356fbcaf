"""Shim for Hugging Face's `evaluate` where that package is not installed: `load` for the metrics Assay serves."""

from __future__ import annotations

from typing import Any

from assay.scoring.hf_evaluate import load_metric as _load

__all__ = ["load"]


def load(path: str, config_name: str | None = None, *_: Any, **__: Any) -> Any:
    """The metric of a name. What else the real function takes says where to download it, and does not matter here."""
    return _load(path, config_name)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ModuleNotFoundError(f"`evaluate.{name}` needs the package: pip install evaluate", name="evaluate")
