"""Keys and passwords never reach files, logs or the screen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["know_secret", "mask_text", "redacted", "without_secrets"]

_WORDS = frozenset(
    "key token secret password passwd authorization auth credential credentials header headers".split()
)
_HARMLESS = frozenset(
    "tokenizer bos_token eos_token pad_token think_end_token add_bos_token max_tokens token_logprobs".split()
)
_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")
_ASSIGNED = re.compile(r"([\w-]+)(\"?\s*[=:]\s*\"?)([^,\s\"'}]+)")


_KNOWN: set[str] = set()
_SHORTEST = 8
"""A shorter key would blank out ordinary words; nobody gives out such keys."""


def know_secret(value: str) -> str:
    """Remember a key while the process lives, so that `redacted` takes it out of whatever others say; gives it back.

    Whoever reads a key from the environment or a keyring calls this: a server may echo it in an error.
    """
    if len(value) >= _SHORTEST:
        _KNOWN.add(value)
    return value


def redacted(text: str) -> str:
    """The text without any key that is known.

    >>> redacted("Incorrect API key: " + know_secret("doctest-key-1"))
    'Incorrect API key: ***'
    """
    for secret in _KNOWN:
        if secret in text:
            text = text.replace(secret, "***")
    return text


def without_secrets(value: Any) -> Any:
    """The same value with everything hidden whose key smells of a secret, and passwords cut out of addresses.

    >>> without_secrets({"model": "x", "api_key": "sk-1", "max_tokens": 5, "client": [{"password": "p"}]})
    {'model': 'x', 'api_key': '***', 'max_tokens': 5, 'client': [{'password': '***'}]}
    """
    if isinstance(value, Mapping):
        return {key: "***" if _is_secret(key) else without_secrets(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(item) for item in value]
    return redacted(_IN_URL.sub("***@", value)) if isinstance(value, str) else value


def mask_text(text: str) -> str:
    """A command line or message with the values of secret keys hidden.

    >>> mask_text("--model_args api_key=sk-1,model=x")
    '--model_args api_key=***,model=x'
    """
    hidden = _ASSIGNED.sub(
        lambda found: f"{found[1]}{found[2]}***" if _is_secret(found[1]) else found[0], text
    )
    return redacted(_IN_URL.sub("***@", hidden))


def _is_secret(key: Any) -> bool:
    name = str(key).lower()
    if name in _HARMLESS:
        return False
    return not _WORDS.isdisjoint(re.split(r"[_\-. ]+", name)) or name.endswith(("apikey", "secretkey"))
