"""Checks of tasks and groups before a run, one module per subject. Problems become findings, not exceptions."""
