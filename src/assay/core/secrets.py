"""Redacts keys and passwords in files, logs and terminal output."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

__all__ = [
    "REDACTED",
    "REGISTERED_SECRETS",
    "contains_redacted",
    "is_secret_key",
    "redact",
    "redact_assignments",
    "redact_fields",
    "redact_values",
    "register_environment_secrets",
    "register_secret",
    "register_secrets_in",
]

REDACTED = "***"

_SECRET_WORDS = frozenset(
    "key token secret password passwd authorization auth credential credentials header headers".split()
)
_HARMLESS_KEYS = frozenset(
    "tokenizer bos_token eos_token pad_token think_end_token add_bos_token max_tokens token_logprobs".split()
)
_URL_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_URL_PARAMETER = re.compile(
    r"([?&;](?:[\w.-]*(?:api[_-]?key|token|secret|password|signature|credential)|key|sig|auth)=)([^&;#\s\"']+)",
    re.IGNORECASE,
)
_KEY_NAME = re.compile(
    r"(?:api|access|secret|private|subscription|account|licen[sc]e|signing|service|admin|master)[_\-. ]?key(?:[_\-. ]id)?$"
    r"|(?:secret|passwd|password|passphrase|authorization|credentials?|apikey|secretkey)$|^auth$"
    r"|(?:^|[_\-. ])(?:auth|access|api|bearer|refresh|session|hf|hub|github|gitlab|wandb|user)[_\-. ]?token$|^token$",
    re.IGNORECASE,
)
"""Names whose values are secrets with certainty, so that they are redacted wherever they appear."""

_KEY_SHAPE = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|gho|ghs|glpat|key|nvapi|r8|pplx|tgp|csk)[-_][A-Za-z0-9_-]{12,}|\bAIza[0-9A-Za-z_-]{30,}"
    r"|\bxox[abpr]-[0-9A-Za-z-]{10,}|\bAKIA[0-9A-Z]{16}\b|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+"
)
"""What keys of known services look like."""

_REDACTED_PART = re.compile(r"(?<![\w*])\*\*\*(?![\w*])")
_ENVIRONMENT_NAME = re.compile(r"(?:_|^)(?:API_?KEY|ACCESS_KEY|SECRET_KEY|TOKEN|SECRET|PASSWORD|PASSWD)$")
_MIN_ENVIRONMENT_LENGTH = 12
_ASSIGNMENT = re.compile(r"([\w-]+)(\"?\s*[=:]\s*\"?)([^,\s\"'}]+)")


REGISTERED_SECRETS: dict[str, None] = {}
"""Longest first: one secret may contain another."""

_MIN_SECRET_LENGTH = 8
"""Shorter secrets are not redacted: that would blank out ordinary words."""


def register_secret(value: str) -> str:
    """Register a key for redaction in this process, and return it.

    Call this for every key read from the environment or a keyring: a server may echo it in an error message.
    """
    if len(value) >= _MIN_SECRET_LENGTH and value not in REGISTERED_SECRETS:
        forms = {
            value,
            quote(value, safe=""),
            json.dumps(value)[1:-1],
            json.dumps(value, ensure_ascii=False)[1:-1],
        }
        known = sorted({*REGISTERED_SECRETS, *forms}, key=len, reverse=True)
        REGISTERED_SECRETS.clear()
        REGISTERED_SECRETS.update(dict.fromkeys(known))
    return value


def register_secrets_in(value: Any, name: str = "") -> None:
    """Register every secret in nested options: by the name of its key, by its shape, and in URLs."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            is_header = name.lower().endswith(("header", "headers"))
            register_secrets_in(item, "authorization" if is_header else str(key))
    elif isinstance(value, (list, tuple)):
        for item in value:
            register_secrets_in(item, name)
    elif isinstance(value, str):
        if _KEY_NAME.search(name) and name.lower() not in _HARMLESS_KEYS and value != "EMPTY":
            register_secret(value.strip().rpartition(" ")[2])
        for match in _KEY_SHAPE.finditer(value):
            register_secret(match[0])
        for match in _URL_PARAMETER.finditer(value):
            register_secret(match[2])
        for match in _URL_CREDENTIALS.finditer(value):
            register_secret(match[0][:-1].rpartition(":")[2])
        if value.lstrip().startswith(("{", "[")):
            try:
                nested = json.loads(value)
            except (ValueError, RecursionError):
                return
            register_secrets_in(nested, name)


def register_environment_secrets() -> None:
    """Register the keys in environment variables such as `OPENAI_API_KEY` and `HF_TOKEN`."""
    for name, value in os.environ.items():
        if len(value) >= _MIN_ENVIRONMENT_LENGTH and _ENVIRONMENT_NAME.search(name.upper()):
            register_secret(value)


def redact(text: str) -> str:
    """Replace all registered secrets in a text.

    >>> redact("Incorrect API key: " + register_secret("doctest-key-1"))
    'Incorrect API key: ***'
    """
    for secret in list(REGISTERED_SECRETS):
        if secret in text:
            text = text.replace(secret, REDACTED)
    return text


def redact_values(value: Any) -> Any:
    """Replace all registered secrets in nested data, whatever the names of the keys are.

    >>> redact_values({"said": ["your key is " + register_secret("doctest-key-2")], "n": 1})
    {'said': ['your key is ***'], 'n': 1}
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {
            redact(key) if isinstance(key, str) else key: redact_values(item) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redact_values(item) for item in value]
    return value


def contains_redacted(value: Any) -> bool:
    """Return whether nested data contain a redacted value."""
    if isinstance(value, Mapping):
        return any(contains_redacted(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(contains_redacted(item) for item in value)
    return isinstance(value, str) and _REDACTED_PART.search(value) is not None


def redact_fields(value: Any) -> Any:
    """Replace the values of all secret-looking keys in nested data, and credentials in URLs.

    >>> redact_fields({"model": "x", "api_key": "sk-1", "max_tokens": 5, "client": [{"password": "p"}]})
    {'model': 'x', 'api_key': '***', 'max_tokens': 5, 'client': [{'password': '***'}]}
    """
    if isinstance(value, Mapping):
        return {key: "***" if is_secret_key(key) else redact_fields(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_fields(item) for item in value]
    return _redact_urls(value) if isinstance(value, str) else value


def redact_assignments(text: str) -> str:
    """Replace the values of secret-looking keys (`key=value`) in a command line or message.

    >>> redact_assignments("--model_args api_key=sk-1,model=x")
    '--model_args api_key=***,model=x'
    """
    masked = _ASSIGNMENT.sub(
        lambda match: f"{match[1]}{match[2]}***" if is_secret_key(match[1]) else match[0], text
    )
    return _redact_urls(masked)


def _redact_urls(text: str) -> str:
    return redact(_URL_PARAMETER.sub(rf"\1{REDACTED}", _URL_CREDENTIALS.sub(f"{REDACTED}@", text)))


def is_secret_key(key: Any) -> bool:
    """Return whether the name of a key says that its value is a secret: `api_key`."""
    name = str(key).lower()
    if name in _HARMLESS_KEYS:
        return False
    return not _SECRET_WORDS.isdisjoint(re.split(r"[_\-. ]+", name)) or name.endswith(("apikey", "secretkey"))
