"""Shim for `lmms_eval.api`."""

from assay_compat.import_finders import import_submodule


def __getattr__(name: str) -> object:
    """Import a submodule on first use, as in `lmms_eval.api.model` after `import lmms_eval`."""
    return import_submodule(__name__, name)
