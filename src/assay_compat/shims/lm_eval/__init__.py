"""Shim for lm-evaluation-harness: the names its task helpers import."""

from assay_compat.import_finders import import_submodule


def __getattr__(name: str) -> object:
    """Import a submodule on first use, as in `lm_eval.tasks.TaskManager()` after `import lm_eval`."""
    return import_submodule(__name__, name)
