"""Plugins of all tests, those in docstrings under `src` included."""

pytest_plugins = ["tests.collection", "tests.isolation"]
