"""Shim for lmms-eval: the names its task helpers import."""

from assay_compat.import_finders import import_submodule


def __getattr__(name: str) -> object:
    """Import a submodule on first use, as in `lmms_eval.tasks.TaskManager()` after `import lmms_eval`."""
    return import_submodule(__name__, name)
