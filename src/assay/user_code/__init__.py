"""Runs the task author's Python (helpers, class tasks, metrics): isolation, time limits, seeds."""
