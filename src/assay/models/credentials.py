"""Where keys come from: the environment, else a keyring. Never an argument, which would end up in files and histories."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.secrets import register_secret

__all__ = ["KEYRING_SERVICE", "find_key", "reject_key_arguments", "require_key"]

KEYRING_SERVICE = "assay"
"""The service under which a keyring holds keys; the user name is that of the environment variable."""

_KEY_ARGUMENTS = frozenset({"api_key", "apikey", "api-key", "auth_token", "access_token", "openai_api_key"})


def find_key(variables: Sequence[str]) -> str | None:
    """The key in the first of these environment variables that is set, else in the keyring; None where there is none.

    From here on it is known as a secret, so that nothing that is written or shown holds it.
    """
    for variable in variables:
        if found := os.environ.get(variable, "").strip():
            return register_secret(found)
    keyring = _import_keyring()
    for variable in variables if keyring is not None else ():
        if kept := _read_keyring(keyring, variable):
            return register_secret(kept)
    return None


def require_key(variables: Sequence[str], *, service: str) -> str:
    """The key, or an error that says where it is looked for."""
    found = find_key(variables)
    if found is None:
        names = " or ".join(f"`{name}`" for name in variables)
        raise InvalidOption(
            f"there is no key for {service}",
            where="environment",
            hint=f"set {names}, or keep it in a keyring: keyring set {KEYRING_SERVICE} {variables[0]}",
        )
    return found


def reject_key_arguments(
    arguments: Mapping[str, Any], *, variables: Sequence[str], where: str = "--model_args"
) -> None:
    """Keys are not taken as arguments: those end up in shell histories, process lists and files.

    Raises:
        InvalidOption: One of the arguments is a key.
    """
    for name, value in arguments.items():
        if name.lower() in _KEY_ARGUMENTS and value not in (None, "", "EMPTY"):
            register_secret(str(value))
            raise InvalidOption(
                f"`{name}` is not taken as an argument: it would end up in histories and files",
                where=where,
                hint=f"set `{variables[0]}` in the environment, or keep it in a keyring: "
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
    except Exception:  # noqa: BLE001 - a keyring is locked, headless or broken in as many ways as there are keyrings
        return None
    return found.strip() if isinstance(found, str) and found.strip() else None
