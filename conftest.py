"""Isolate every test, the examples in docstrings under `src` included."""

pytest_plugins = ["tests.isolation"]
