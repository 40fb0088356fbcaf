"""Shim for `lmms_eval.utils`: functions that task helpers use."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

from assay_compat.commands.results_table import make_table

__all__ = ["eval_logger", "handle_non_serializable", "make_table", "resolve_cache_dir", "sanitize_model_name"]


def _logger() -> Any:
    try:
        from loguru import logger
    except ModuleNotFoundError:  # helpers that want loguru itself say so
        return logging.getLogger("lmms_eval")
    return logger


eval_logger = _logger()

_UNSAFE = re.compile(r"[\"<>:/|\\?*\[\]]+")


def resolve_cache_dir(cache_dir: str, base_dir: str | None = None) -> str:
    """Expand `~` and `$VARIABLES` in a path; relative paths are below `base_dir`."""
    folder = Path(os.path.expandvars(cache_dir)).expanduser()
    return str(folder if base_dir is None else Path(base_dir) / folder)


def sanitize_model_name(model_name: str, full_path: bool = False) -> str:
    """Return the name of a model as a file name: its last two parts, or all of them."""
    kept = model_name if full_path else "/".join(model_name.split("/")[-2:])
    return _UNSAFE.sub("__", kept)


def handle_non_serializable(value: Any) -> Any:
    """Convert a value that JSON does not support."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()
    return list(value) if isinstance(value, set) else str(value)


def setup_logging(verbosity: str | None = "INFO") -> None:
    """Log messages of this level and above; the environment variable `LMEVAL_LOG_LEVEL` takes precedence."""
    import os

    logging.basicConfig(level=(os.environ.get("LMEVAL_LOG_LEVEL") or verbosity or "INFO").upper())


def simple_parse_args_string(args_string: str | None) -> dict[str, Any]:
    """Parse `key=value,key=value`."""
    from assay.core.options.parsing import parse_arguments

    return dict(parse_arguments(args_string)) if args_string else {}
