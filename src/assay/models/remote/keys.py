"""Secrets: from the environment or a keyring, never from arguments, never into a text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from assay.core.errors import BadOption

__all__ = ["Key", "find_key", "refuse_keys"]

_ARGUMENTS = ("api_key", "apikey", "key", "auth_token", "token", "access_token", "secret", "password")
_SERVICE = "assay"


class Key:
    """A secret that does not show itself."""

    __slots__ = ("_value", "source")

    def __init__(self, value: str, source: str) -> None:
        self._value = value
        self.source = source
        """The environment variable, or the entry of the keyring, it came from."""

    def reveal(self) -> str:
        """The secret itself: for a header, and nothing else."""
        return self._value

    def hide(self, text: str) -> str:
        """A text, the secret cut out of it wherever it stands."""
        return text.replace(self._value, "***") if self._value else text

    def __repr__(self) -> str:
        return f"Key(from {self.source})"


def find_key(names: Sequence[str], *, given: str = "") -> Key | None:
    """The first secret there is: of the variable the user names, else of the usual ones; then the keyring.

    Raises:
        BadOption: A variable was named, and holds nothing.
    """
    for name in (given,) if given else names:
        value = os.environ.get(name, "").strip()
        if value:
            if any(ord(ch) < 33 or ord(ch) > 126 for ch in value):
                raise BadOption(
                    "the key holds characters no key has", where=name, hint="was it copied whole?"
                )
            return Key(value, name)
        if (stored := _from_keyring(name)) is not None:
            return stored
    if given:
        raise BadOption(
            f"the environment variable `{given}` is not set", where="api_key_env", hint=f"export {given}=…"
        )
    return None


def refuse_keys(arguments: Mapping[str, Any], env: str) -> None:
    """Secrets among arguments would end up in the shell's history, the process list and the run's files.

    Raises:
        BadOption: There is one. Its value is not repeated.
    """
    for name in arguments:
        if name.lower() in _ARGUMENTS:
            raise BadOption(
                f"`{name}` is not taken as an argument: it would be kept with the run",
                where="--model_args",
                hint=f"export {env}=… and leave it out, or name another variable with api_key_env=NAME",
            )


def _from_keyring(name: str) -> Key | None:
    """The entry `assay`/NAME of the system's keyring, where the package `keyring` is installed."""
    if find_spec("keyring") is None:
        return None
    keyring = import_module("keyring")
    try:
        value = keyring.get_password(_SERVICE, name)
    except Exception:  # noqa: BLE001 - a backend may fail in its own way: then there is no entry
        return None
    return Key(value, f"keyring {_SERVICE}/{name}") if value else None
