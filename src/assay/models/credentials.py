"""Read API keys from the environment or a keyring. Never from arguments, which end up in files and shell histories."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.secrets import register_secret

__all__ = [
    "KEYRING_SERVICE",
    "check_key",
    "find_key",
    "is_header_text",
    "reject_key_arguments",
    "require_key",
]

KEYRING_SERVICE = "assay"
"""The keyring service of the keys; the keyring's user name is the name of the environment variable."""

_KEY_ARGUMENTS = frozenset({"api_key", "apikey", "api-key", "auth_token", "access_token", "openai_api_key"})


def find_key(variables: Sequence[str]) -> str | None:
    """Return the key of the first environment variable that is set, else of the keyring; None if there is none.

    Registers the key as a secret, so that Assay redacts it in all output.

    Raises:
        InvalidOption: The key contains a line break or another character that a header cannot contain.
    """
    for variable in variables:
        if found := os.environ.get(variable, "").strip():
            return check_key(found, where=f"environment variable {variable}")
    keyring = _import_keyring()
    for variable in variables if keyring is not None else ():
        if kept := _read_keyring(keyring, variable):
            return check_key(kept, where=f"keyring entry {variable}")
    return None


def check_key(key: str, *, where: str) -> str:
    """Register a key as a secret and return it.

    Raises:
        InvalidOption: The key contains a line break or another character that a header cannot contain.
    """
    register_secret(key)
    lines = key.splitlines()
    for line in lines:
        register_secret(line.strip())
    if not is_header_text(key):
        raise InvalidOption(
            "the API key contains several lines"
            if len(lines) > 1
            else "the API key contains characters other than printable ASCII",
            where=where,
            hint="copy the key again; it must be one line of letters, digits and punctuation",
        )
    return key


def is_header_text(text: str) -> bool:
    """Return whether a text can be sent in an HTTP header: printable ASCII.

    >>> is_header_text("sk-1"), is_header_text("clé"), is_header_text("two" + chr(10) + "lines")
    (True, False, False)
    """
    return text.isascii() and text.isprintable()


def require_key(variables: Sequence[str], *, service: str) -> str:
    """Return the key.

    Raises:
        InvalidOption: There is no key; the hint names the environment variables.
    """
    found = find_key(variables)
    if found is None:
        names = " or ".join(f"`{name}`" for name in variables)
        raise InvalidOption(
            f"no API key for {service}",
            where="environment",
            hint=f"set {names}, or store the key in a keyring: keyring set {KEYRING_SERVICE} {variables[0]}",
        )
    return found


def reject_key_arguments(
    arguments: Mapping[str, Any], *, variables: Sequence[str], where: str = "--model_args"
) -> None:
    """Reject keys among the arguments, because arguments end up in shell histories, process lists and files.

    Raises:
        InvalidOption: One of the arguments is a key.
    """
    for name, value in arguments.items():
        if name.lower() in _KEY_ARGUMENTS and value not in (None, "", "EMPTY"):
            register_secret(str(value))
            raise InvalidOption(
                f"`{name}` is not allowed as an argument: it would be stored in shell histories and files",
                where=where,
                hint=f"set the environment variable `{variables[0]}`, or store the key in a keyring: "
                f"keyring set {KEYRING_SERVICE} {variables[0]}",
            )


def _import_keyring() -> Any:
    try:
        return import_module("keyring")
    except ImportError:
        return None


def _read_keyring(keyring: Any, variable: str) -> str | None:
    try:
        found = keyring.get_password(KEYRING_SERVICE, variable)
    except Exception:  # noqa: BLE001 - keyring backends raise many types of errors
        return None
    return found.strip() if isinstance(found, str) and found.strip() else None
