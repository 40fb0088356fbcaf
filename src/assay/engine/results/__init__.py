"""Turns verdicts into estimates: aggregation, stop rules, rescoring, verification, replay."""
