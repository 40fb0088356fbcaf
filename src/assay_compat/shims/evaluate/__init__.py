"""Shim for Hugging Face's `evaluate` if that package is not installed: `load` for the metrics that Assay implements."""

from __future__ import annotations

from typing import Any

from assay.scoring.hf_evaluate import load_metric as _load

__all__ = ["load"]


def load(path: str, config_name: str | None = None, *_: Any, **__: Any) -> Any:
    """Return a metric by name. The other arguments of the real function configure the download and are ignored."""
    return _load(path, config_name)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ModuleNotFoundError(f"`evaluate.{name}` needs the package: pip install evaluate", name="evaluate")
