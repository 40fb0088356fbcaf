"""Redacts keys and passwords in files, logs and terminal output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["redact", "redact_assignments", "redact_fields", "register_secret"]

_SECRET_WORDS = frozenset(
    "key token secret password passwd authorization auth credential credentials header headers".split()
)
_HARMLESS_KEYS = frozenset(
    "tokenizer bos_token eos_token pad_token think_end_token add_bos_token max_tokens token_logprobs".split()
)
_URL_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_ASSIGNMENT = re.compile(r"([\w-]+)(\"?\s*[=:]\s*\"?)([^,\s\"'}]+)")


_registered_secrets: set[str] = set()
_MIN_SECRET_LENGTH = 8
"""Shorter secrets are not redacted: that would blank out ordinary words."""


def register_secret(value: str) -> str:
    """Register a key for redaction in this process, and return it.

    Call this for every key read from the environment or a keyring: a server may echo it in an error message.
    """
    if len(value) >= _MIN_SECRET_LENGTH:
        _registered_secrets.add(value)
    return value


def redact(text: str) -> str:
    """Replace all registered secrets in a text.

    >>> redact("Incorrect API key: " + register_secret("doctest-key-1"))
    'Incorrect API key: ***'
    """
    for secret in _registered_secrets:
        if secret in text:
            text = text.replace(secret, "***")
    return text


def redact_fields(value: Any) -> Any:
    """Replace the values of all secret-looking keys in nested data, and credentials in URLs.

    >>> redact_fields({"model": "x", "api_key": "sk-1", "max_tokens": 5, "client": [{"password": "p"}]})
    {'model': 'x', 'api_key': '***', 'max_tokens': 5, 'client': [{'password': '***'}]}
    """
    if isinstance(value, Mapping):
        return {key: "***" if _is_secret_key(key) else redact_fields(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_fields(item) for item in value]
    return redact(_URL_CREDENTIALS.sub("***@", value)) if isinstance(value, str) else value


def redact_assignments(text: str) -> str:
    """Replace the values of secret-looking keys (`key=value`) in a command line or message.

    >>> redact_assignments("--model_args api_key=sk-1,model=x")
    '--model_args api_key=***,model=x'
    """
    masked = _ASSIGNMENT.sub(
        lambda match: f"{match[1]}{match[2]}***" if _is_secret_key(match[1]) else match[0], text
    )
    return redact(_URL_CREDENTIALS.sub("***@", masked))


def _is_secret_key(key: Any) -> bool:
    name = str(key).lower()
    if name in _HARMLESS_KEYS:
        return False
    return not _SECRET_WORDS.isdisjoint(re.split(r"[_\-. ]+", name)) or name.endswith(("apikey", "secretkey"))
