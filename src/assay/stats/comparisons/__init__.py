"""Tests of differences: paired comparison, exact tests, multiple testing, power."""
