"""Turns options into a plan: selection, model and judge probes, cost forecast, manifest."""
