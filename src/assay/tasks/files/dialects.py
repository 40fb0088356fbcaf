"""Detect the dialect of a task file. `assay.core.dialects` defines what depends on it.

The dialect is, in this order: the key `dialect`; the harness whose task folder contains the file
(`…/lmms_eval/tasks/…`); lmms_eval if the file has a key or an output type that only lmms_eval has; lm_eval.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.core.dialects import Dialect
from assay.core.errors import TaskError
from assay.core.output_types import OutputType
from assay.tasks.files.helper_functions import HelperFunction

__all__ = ["detect_dialect", "find_harness", "find_harness_folder", "isolate_helper_modules"]

_LMMS_EVAL_KEYS = frozenset(
    "doc_to_visual doc_to_messages lmms_eval_specific_kwargs model_specific_generation_kwargs "
    "model_specific_target_kwargs process_results_use_image score_key full_docs reasoning_tags "
    "auto_strip_thinking".split()
)
_LMMS_EVAL_OUTPUT_TYPES = tuple(
    str(output_type) for output_type in OutputType if output_type.is_lmms_eval_only
)


def detect_dialect(path: Path, config: Mapping[str, Any]) -> Dialect:
    """Return the dialect of a task or group after its includes are merged.

    >>> detect_dialect(Path("mine.yaml"), {"task": "a", "doc_to_visual": "picture"}).value
    'lmms_eval'
    """
    named = config.get("dialect")
    if named is not None:
        if named not in list(Dialect):
            raise TaskError(
                f"`{named}` is not a dialect", where=f"{path}, dialect", hint=" or ".join(Dialect)
            )
        return Dialect(named)
    harness = find_harness(path)
    if harness is not None:
        return harness
    has_lmms_eval_key = any(config.get(key) is not None for key in _LMMS_EVAL_KEYS)
    # scores of `process_results` can name their cluster; without it, the cluster is a column in both dialects
    has_lmms_eval_key |= config.get("cluster_key") is not None and config.get("process_results") is not None
    is_lmms_eval = has_lmms_eval_key or config.get("output_type") in _LMMS_EVAL_OUTPUT_TYPES
    return Dialect.LMMS_EVAL if is_lmms_eval else Dialect.LM_EVAL


def find_harness(path: Path) -> Dialect | None:
    """Return the harness whose task folder contains a file.

    >>> find_harness(Path("/x/lmms_eval/tasks/mme/mme.yaml")).value, find_harness(Path("/x/tasks/mme.yaml"))
    ('lmms_eval', None)
    """
    folder = find_harness_folder(path)
    return Dialect(folder.parent.name) if folder is not None else None


def find_harness_folder(path: Path) -> Path | None:
    """Return the task folder of a harness that contains a file.

    >>> find_harness_folder(Path("/x/lmms_eval/tasks/mme/mme.yaml"))
    PosixPath('/x/lmms_eval/tasks')
    """
    parts = path.absolute().parts
    for index in range(len(parts) - 2, -1, -1):
        if parts[index + 1] == "tasks" and parts[index] in list(Dialect):
            return Path(*parts[: index + 2])
    return None


def isolate_helper_modules(value: Any) -> Any:
    """Return the config with a separate module for every `!function` reference."""
    if isinstance(value, HelperFunction):
        return value.with_own_module()
    if isinstance(value, Mapping):
        return {key: isolate_helper_modules(item) for key, item in value.items()}
    if isinstance(value, list):
        return [isolate_helper_modules(item) for item in value]
    return value
