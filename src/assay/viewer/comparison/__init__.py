"""Comparison of two runs: paired documents, differences with intervals and p-values, mismatching settings."""
