"""Prompt variants: `variants:` of a task file and `--vary`."""
