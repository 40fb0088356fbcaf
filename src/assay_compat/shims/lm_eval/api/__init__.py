"""Shim for `lm_eval.api`."""

from assay_compat.import_finders import import_submodule


def __getattr__(name: str) -> object:
    """Import a submodule on first use, as in `lm_eval.api.model` after `import lm_eval`."""
    return import_submodule(__name__, name)
