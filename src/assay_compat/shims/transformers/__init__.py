"""Shim for `transformers`, present only while a helper file that uses its SQuAD functions is loaded."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ModuleNotFoundError(
        f"`transformers.{name}` needs the package: pip install transformers", name="transformers"
    )
