"""Fixtures of the project's tests, for the tests of the plugins."""

from tests.conftest import *  # noqa: F403 - pytest finds fixtures by name
