"""Whose task file it is: lm-evaluation-harness and lmms-eval read a few of the same keys differently.

The dialect of a task file is, in this order: what its key `dialect` says; the harness whose task folder it lies in
(`…/lmms_eval/tasks/…`); lmms-eval's when it has a key or an output type that only lmms-eval knows; else lm-eval's.
`docs/guides/dialects.md` lists what depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from assay.core.errors import BadTask
from assay.core.specs import Dialect
from assay.tasks.functions import HelperFunction

__all__ = ["dialect_of", "home_of", "with_own_modules"]

_ONLY_LMMS = frozenset(
    "doc_to_visual doc_to_messages lmms_eval_specific_kwargs model_specific_generation_kwargs "
    "model_specific_target_kwargs process_results_use_image cluster_key score_key full_docs reasoning_tags "
    "auto_strip_thinking".split()
)
_ONLY_LMMS_OUTPUTS = ("generate_until_multi_round", "generate_until_agentic", "generate_visual_cot")


def dialect_of(path: Path, config: Mapping[str, Any]) -> Dialect:
    """The dialect of a task or group after its includes.

    >>> dialect_of(Path("mine.yaml"), {"task": "a", "doc_to_visual": "picture"})
    'lmms_eval'
    """
    named = config.get("dialect")
    if named is not None:
        if named not in get_args(Dialect):
            raise BadTask(
                f"`{named}` is not a dialect", where=f"{path}, dialect", hint=" or ".join(get_args(Dialect))
            )
        return named  # type: ignore[no-any-return]
    home = home_of(path)
    if home is not None:
        return home
    telling = any(config.get(key) is not None for key in _ONLY_LMMS)
    return "lmms_eval" if telling or config.get("output_type") in _ONLY_LMMS_OUTPUTS else "lm_eval"


def home_of(path: Path) -> Dialect | None:
    """The harness in whose task folder a file lies.

    >>> home_of(Path("/x/lmms_eval/tasks/mme/mme.yaml")), home_of(Path("/x/tasks/mme.yaml"))
    ('lmms_eval', None)
    """
    parts = path.absolute().parts
    for at in range(len(parts) - 2, -1, -1):
        if parts[at + 1] == "tasks":
            for dialect in get_args(Dialect):
                if parts[at] == dialect:
                    return dialect  # type: ignore[no-any-return]
    return None


def with_own_modules(value: Any) -> Any:
    """A config in which every `!function` executes its file for itself."""
    if isinstance(value, HelperFunction):
        return value.alone()
    if isinstance(value, Mapping):
        return {key: with_own_modules(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_own_modules(item) for item in value]
    return value
